"""Agents that call tools of an MCP server, made with the SDK, through a whole server."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.agents import write_skill
from tests.support.fake_ollama import FakeOllama
from tests.support.mcp import Wire, is_running, known_to, tool, write_config
from tests.support.mcp_desk import PICTURE
from tests.support.server import ROOT, Server, running_server
from tests.support.sse import ServerEvent
from tests.support.turns import call
from tests.support.waiting import until

SECONDS = 60
DRAW_AND_BOOK = [
    {"name": "desk__draw", "arguments": {}},
    {"name": "desk__book", "arguments": {"hotel": "Ritz"}},
]
ASKED = "tool_call_confirmation_required"

pytestmark = pytest.mark.slow


def script(ollama: FakeOllama, *replies: list[dict[str, Any]]) -> None:
    """What the models say of a turn in which the agent makes calls."""
    ollama.reply(tool_calls=[call("agent", instruction="Work.")])
    ollama.reply(["I look."])
    for calls in replies:
        ollama.reply(tool_calls=calls)
    ollama.reply(["Done."])
    ollama.reply(["It is done."])


def clerk(folder: Path, tools: str) -> None:
    write_skill(folder / "agents" / "clerk", "description: The clerk.", f"tools: {tools}")


async def session(server: Server) -> str:
    return await server.new_session(
        agent_settings={"enabled_agents": ["clerk"]},
        tool_settings={"execution_policy": "confirm_destructive", "confirmation_timeout": 0},
    )


INPUT = "tool_input_required"
ANSWERS = {
    (ASKED, "desk__save"): {"arguments": {"text": "b"}},
    (INPUT, "desk__book"): {"arguments": {"city": "Rome"}},
}
"""What a person says besides yes."""


async def turn(server: Server, chosen: str, seen: Path | None = None) -> list[ServerEvent]:
    """All events of a turn; a person allows every call of the agent, and progress makes a file."""
    events = []
    async with aclosing(server.stream(f"/chat/{chosen}/stream", {"message": "Go."})) as stream:
        with anyio.fail_after(SECONDS):
            async for event in stream:
                events.append(event)
                if event.event in {ASKED, INPUT}:
                    assert event.data["agent_name"] == "clerk"
                    answer = ANSWERS.get((event.event, event.data["tool_name"]), {})
                    await decide(server, event.data, **answer)
                elif event.event == "tool_progress" and seen is not None:
                    seen.touch()
    return events


async def decide(server: Server, question: dict[str, Any], **fields: Any) -> None:
    path = f"/confirmations/{question['confirmation_id']}"
    status, body = await server.post(path, {"approved": True, **fields})
    assert status == 200, body


def of_kind(events: list[ServerEvent], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.event == kind]


def results(events: list[ServerEvent]) -> dict[str, Any]:
    found = {each["tool_name"]: each for each in of_kind(events, "agent_tool_result")}
    assert {each["agent_name"] for each in found.values()} <= {"clerk"}
    return found


async def told(stream: AsyncIterator[ServerEvent], kind: str) -> dict[str, Any]:
    with anyio.fail_after(SECONDS):
        async for event in stream:
            if event.event == kind:
                return event.data
    raise AssertionError(f"no {kind}")


async def stop_in_a_call(server: Server, chosen: str) -> None:
    """Allow the call of the agent, and stop the turn when it runs."""
    path = f"/chat/{chosen}/stream"
    async with aclosing(server.stream(path, {"message": "Go."})) as stream:
        await decide(server, await told(stream, ASKED))
        await told(stream, "tool_progress")
        assert (await server.post(f"/chat/{chosen}/stop"))[0] == 200
        await told(stream, "done")


async def check_attachment(server: Server, picture: dict[str, Any], one: str, other: str) -> None:
    for chosen, status in ((one, 200), (other, 404)):
        path = f"/sessions/{chosen}/attachments/{picture['attachment_id']}"
        async with server.http.get(server.api + path) as response:
            assert response.status == status
            assert (await response.read() == PICTURE) is (status == 200)


async def check_listing(server: Server) -> None:
    _, listed = await server.get("/agents")
    asking = "book", "suggest", "suggest_and_book", "login"
    names = *asking, "save", "look", "draw", "die", "hang"
    assert listed["agents"]["clerk"]["tools"] == [
        *("list_skill_files", "read_skill_file"),
        *(f"{prefix}__{name}" for prefix in ("desk", "own") for name in names),
    ]
    [problem] = listed["problems"]
    assert (problem["line"], problem["severity"]) == (3, "warning")
    assert "'desk__none', and the MCP server 'desk' has no such tool" in problem["reason"]
    _, agent = await server.get("/agents/clerk")
    assert agent["tool_details"]["own__look"]["destructive"] is False
    assert agent["tool_details"]["desk__look"]["destructive"] is None


async def test_an_agent_uses_servers_as_a_conversation_does(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Confirmations, questions, progress, files, sampling, a server killed in a call, a stop."""
    notes = tmp_path / "notes"
    args = ["-m", "tests.support.mcp_desk", str(notes)]
    desk = {"command": sys.executable, "args": args, "cwd": str(ROOT)}
    write_config(tmp_path, desk=desk, own={**desk, "mochi": {"trusted": True, "scope": "session"}})
    clerk(tmp_path, "desk__*, own__*, desk__none")
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        await known_to(server, "desk__hang", "own__hang")
        one, other = [await session(server) for _ in range(2)]
        script(ollama, [call("own__look"), call("desk__save", text="a"), *DRAW_AND_BOOK])
        events = await turn(server, one, notes.with_name("notes.seen"))
        first = results(events)
        assert [each["tool_name"] for each in of_kind(events, ASKED)] == [
            *("desk__save", "desk__draw", "desk__book"),  # a trusted server says that it only reads
        ]
        assert notes.read_text() == "saved b\n"
        assert first["desk__book"]["result"] == "Ritz in Rome for 1"
        progress = of_kind(events, "tool_progress")
        assert {each["agent_name"] for each in progress} == {"clerk"}
        assert "line 0" in [each["message"] for each in progress]
        [picture] = first["desk__draw"]["attachments"]
        await check_attachment(server, picture, one, other)

        ollama.reply(["Paris"], match="Name a city.")
        script(ollama, [call("own__suggest"), call("own__look")])
        events = await turn(server, other)
        second = results(events)
        assert second["own__suggest"]["result"] == "qwen3:14b says Paris"
        [sampled] = of_kind(events, "tool_sampling")
        assert sampled["agent_name"] == "clerk"
        assert second["own__look"]["result"] != first["own__look"]["result"]

        pid = int(str(first["desk__save"]["result"]).split()[-1])
        script(ollama, [call("desk__die")], [call("desk__save", text="a"), call("own__look")])
        third = results(await turn(server, one))
        assert "The MCP server 'desk' ended during the call" in third["desk__die"]["error_message"]
        assert third["desk__save"]["success"] is True
        assert third["own__look"]["result"] == first["own__look"]["result"]
        assert not is_running(pid)

        script(ollama, [call("desk__hang")])
        await stop_in_a_call(server, one)
        await until(lambda: "let go" in notes.read_text())
        await check_listing(server)
        assert await server.stop() == 0
        assert "Traceback" not in server.log, server.log


async def test_a_call_that_waits_for_a_person_goes_on_after_a_kill(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """At another process, with another one of the server; the call runs once."""
    wire = Wire(tmp_path / "plan", tools=[tool("save")])
    write_config(tmp_path, desk=wire.entry())
    clerk(tmp_path, "desk__*")
    script(ollama, [call("desk__save", text="a")])
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        await known_to(server, "desk__save")
        status, run = await server.post(f"/chat/{await session(server)}/runs", {"message": "Go."})
        assert status == 202
        path = f"/runs/{run['run_id']}/events"
        async with aclosing(server.events(path)) as stream:
            question = await told(stream, ASKED)
        await server.stop(signal.SIGKILL)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        _, waiting = await server.get("/confirmations")
        [entry] = waiting["confirmations"]
        assert (entry["agent_name"], entry["tool_source"]) == ("clerk", "mcp:desk")
        assert entry["confirmation_id"] == question["confirmation_id"]
        assert wire.sent("tools/call") == []
        await decide(server, entry, arguments={"text": "c"})
        async with aclosing(server.events(path)) as stream:
            assert (await told(stream, "agent_tool_result"))["result"] == '{"text": "c"}'
            assert (await told(stream, "agent_complete"))["success"] is True
            await told(stream, "done")
        assert len(wire.sent("tools/call")) == 1
