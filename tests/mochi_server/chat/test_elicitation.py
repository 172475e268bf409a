"""Turns in which a tool asks a person while it runs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mochi_server.chat.confirmations.inbox import _answer_to
from mochi_server.errors import InvalidRequest
from mochi_server.protocol.events import Event
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions.types import ToolSettings
from tests.support.booking import WHERE, BookingTool
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import PlainSource
from tests.support.turns import Bench, bench, kinds, read_all, read_until


@pytest.fixture
async def engine(tmp_path, ollama):
    async with bench(tmp_path, ollama) as found:
        add_booking(found)
        yield found


def add_booking(engine: Bench, timeout: float | None = None) -> None:
    source, tool = PlainSource("travel"), BookingTool("book", source="travel")
    tool.timeout = timeout
    source.found = [tool]
    engine.runtime.tools.sources.append(source)


async def travelling(engine: Bench, ollama: FakeOllama) -> str:
    """A session whose model books a journey."""
    ollama.reply(tool_calls=[{"name": "book", "arguments": {"times": 3}}])
    ollama.reply(["Have a good time."])
    settings = ToolSettings(tools=["book"], execution_policy="never_confirm")
    return await engine.session(tool_settings=settings)


async def asked(engine: Bench, session: str) -> dict[str, Any]:
    [entry] = await engine.chat.confirmations(session)
    return dict(entry)


def result_of(events: list[Event]) -> str:
    [result] = [event.payload()["result"] for event in events if event.type == "tool_result"]
    return str(result)


async def test_the_answer_of_a_person_reaches_the_tool(engine, ollama):
    session = await travelling(engine, ollama)
    log = await engine.start(session)
    reader = log.reader()
    first = await read_until(reader, "tool_input_required")
    assert kinds(first) == ["tool_call", "tool_input_required"]
    event = dict(first[-1].payload())
    assert event["elicitation"] == WHERE.payload()
    entry = await asked(engine, session)
    assert (entry["confirmation_id"], entry["arguments"]) == (event["confirmation_id"], {})
    assert entry["elicitation"] == WHERE.payload()
    assert "Where\\u202e to?" in entry["shown"] == event["shown"]
    [run] = await engine.runtime.run_control.list()
    assert run["state"] == "waiting"
    name = str(entry["confirmation_id"])
    for wrong in (None, {}, {"city": "x"}, {"city": "Rome", "extra": 1}):
        with pytest.raises(InvalidRequest, match="does not fit what is asked"):
            await engine.chat.confirm(session, name, approved=True, arguments=wrong)
    with pytest.raises(InvalidRequest, match="cannot be remembered"):
        await engine.runtime.inbox.decide(
            name, approved=True, arguments={"city": "Rome"}, remember="tool"
        )
    answer = {"city": "Rome", "nights": "2"}
    await engine.chat.confirm(session, name, approved=True, arguments=answer)
    rest = await read_all(reader)
    assert kinds(rest)[:2] == ["tool_input_received", "tool_result"]
    assert result_of(rest) == "accept: {'city': 'Rome', 'nights': 2}"
    assert await engine.chat.confirmations(session) == []
    [record] = await engine.runtime.inbox.history()
    assert record.confirmation.elicitation == WHERE.payload()
    assert record.ran == {"city": "Rome", "nights": 2}


async def test_a_person_may_decline(engine, ollama):
    session = await travelling(engine, ollama)
    reader = (await engine.start(session)).reader()
    await read_until(reader, "tool_input_required")
    name = str((await asked(engine, session))["confirmation_id"])
    await engine.chat.confirm(session, name, approved=False, arguments={"city": "Rome"})
    assert result_of(await read_all(reader)) == "decline: None"


async def test_nobody_is_asked_in_a_reply_in_one_piece(engine, ollama):
    """Unless the request wants to wait."""
    session = await travelling(engine, ollama)
    reply = await engine.chat.complete(session, TurnRequest(message="Hello"))
    [call] = reply["tool_calls_executed"]
    assert call["result"] == "cancel: None"
    assert await engine.runtime.inbox.history() == []


async def test_the_time_of_a_person_is_not_the_tool_s(tmp_path, ollama):
    """The tool may run for two seconds, and nobody answers in three."""
    async with bench(tmp_path, ollama, tool_confirmation_timeout_seconds=3) as engine:
        add_booking(engine, timeout=2)
        session = await travelling(engine, ollama)
        assert result_of(await engine.turn(session)) == "cancel: None"


async def test_what_a_tool_asks_ends_with_its_call(engine, ollama):
    session = await travelling(engine, ollama)
    reader = (await engine.start(session)).reader()
    await read_until(reader, "tool_input_required")
    [run] = await engine.runtime.run_control.list()
    await engine.runtime.run_control.stop(str(run["run_id"]))
    assert await engine.chat.confirmations(session) == []
    [record] = await engine.runtime.inbox.history()
    assert (record.decision.approved, record.ran) == (False, None)
    reader.leave()
    await engine.ended()
    assert kinds(await engine.turn(session))[-1] == "done"


async def test_a_server_that_stops_does_not_keep_what_a_tool_asked(tmp_path, ollama):
    """The tool is gone with it: unlike a confirmation, its question has no answer later."""
    async with bench(tmp_path, ollama) as engine:
        add_booking(engine)
        session = await travelling(engine, ollama)
        reader = (await engine.start(session, continues=True)).reader()
        await read_until(reader, "tool_input_required")
        engine.runtime.stop()
        assert [event.type for event in await read_all(reader)][-2:] == ["error", "done"]
    async with bench(tmp_path, ollama) as engine:
        assert await engine.chat.confirmations(session) == []
        [run] = await engine.runtime.run_control.list()
        assert run["state"] == "interrupted"
        with anyio.fail_after(30):
            assert kinds(await engine.turn(session))[-1] == "done"


def test_absent_fields_of_an_answer_get_their_defaults():
    fields = {"city": {"type": "string"}, "nights": {"type": "integer", "default": 2}}
    asked = {"requested_schema": {"type": "object", "properties": fields, "required": ["city"]}}
    assert _answer_to(asked, {"city": "Rome"}) == {"city": "Rome", "nights": 2}
    assert _answer_to(asked, {"city": "Rome", "nights": 3}) == {"city": "Rome", "nights": 3}
    with pytest.raises(InvalidRequest):
        _answer_to(asked, {})
