"""Turns in which an MCP server asks a person, or the model, while its tool runs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.protocol.events import Event
from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.mcp import Wire, tool, until, write_config
from tests.support.turns import Bench, bench, kinds, read_all, read_until

ASKING = {"command": sys.executable, "args": ["-m", "tests.support.mcp_asking"]}
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    async with bench(tmp_path, ollama) as found:
        yield found


def use(folder: Path, **options: Any) -> None:
    write_config(folder, travel={**ASKING, "cwd": str(ROOT), "mochi": options})


async def calling(engine: Bench, ollama: FakeOllama, name: str, **arguments: Any) -> str:
    """A session whose model calls a tool of the server."""
    ollama.reply(tool_calls=[{"name": name, "arguments": arguments}])
    chosen = ToolSettings(tools=[name], execution_policy=ToolExecutionPolicy.NEVER_CONFIRM)
    return await engine.session(tool_settings=chosen)


def result_of(events: list[Event]) -> dict[str, Any]:
    [result] = [dict(event.payload()) for event in events if event.type == "tool_result"]
    return result


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_answers_a_server(
    tmp_path: Path, engine: Bench, ollama: FakeOllama, *, approved: bool
) -> None:
    use(tmp_path)
    session = await calling(engine, ollama, "travel__book", hotel="Ritz")
    ollama.reply(["Done."])
    reader = (await engine.start(session)).reader()
    [*_, asked] = await read_until(reader, "tool_input_required")
    elicitation = asked.payload()["elicitation"]
    assert elicitation["message"] == "Where to?"
    assert set(elicitation["requested_schema"]["properties"]) == {"city", "nights"}
    name = str(asked.payload()["confirmation_id"])
    await engine.chat.confirm(session, name, approved=approved, arguments={"city": "Rome"})
    result = result_of(await read_all(reader))
    assert result["success"] is approved
    if approved:
        assert result["result"] == "Ritz in Rome for 1"
    assert await engine.chat.confirmations(session) == []


async def test_two_conversations_get_each_their_own_question(
    tmp_path: Path, engine: Bench, ollama: FakeOllama
) -> None:
    """One server for both, which says for which call it asks."""
    use(tmp_path)
    readers, sessions = [], []
    for hotel in ("Ritz", "Plaza"):
        session = await calling(engine, ollama, "travel__book", hotel=hotel)
        reader = (await engine.start(session)).reader()
        await read_until(reader, "tool_input_required")
        sessions.append(session)
        readers.append(reader)
    for session, reader, city in zip(sessions, readers, ("Rome", "Oslo"), strict=True):
        [asked] = await engine.chat.confirmations(session)
        name = str(asked["confirmation_id"])
        ollama.reply(["Done."])
        await engine.chat.confirm(session, name, approved=True, arguments={"city": city})
        assert f"in {city} for" in result_of(await read_all(reader))["result"]


async def test_a_trusted_server_may_use_the_model(
    tmp_path: Path, engine: Bench, ollama: FakeOllama
) -> None:
    use(tmp_path, trusted=True)
    session = await calling(engine, ollama, "travel__suggest")
    ollama.reply(["Paris"])
    ollama.reply(["Done."])
    events = await engine.turn(session)
    assert result_of(events)["result"] == "qwen3:14b says Paris"
    assert kinds(events)[:3] == ["tool_call", "tool_sampling", "tool_result"]
    sampled = ollama.chats[1]
    assert [message["content"] for message in sampled["messages"]] == ["Be brief.", "Name a city."]
    assert sampled["options"]["num_predict"] == 20
    assert "tools" not in sampled or not sampled["tools"]
    assert [message["role"] for message in engine.stored(session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_another_server_may_not(tmp_path: Path, engine: Bench, ollama: FakeOllama) -> None:
    use(tmp_path)
    session = await calling(engine, ollama, "travel__suggest")
    ollama.reply(["Done."])
    result = result_of(await engine.turn(session))
    assert result["success"] is False
    assert len(ollama.chats) == 2


async def test_a_server_of_2025_asks_for_the_only_conversation_that_calls_it(
    tmp_path: Path, engine: Bench, ollama: FakeOllama
) -> None:
    """On the bare wire; and it is told that nobody answers where two conversations call it."""
    ask = {"do": "request", "method": "elicitation/create", "how": {
        "message": "Which?", "requestedSchema": {"type": "object", "properties": {}},
    }}  # fmt: skip
    wire = Wire(
        tmp_path / "plan",
        tools=[tool("ask"), tool("hang")],
        calls={"ask": ask, "hang": {"do": "hang"}},
    )
    write_config(tmp_path, old=wire.entry())
    session = await calling(engine, ollama, "old__ask")
    ollama.reply(["Done."])
    reader = (await engine.start(session)).reader()
    [*_, asked] = await read_until(reader, "tool_input_required")
    name = str(asked.payload()["confirmation_id"])
    await engine.chat.confirm(session, name, approved=True)
    assert result_of(await read_all(reader))["result"] == '{"action": "accept", "content": {}}'
    other = await engine.start(await calling(engine, ollama, "old__hang"))
    await until(lambda: len(wire.sent("tools/call")) == 2)
    session = await calling(engine, ollama, "old__ask")
    ollama.reply(["Done."])
    assert result_of(await engine.turn(session))["result"] == '{"action": "cancel"}'
    other.reader().leave()
