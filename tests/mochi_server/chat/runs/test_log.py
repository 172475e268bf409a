"""The log of a run: every reader gets the same, whatever its pace and wherever it begins."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from mochi_server.chat.runs.log import DELTAS, FOLDED_TEXT, LogReader, Numbered, RunLog
from mochi_server.errors import InternalError
from mochi_server.protocol.events import (
    AgentExecution,
    AgentPlanning,
    ContentDelta,
    Done,
    Event,
    ThinkingDelta,
)

TEXTS = st.text(max_size=3) | st.sampled_from(["\ud83d", "\ude00", "x" * FOLDED_TEXT])
EVENTS = st.one_of(
    st.builds(ContentDelta, TEXTS),
    st.builds(ContentDelta, TEXTS),
    st.builds(ThinkingDelta, TEXTS),
    st.builds(AgentPlanning, TEXTS, st.just("a"), st.sampled_from("xy")),
    st.builds(AgentExecution, TEXTS, st.just("a"), st.sampled_from("xy")),
    st.builds(Done, session_id=st.sampled_from("abc")),
)
MANY = st.integers(1, 90).flatmap(
    lambda count: st.lists(EVENTS, min_size=1, max_size=6).map(
        lambda few: [few[number * len(few) // count] for number in range(count)]
    )
)
STEPS = st.one_of(
    st.tuples(st.just("append"), MANY),
    st.tuples(st.just("read"), st.integers(0, 3)),
    st.tuples(st.just("join"), st.integers(0, 500)),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("jump"), st.integers(0, 9)),
)


def split(events: list[Event], numbers: list[int]) -> list[tuple[int, tuple[object, ...], str]]:
    """Each delta's text by characters, so that it does not matter how they are joined."""
    found: list[tuple[int, tuple[object, ...], str]] = []
    for number, event in zip(numbers, events, strict=True):
        if isinstance(event, DELTAS):
            kind = (type(event), getattr(event, "agent_call_id", None))
            text = event.content
            if found and found[-1][1] == kind:
                _, _, before = found.pop()
                text = before + text
        else:
            kind, text = (event,), ""
        found.append((number, kind, text))
    return found


def essence(pairs: list[Numbered]) -> list[tuple[int, tuple[object, ...], str]]:
    """The order of kinds, the text of neighbouring deltas, and the number of the last of them."""
    return split([event for _, event in pairs], [number for number, _ in pairs])


@given(st.lists(STEPS, max_size=30))
def test_every_reader_gets_what_follows_its_number(steps):
    asyncio.run(_interleave(steps))


async def _interleave(steps: list[tuple[str, object]]) -> None:
    log = RunLog()
    appended: list[Numbered] = []
    readers: list[tuple[LogReader, int, list[Numbered]]] = [(log.reader(), 0, [])]
    for step, value in steps:
        if step == "append":
            numbered = list(enumerate(value, log.end))
            log.extend(value)
            appended += numbered
        elif step == "join":
            after = min(value, log.end - 1)
            readers.append((log.reader(after), after, []))
        elif step == "jump":
            log.jump(log.end + value)
        else:
            reader, _, got = readers[value % len(readers)]
            if step == "read":
                await read_now(reader, got)
            elif len(readers) > 1:
                reader.leave()
                readers.pop(value % len(readers))
    log.close()
    readers += [
        (log.reader(after), after, []) for after in {0, log.end // 3, log.end // 2, log.end - 1}
    ]
    for reader, after, got in readers:
        while (batch := await reader.next()) is not None:
            assert batch
            got.extend(batch)
        numbers = [number for number, _ in got]
        assert numbers == sorted(set(numbers))
        assert essence(got) == essence([pair for pair in appended if pair[0] > after])


async def read_now(reader: LogReader, got: list[Numbered]) -> None:
    reader.poke()
    got += await reader.next() or []


async def test_joining_at_every_number_of_folded_deltas_loses_and_repeats_nothing():
    log = RunLog(first=1_000_001)
    reader = log.reader()
    appended: list[Numbered] = []
    for number in range(1_000_001, 1_000_401):
        event: Event = ContentDelta(f"{number} ")
        if number % 97 == 0:
            event = ThinkingDelta("\ud83d")
        appended.append((number, event))
        log.append(event)
        await read_now(reader, [])
    log.close()

    for after in range(1_000_000, 1_000_401):
        late = log.reader(after)
        got: list[Numbered] = []
        while (batch := await late.next()) is not None:
            got += batch
        assert essence(got) == essence([pair for pair in appended if pair[0] > after])
        assert len(got) < 80


async def test_a_long_reply_is_kept_in_few_objects():
    log = RunLog()
    reader = log.reader()
    for number in range(10_000):
        log.append(ContentDelta(f"{number} "))
        if number % 7 == 0:
            await reader.next()
    log.close()

    events = await log.reader().next()

    assert len(events) < 400
    assert events[-1][0] == 10_000
    text = "".join(event.content for _, event in events if isinstance(event, ContentDelta))
    assert text == "".join(f"{number} " for number in range(10_000))


async def test_a_reader_that_joins_after_a_fold_may_read_at_its_own_pace():
    """Folding goes on while it has read nothing."""
    log = RunLog()
    for number in range(100):
        log.append(ContentDelta(f"{number} "))
    late = log.reader(50)
    for number in range(100, 300):
        log.append(ContentDelta(f"{number} "))

    batch = await late.next()

    text = "".join(event.content for _, event in batch if isinstance(event, ContentDelta))
    assert text == "".join(f"{number} " for number in range(50, 300))


async def test_a_poke_wakes_a_waiting_reader_with_nothing():
    log = RunLog()
    reader = log.reader()
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    reader.poke()

    assert await waiting == []
    log.append(ContentDelta("x"))
    assert await reader.next() == [(1, ContentDelta("x"))]


async def test_a_jump_alone_is_no_sign_of_life():
    log = RunLog()
    reader = log.reader()
    log.jump(100)
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    log.append(ContentDelta("x"))

    assert await waiting == [(100, ContentDelta("x"))]


async def test_a_reader_that_leaves_ends_its_own_waiting():
    log = RunLog()
    reader, other = log.reader(), log.reader()
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    reader.leave()
    reader.leave()

    assert await waiting is None
    log.append(ContentDelta("x"))
    assert await other.next() == [(1, ContentDelta("x"))]
    assert log.is_read


async def test_the_end_says_why_the_run_failed():
    log = RunLog()
    reader = log.reader()
    error = InternalError("no")
    log.close(error)

    assert await reader.next() is None
    assert reader.failure is error


async def test_the_last_reader_that_leaves_cancels_the_run():
    log = RunLog()
    task = asyncio.ensure_future(asyncio.sleep(60))
    log.on_unread = task.cancel
    one, two = log.reader(), log.reader()
    one.leave()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    two.leave()

    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_slow_reader_that_leaves_lets_the_run_go_on():
    log = RunLog()
    task = asyncio.ensure_future(asyncio.sleep(0.01))
    log.on_unread = task.cancel
    one, two = log.reader(), log.reader()
    one.leave(abandon=False)
    two.leave()

    await task


async def test_a_reader_that_is_ahead_gets_what_it_has_not_read_under_its_numbers():
    """It has read at the run's own process what the journal has not yet."""
    log = RunLog()
    reader = log.reader(after=100)
    for number in range(1, 121):
        log.append(ContentDelta(f"{number} "))
    assert await reader.next() == [(n, ContentDelta(f"{n} ")) for n in range(101, 121)]
    assert log.end == 121
    assert (await log.reader().next() or [])[-1] == (120, ContentDelta("120 "))
