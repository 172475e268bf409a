"""The log of a turn: every reader gets the same, whatever its pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mochi_server.chat import LogReader, TurnLog, TurnRegistry
from mochi_server.chat import turn as turns
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import InternalError, ShuttingDown
from mochi_server.protocol.events import ContentDelta, Done, Event, ThinkingDelta
from tests.support.turns import kinds, read_all, text_of

EVENTS = st.one_of(
    st.builds(ContentDelta, st.text(max_size=3)),
    st.builds(ContentDelta, st.text(max_size=3)),
    st.builds(ThinkingDelta, st.text(max_size=3)),
    st.builds(Done, session_id=st.sampled_from("abc")),
)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(EVENTS, min_size=1, max_size=90)),
    st.tuples(st.just("read"), st.integers(0, 3)),
    st.tuples(st.just("join"), st.none()),
    st.tuples(st.just("leave"), st.integers(0, 3)),
)


def essence(events: list[Event]) -> list[tuple[str, str]]:
    """The order of kinds, and the text of each run of deltas."""
    found: list[tuple[str, str]] = []
    for event in events:
        text = str(event.payload().get("content", event))
        if found and found[-1][0] == event.type and event.type.endswith("_delta"):
            text = found.pop()[1] + text
        found.append((event.type, text))
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_every_reader_gets_the_same_in_the_same_order(
    steps: list[tuple[str, list[Event] | int | None]],
) -> None:
    """Folding is invisible but for the number of deltas; numbers only grow."""
    asyncio.run(_interleave(steps))


async def _interleave(steps: list[tuple[str, list[Event] | int | None]]) -> None:
    log = TurnLog()
    appended: list[Event] = []
    readers: list[tuple[LogReader, list[tuple[int, Event]]]] = [(log.reader(), [])]
    for step, value in steps:
        if step == "append":
            assert isinstance(value, list)
            log.extend(value)
            appended += value
        elif step == "join":
            readers.append((log.reader(), []))
        else:
            assert isinstance(value, int)
            reader, got = readers[value % len(readers)]
            if step == "read" and reader.position < log.end:
                got += await reader.next() or []
            elif step == "leave" and len(readers) > 1:
                reader.leave()
                readers.pop(value % len(readers))
    log.close()
    readers.append((log.reader(), []))
    for reader, got in readers:
        while (batch := await reader.next()) is not None:
            got.extend(batch)
        numbers = [number for number, _ in got]
        assert numbers == sorted(set(numbers))
        assert essence([event for _, event in got]) == essence(appended)
        if appended:
            assert numbers[-1] == len(appended)


async def test_a_poke_wakes_a_waiting_reader_with_nothing() -> None:
    """So that its caller can send a sign of life."""
    log = TurnLog()
    reader = log.reader()
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    reader.poke()
    assert await waiting == []
    log.extend([ContentDelta("x")])
    assert await reader.next() == [(1, ContentDelta("x"))]


async def test_a_reader_that_leaves_ends_its_own_waiting() -> None:
    """Nobody waits on a log that he has left."""
    log = TurnLog()
    reader, other = log.reader(), log.reader()
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    reader.leave()
    assert await waiting is None
    log.extend([ContentDelta("x")])
    assert await other.next() == [(1, ContentDelta("x"))]


async def test_a_long_reply_is_kept_in_few_objects() -> None:
    """What was read costs no object for each token."""
    log = TurnLog()
    reader = log.reader()
    for number in range(10_000):
        log.extend([ContentDelta(f"{number} ")])
        if number % 7 == 0:
            await reader.next()
    log.close()
    late = log.reader()
    events = await late.next()
    assert events is not None
    assert len(events) < 400
    assert text_of([event for _, event in events]) == "".join(f"{n} " for n in range(10_000))


class Script:
    """A turn that does what the test says."""

    session_id = "scripted"
    run_id = "run_scripted"
    model = "any"

    def __init__(self, *events: Event, error: BaseException | None = None) -> None:
        self._events, self._error = events, error
        self.released = 0

    async def events(self) -> AsyncGenerator[list[Event], None]:
        for event in self._events:
            yield [event]
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error

    async def release(self) -> None:
        self.released += 1


async def test_an_unforeseen_failure_ends_in_the_log_and_not_in_the_air(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client gets an error without a trace; the server's log has the trace."""
    registry, script = TurnRegistry(), Script(ContentDelta("x"), error=KeyError("secret"))
    events = await read_all(registry.start(script))
    assert kinds(events) == ["content_delta", "error", "done"]
    assert events[1].payload()["code"] == InternalError.code
    assert "secret" not in str(events[1].payload())
    assert "secret" in caplog.text
    assert script.released == 1


async def test_a_turn_is_over_for_the_registry_before_its_readers_see_the_end() -> None:
    """Who sees done may start the next turn at once."""
    registry = TurnRegistry()
    script = Script(ContentDelta("x"))
    reader = registry.start(script).reader()
    while (batch := await reader.next()) is not None:
        if any(isinstance(event, Done) for _, event in batch):
            assert script.released == 1
            assert not len(registry)
            assert not registry.is_running("scripted")
    reader.leave()
    assert not registry.stop("scripted", ShuttingDown())


async def test_a_turn_that_was_ended_gets_the_time_to_save_whatever_the_limit_was() -> None:
    """Asked to be quick, a server still keeps what it has."""
    saved = asyncio.Event()

    class Saving(Script):
        async def release(self) -> None:
            await run_to_completion(saved.wait())

    registry = TurnRegistry()
    registry.start(Saving())
    registry.stop_all()
    closing = asyncio.ensure_future(registry.wait_closed(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    saved.set()
    await asyncio.wait_for(closing, 30)
    assert not len(registry)


async def test_a_turn_that_never_ends_holds_up_no_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time to save has an end as well."""
    monkeypatch.setattr(turns, "SAVE_SECONDS", 0.01)
    never = asyncio.Event()

    class Stuck(Script):
        async def release(self) -> None:
            await run_to_completion(never.wait())

    registry = TurnRegistry()
    registry.start(Stuck())
    registry.stop_all()
    await asyncio.wait_for(registry.wait_closed(0), 30)
    assert len(registry) == 1
    never.set()
    await registry.wait_closed(5)
