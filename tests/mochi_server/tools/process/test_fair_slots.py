"""Sessions whose calls hang leave room for others, and the log says whose line it is."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.process.output import LINES_AT_ONCE, LineAllowance
from mochi_server.tools.process.pool import FairSlots
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import write_tools
from tests.support.turns import Bench, bench, read_all, read_until

TOOLS = '''
import time

__all__ = ["hang", "say"]
__destructive__ = []


def hang() -> str:
    """Take very long."""
    time.sleep(600)


def say(text: str) -> str:
    """Print it."""
    print("begun")
    print(text, end="")
    return "said"
'''


async def call(
    engine: Bench, name: str, count: int = 1, *, prefix: str = "call_", **arguments: Any
) -> Any:
    """Start a turn of a new session, with so many calls of a tool; its reader."""
    settings = ToolSettings(tools=[name], execution_policy=ToolExecutionPolicy.NEVER_CONFIRM)
    session = await engine.session(tool_settings=settings)
    match = f"{name} of {session}"
    calls = [{"name": name, "arguments": arguments, "id": f"{prefix}{n}"} for n in range(count)]
    engine.ollama.reply(tool_calls=calls, match=match)
    engine.ollama.reply(["Well."], match=match)
    return session, (await engine.start(session, match)).reader()


async def test_a_session_runs_beside_three_whose_calls_hang(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    write_tools(tmp_path / "tools", init=TOOLS)
    async with bench(tmp_path, ollama, tool_workers=8) as engine:
        hanging = [(await call(engine, "hang", 8))[1] for _ in range(3)]
        for reader in hanging:
            await read_until(reader, "tool_call_waiting")
        _, reader = await call(engine, "say", text="x")
        events = await read_all(reader)
        assert "tool_call_waiting" not in {event.type for event in events}
        for reader in hanging:
            reader.leave()
        await engine.ended()


async def test_a_turn_that_is_stopped_leaves_no_error_of_calls_that_waited(
    tmp_path: Path, ollama: FakeOllama, caplog: pytest.LogCaptureFixture
) -> None:
    write_tools(tmp_path / "tools", init=TOOLS)
    async with bench(tmp_path, ollama, tool_workers=4) as engine:
        _, reader = await call(engine, "hang", 6)
        await read_until(reader, "tool_call_waiting")
        reader.leave()
        await engine.ended()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_what_a_call_prints_is_logged_with_session_call_and_tool(
    tmp_path: Path, ollama: FakeOllama, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mochi_server.tools.process.output")
    write_tools(tmp_path / "tools", init=TOOLS)
    async with bench(tmp_path, ollama) as engine:
        for text in ("40 %", "80 %"):
            session, reader = await call(engine, "say", text=text)
            await read_all(reader)
            lines = [record.getMessage() for record in caplog.records[-2:]]
            speaker = f"tools: say (session {session}, call call_0)"
            assert lines == [f"{speaker}: begun", f"{speaker}: {text}"]


async def test_neither_a_call_nor_its_id_can_begin_a_line_of_the_log(
    tmp_path: Path, ollama: FakeOllama, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mochi_server.tools.process.output")
    write_tools(tmp_path / "tools", init=TOOLS)
    async with bench(tmp_path, ollama) as engine:
        text = "a\x1b[2J\u2028b\u202ec\x85d"
        _, reader = await call(engine, "say", prefix="x)\n00:00 ERROR false \x1b[2J", text=text)
        await read_all(reader)
    lines = [record.getMessage() for record in caplog.records if "x)" in record.getMessage()]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert lines[1].endswith("a\\x1b[2J\\u2028b\\u202ec\\x85d")


async def test_a_slot_goes_to_the_session_that_has_the_fewest() -> None:
    slots, order = FairSlots(2), list[str]()

    async def hold(session: str) -> None:
        async with slots.slot(session):
            order.append(session)

    async with AsyncExitStack() as first:
        await first.enter_async_context(slots.slot("a"))
        async with slots.slot("b"), anyio.create_task_group() as waiting:
            for session in ("a", "c"):
                waiting.start_soon(hold, session)
                await asyncio.sleep(0)
            assert slots.must_wait("d")
            await first.aclose()
            for _ in range(3):  # the one that it was given to, and the next one
                await asyncio.sleep(0)
    assert sorted(order) == ["a", "c"]
    assert not slots.must_wait("d")


async def test_who_stops_waiting_takes_no_slot() -> None:
    slots = FairSlots(1)
    async with slots.slot("a"):
        with anyio.move_on_after(0.01):
            async with slots.slot("b"):
                pytest.fail("there is one slot")
    async with slots.slot("b"):
        assert slots.must_wait("a")


async def test_calls_that_are_cancelled_together_leave_nothing_behind() -> None:
    slots = FairSlots(4)

    async def hold() -> None:
        async with slots.slot("a"):
            await asyncio.Event().wait()

    calls = [asyncio.ensure_future(hold()) for _ in range(6)]
    await asyncio.sleep(0)
    assert slots.must_wait("a")
    for call in calls:  # those that hold a slot first: what they release is granted to nobody
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 6
    async with slots.slot("a"), slots.slot("a"), slots.slot("b"), slots.slot("c"):
        assert slots.must_wait("d")


async def test_a_call_that_is_cancelled_when_it_gets_its_slot_gives_it_back() -> None:
    slots = FairSlots(1)

    async def hold() -> None:
        async with slots.slot("b"):
            pytest.fail("it was cancelled before")

    async with slots.slot("a"):
        waiting = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert not slots.must_wait("c")


# The log of what tools print


def test_lines_are_refused_in_a_flood_and_allowed_again_later():
    now = 0.0
    allowance = LineAllowance(lambda: now)

    assert all(allowance.take() for _ in range(LINES_AT_ONCE))
    assert not allowance.take()
    assert allowance.refused == 1
    now = 1.0
    assert sum(allowance.take() for _ in range(100)) == 20
