"""What goes wrong while a socket is open: other servers, the database, the context window."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.postgresql import needs_postgresql, running_postgresql
from tests.support.server import running_server
from tests.support.sockets import Frame, SocketClient, events_of, ready_socket, text_of
from tests.support.tools import write_tools
from tests.support.waiting import until

ADD = '''
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
ASKED = {"tools": ["add"], "execution_policy": "always_confirm"}
SUM: dict[str, Any] = {"tool_calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}


async def done(client: SocketClient, run_id: str) -> list[Frame]:
    """The frames of a run that has ended."""
    while not client.is_done(run_id):
        await client.next()
    return client.of_run(run_id)


async def decide(client: SocketClient, decision: dict[str, Any]) -> None:
    """Decide, again and again until the database knows of the confirmation."""
    await until(
        lambda: client.ask("tool:approval", decision), lambda answer: answer["event"] != "error"
    )


@needs_postgresql
@pytest.mark.slow
async def test_a_run_of_another_server_is_read_and_decided_also_after_its_database_was_away(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    ollama.one_at_a_time = False
    write_tools(tmp_path / "tools", add=ADD)
    async with running_postgresql() as database:
        settings = {"data_dir": tmp_path, "ollama": ollama, "database_url": database.url}
        async with running_server(**settings) as one, running_server(**settings) as two:
            session_id = await one.new_session(tool_settings=ASKED)
            async with (
                ready_socket(one, session_id=session_id) as first,
                ready_socket(two) as second,
            ):
                for is_away in (False, True):
                    ollama.reply(**SUM, match="2 + 3")
                    ollama.reply(["It is five."], match="2 + 3")
                    started = await first.ask("message", {"message": "What is 2 + 3?"})
                    run_id = started["data"]["run_id"]
                    asked = await first.until("tool:approval_required")
                    answer = await second.ask("resume", {"run_id": run_id})
                    assert answer["data"]["state"] == "waiting"
                    seen = await second.until("tool:approval_required")
                    assert seen == asked
                    decision = {"callId": asked["data"]["callId"], "approved": True}
                    if is_away:
                        await database.stop()
                        for client in (first, second):
                            refused = await client.ask("tool:approval", decision)
                            assert refused["event"] == "error"
                            assert refused["data"]["code"] == "CONFIRMATION_UNAVAILABLE"
                        ollama.reply(["No tool."], match="Without a tool.")
                        async with ready_socket(two, model="qwen3:14b") as other:
                            frames = await other.say("Without a tool.")
                            assert text_of(frames) == "No tool."
                        await database.start()
                    await decide(second, decision)
                    frames = await done(second, run_id)
                    assert frames == await done(first, run_id)
                    assert text_of(frames) == "It is five."
                    outputs = [f["data"]["output"] for f in frames if f["event"] == "tool:output"]
                    assert outputs == ["5"], frames


@pytest.mark.slow
async def test_long_histories_cut_answers_and_lost_workspaces_are_told_and_the_socket_goes_on(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    settings = {"max_history_messages": 4, "workspace_enabled": True, "sandbox": "process"}
    async with running_server(data_dir=tmp_path, ollama=ollama, **settings) as server:
        group = {"tool_group": "workspace", "execution_policy": "never_confirm"}
        session_id = await server.new_session(tool_settings=group)
        async with ready_socket(server, session_id=session_id) as client:
            ollama.reply(["Once upon"], done_reason="length")
            frames = await client.say("Tell me a story.")
            assert text_of(frames) == "Once upon"
            assert events_of(frames)[-2:] == ["message_complete", "done"]
            assert frames[-2]["data"]["finish_reason"] == "length"

            arguments = {"path": "a.txt", "content": "first\n"}
            ollama.reply(tool_calls=[{"name": "workspace__write_file", "arguments": arguments}])
            ollama.reply(["Written."])
            assert text_of(await client.say("Write.")) == "Written."
            folder = tmp_path / "workspaces" / session_id
            assert (folder / "a.txt").exists()
            status, _ = await server.post("/mcp/workspace/restart")  # it idled
            assert status == 200
            shutil.rmtree(folder)  # it was pruned
            for reply in ("workspace__list_files", "workspace__write_file"):
                more = arguments if reply.endswith("write_file") else {}
                ollama.reply(tool_calls=[{"name": reply, "arguments": more}])
            ollama.reply(["There is a new one."])
            frames = await client.say("What is there?")
            outputs = [f["data"]["output"] for f in frames if f["event"] == "tool:output"]
            assert outputs == ["[No files.]", "Created a.txt (6 bytes)."]
            assert text_of(frames) == "There is a new one."

            shortened = [f["data"] for f in frames if f["event"] == "history_shortened"]
            assert shortened
            assert shortened[-1]["dropped_messages"] > 0
            sent = ollama.chats[-1]["messages"]
            assert not any("story" in str(message["content"]) for message in sent)
            _, session = await server.get(f"/sessions/{session_id}")
            assert session["messages"][0]["content"] == "Tell me a story."


BREAK = '''
def fail() -> str:
    """Raise an error."""
    raise ValueError("there is no paper")


def leave() -> str:
    """End the process."""
    raise SystemExit(3)
'''


async def test_a_tool_that_fails_stops_no_other_call(tmp_path: Path, ollama: FakeOllama) -> None:
    write_tools(tmp_path / "tools", add=ADD, broken=BREAK)
    never = {"tools": ["add", "fail", "leave"], "execution_policy": "never_confirm"}
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session_id = await server.new_session(tool_settings=never)
        async with ready_socket(server, session_id=session_id) as client:
            calls = [
                {"name": "fail", "arguments": {}},
                {"name": "add", "arguments": {"a": 2, "b": 3}},
                {"name": "leave", "arguments": {}},
            ]
            ollama.reply(tool_calls=calls)
            ollama.reply(["One of three."])
            frames = await client.say("Try all.")
            errors = [frame["data"] for frame in frames if frame["event"] == "agent:error"]
            assert {error["name"] for error in errors} == {"fail", "leave"}
            assert "there is no paper" in str(errors)
            outputs = [frame["data"] for frame in frames if frame["event"] == "tool:output"]
            assert [(each["name"], each["output"]) for each in outputs] == [("add", "5")]
            assert text_of(frames) == "One of three."


async def test_a_run_of_another_process_on_the_folder_is_decided_and_stopped(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    ollama.one_at_a_time = False
    write_tools(tmp_path / "tools", add=ADD)
    settings = {"data_dir": tmp_path, "ollama": ollama}
    async with running_server(**settings) as one, running_server(**settings) as two:
        session_id = await one.new_session(tool_settings=ASKED)
        async with ready_socket(one, session_id=session_id) as first, ready_socket(two) as second:
            ollama.reply(**SUM, match="2 + 3")
            ollama.reply(["It is five."], match="2 + 3")
            started = await first.ask("message", {"message": "What is 2 + 3?"})
            run_id = started["data"]["run_id"]
            asked = await first.until("tool:approval_required")
            await second.ask("resume", {"run_id": run_id})
            assert await second.until("tool:approval_required") == asked
            decision = {"callId": asked["data"]["callId"], "approved": True}
            assert (await second.ask("tool:approval", decision))["event"] == "reply"
            assert await done(second, run_id) == await done(first, run_id)
            assert text_of(first.of_run(run_id)) == "It is five."

            ollama.reply(**SUM, match="stop it")
            started = await first.ask("message", {"message": "Ask, and I stop it."})
            run_id = started["data"]["run_id"]
            await first.until("tool:approval_required")
            await second.ask("resume", {"run_id": run_id})
            stopped = await second.ask("stop", {"run_id": run_id})
            assert stopped["data"]["state"] == "stopped"
            assert await done(second, run_id) == await done(first, run_id)
            _, runs = await two.get(f"/runs?session_id={session_id}")
            states = {run["run_id"]: run["state"] for run in runs["runs"]}
            assert states[run_id] == "stopped"
