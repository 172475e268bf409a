"""What every state promises: who wins, what is seen, what stays."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from channels.layers import InMemoryChannelLayer
from django.utils.module_loading import import_string

from mochi_project.signals import ALIAS, ChannelSignals, channel_layers
from mochi_server.state import (
    Signals,
    SQLiteState,
    State,
    Statements,
    StateSignals,
    Subscription,
    Version,
)
from mochi_server.state import signals as signals_module
from tests.contracts.conftest import NewState
from tests.support.redis import needs_redis, running_redis


class Sides(NamedTuple):
    """A state as two processes have it."""

    one: State
    two: State


@pytest.fixture
def sides(new_state: NewState) -> Sides:
    return Sides(new_state(), new_state())


async def add(state, name, value=b"1"):
    return await state.write(lambda rows: rows.add_row("k", name, value))


async def ids(state):
    return await state.read(lambda rows: rows.row_ids("k"))


async def test_the_first_to_add_or_to_replace_a_row_wins(sides):
    one, two = sides
    assert (await add(one, "a"), await add(two, "a", b"2")) == (True, False)
    row = await one.read(lambda rows: rows.row("k", "a"))
    replaced = [
        await state.write(lambda rows, value=value: rows.replace_row("k", row, value))
        for state, value in [(two, b"two"), (one, b"one")]
    ]
    assert replaced == [True, False]
    assert (await one.read(lambda rows: rows.row("k", "a"))).value == b"two"
    await two.write(lambda rows: rows.remove_row("k", "a"))
    assert await one.read(lambda rows: rows.row("k", "a")) is None
    assert not await one.write(lambda rows: rows.replace_row("k", row, b"late"))


async def test_the_version_says_that_somebody_has_changed_something(sides):
    one, two = sides
    versions = [await one.read(lambda rows: rows.version())]

    async def is_new() -> bool:
        versions.append(await one.read(lambda rows: rows.version()))
        return versions[-1] != versions[-2]

    await add(two, "a")
    assert await is_new()
    assert not await is_new()
    await add(two, "b")
    since = await one.read(lambda rows: rows.rows_since("k", versions[-1].number))
    assert [row.id for row in since] == ["b"]
    await two.write(lambda rows: rows.remove_row("k", "b"))
    assert await is_new()
    assert await ids(one) == {"a"}
    assert await one.read(lambda rows: rows.rows_since("other", 0)) == []


async def test_what_fails_changes_nothing(sides):
    one, two = sides
    await add(one, "a")

    def fail(rows):
        rows.add_row("k", "b", b"1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await one.write(fail)
    assert await ids(two) == {"a"}
    assert await add(two, "b")


async def test_lines_are_read_from_the_last_one_and_old_ones_go(sides):
    one, two = sides

    async def append(log, name):
        await two.write(
            lambda rows: rows.append_line(log, name, name.encode() * 10, keep_bytes=100)
        )

    async def read(limit=100, before=None):
        lines = await one.read(lambda rows: rows.last_lines("l", limit=limit, before=before))
        return "".join(chr(line[0]) for line in lines)

    for name in "abcb":
        await append("l", name)
        await append("other", name)
    assert (await read(), await read(limit=2), await read(before="c")) == ("cba", "cb", "ba")
    assert await read(before="x") == ""
    assert await one.read(lambda rows: rows.line("l", "b")) == b"b" * 10
    for number in range(9):
        await append("l", str(number))
    assert await read() == "876543210c"


# Signals


NewSignals = Callable[[], Signals]

SECONDS = 30.0


class Changing(StateSignals):
    """Signals of a process that changes the state before it sends one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(state := SQLiteState(folder))
        self.state = state

    async def change(self) -> None:
        await self.state.write(lambda state: state.remove_row("rows", "of nobody"))


@pytest.fixture(params=["one process", "state", "memory", pytest.param("redis", marks=needs_redis)])
async def new(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str
) -> AsyncIterator[NewSignals]:
    """Another process, or the same one."""
    alone, memory = Signals(), InMemoryChannelLayer()
    kinds: dict[str, NewSignals] = {
        "one process": lambda: alone,
        "state": lambda: Changing(tmp_path),
        "memory": lambda: ChannelSignals(memory),
        "redis": lambda: ChannelSignals(layer_in(redis_url)),
    }
    async with AsyncExitStack() as stack:

        def one() -> Signals:
            made = kinds[request.param]()
            stack.push_async_callback(made.aclose)
            return made

        yield one


def layer_in(url: str) -> Any:
    """The layer that processes have with this Redis."""
    layer = channel_layers(url)[ALIAS]
    return import_string(layer["BACKEND"])(**layer["CONFIG"])


async def joined(*subscriptions: Subscription) -> None:
    """Wait until what other processes send arrives, which first wakes for what was before."""
    for subscription in subscriptions:
        assert await subscription.wait(SECONDS)


async def send(signals: Signals, topic: str) -> None:
    if isinstance(signals, Changing):
        await signals.change()
    signals.send(topic)


async def test_a_signal_wakes_all_who_wait_for_its_topic_in_every_process(new: NewSignals) -> None:
    one, other = new(), new()
    with one.subscribe("a") as first, one.subscribe("a") as second, other.subscribe("a") as third:
        if one is not other:
            await joined(first, second, third)
        for sender in (one, other):
            waiting = [asyncio.ensure_future(each.wait(SECONDS)) for each in (first, second, third)]
            await send(sender, "a")
            assert await asyncio.gather(*waiting) == [True, True, True]


async def test_a_signal_that_came_before_is_not_lost_and_wakes_once(new: NewSignals) -> None:
    signals = new()
    with signals.subscribe("a") as subscription, signals.subscribe("b") as other:
        await send(signals, "a")
        assert await subscription.wait(SECONDS)
        signals.send("b")
        assert await other.wait(SECONDS)


async def test_whoever_has_left_or_closed_is_not_in_the_way(new: NewSignals) -> None:
    signals = new()
    signals.send("nobody")
    with signals.subscribe("a"):
        pass
    signals.send("a")
    await signals.aclose()
    with signals.subscribe("a") as subscription:  # it may be used again
        signals.send("a")
        assert await subscription.wait(SECONDS)


class Watched(SQLiteState):
    """A state that counts looks at it."""

    looks = 0

    async def version(self) -> Version:
        self.looks += 1
        return await super().version()


async def test_the_state_is_looked_at_while_somebody_waits_and_others_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signals_module, "LOST_SECONDS", 0.01)
    state, others = Watched(), False
    asked = asyncio.Semaphore(0)

    def are_others() -> bool:
        asked.release()
        return others

    signals = StateSignals(state, are_others=are_others)
    with anyio.fail_after(SECONDS):
        with signals.subscribe("a") as subscription:
            for _ in range(3):
                await asked.acquire()
            assert state.looks == 0
            assert not await subscription.wait(0)
            others = True
            assert await subscription.wait(SECONDS)  # something may have changed before
            await state.write(_change)
            assert await subscription.wait(SECONDS)
        while signals._tasks:  # noqa: ASYNC110 - nobody waits any more
            await anyio.sleep(0.01)
    await signals.aclose()


def _change(state: Statements) -> None:
    state.remove_row("rows", "of nobody")


# In Redis


# Of two connections that the layer's library makes at the same time it forgets one, unclosed.
# Versions of Python say so in different words.
@pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@needs_redis
async def test_signals_go_on_when_redis_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_redis(tmp_path) as redis:
        await redis.stop()
        layers = [layer_in(redis.url) for _ in range(2)]
        one, other = map(ChannelSignals, layers)
        with one.subscribe("a") as here, other.subscribe("a") as there, anyio.fail_after(SECONDS):
            for _ in range(2):
                one.send("a")
                assert await here.wait(SECONDS)
                await redis.start()
                while not await there.wait():
                    one.send("a")
                await redis.stop()
        await one.aclose()
        await other.aclose()
        await redis.start()
        for layer in layers:
            await layer.flush()
    gc.collect()  # else another test is told of it
    assert caplog.text.count("do not reach other processes") <= 4  # once each time, of each
