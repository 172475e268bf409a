"""Conversations over the WebSocket, alone and beside other wires: events, decisions, runs."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import ollama
import openai
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.server import Server, running_server
from tests.support.sockets import events_of, ready_socket, socket, text_of
from tests.support.tools import write_tools
from tests.wires.conftest import ADD

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = scripted([thinks("Hm.", "Hello there.")])
SUM = scripted([calls("add", a=2, b=3)], [says("It is five.")])
ASKED = {"tools": ["add", "fail"], "execution_policy": "always_confirm"}


def several(*names: str) -> dict[str, Any]:
    """Calls in one reply."""
    one = [{"name": name, "args": {"a": 1, "b": 2}} for name in names]
    return {"tool_call": [{**call, "id": f"call_{at}"} for at, call in enumerate(one)]}


async def test_a_message_creates_the_session_and_streams_the_answer(server: Server) -> None:
    async with socket(server, model="qwen3:14b") as client:
        ready = {"provider": "test", "model": "qwen3:14b"}
        assert await client.next() == {"event": "system:ready", "data": ready}
        frames = await client.say(HELLO, think=True)
        assert events_of(frames) == [
            *("run_start", "thinking_delta", "content_delta"),
            *("message_complete", "done"),
        ]
        assert [frame["id"] for frame in frames] == [1, 2, 3, 4, 5]
        assert text_of(frames) == "Hello there."
        session_id = frames[0]["data"]["session_id"]
        _, session = await server.get(f"/sessions/{session_id}")
        assert session["messages"][-1]["content"] == "Hello there."

        frames = await client.say(scripted([says("Again.")]))
        assert frames[0]["data"]["session_id"] == session_id


async def test_without_a_model_a_new_session_has_the_first_one(server: Server) -> None:
    async with socket(server) as client:
        assert await client.next() == {"event": "system:ready", "data": {"provider": "test"}}
        _, models = await server.get("/models")
        frames = await client.say(HELLO)
        assert frames[0]["data"]["model"] == models["models"][0]["name"]


async def test_every_socket_is_told_of_an_mcp_server_that_is_added(server: Server) -> None:
    entry = {"command": "no-such-program"}
    async with ready_socket(server) as one, ready_socket(server, model="qwen3:14b") as other:
        status, _ = await server.post("/mcp/add", {"name": "new", "config": entry})
        assert status == 201
        for client in (one, other):
            data = (await client.until("mcpAdded"))["data"]
            assert data["server"] == "new"
            assert {*data} == {"server", "state", "last_error"}
        frames = await other.say(HELLO)
        assert text_of(frames) == "Hello there."
    assert await server.request("DELETE", "/mcp/new") == (204, None)


async def test_a_model_in_the_query_answers_instead_of_the_sessions(server: Server) -> None:
    session_id = await server.new_session("lorem")
    async with socket(server, session_id=session_id, model="qwen3:14b") as client:
        data = {"provider": "test", "model": "qwen3:14b", "session_id": session_id}
        assert (await client.next())["data"] == data
        frames = await client.say(HELLO)
        assert frames[0]["data"]["model"] == "qwen3:14b"
    async with ready_socket(server, session_id=session_id) as client:
        assert client.frames[0]["data"]["model"] == "lorem"


async def test_calls_are_asked_about_one_after_the_other_and_run_when_all_are_decided(
    server: Server,
) -> None:
    session_id = await server.new_session(tool_settings=ASKED)
    message = scripted([several("add", "add", "fail")], [says("Done.")])
    async with ready_socket(server, session_id=session_id) as client:
        await client.send("message", {"message": message})
        for position, approved in enumerate((True, False, True), start=1):
            asked = (await client.until("tool:approval_required"))["data"]
            call_id = f"call_{position - 1}"
            assert (asked["name"], asked["callId"]) == ("fail" if position == 3 else "add", call_id)
            assert (asked["queuePosition"], asked["totalInQueue"]) == (position, 3)
            assert asked["args"] == {"a": 1, "b": 2}
            assert "tool:output" not in events_of(client.frames)
            await client.send("tool:approval", {"callId": call_id, "approved": approved})
        await client.until("done")
        results = {
            frame["data"]["callId"]: (frame["event"], frame["data"])
            for frame in client.frames
            if frame["event"] in {"tool:output", "agent:error"}
        }
        assert {*results} == {"call_0", "call_1", "call_2"}
        event, data = results["call_0"]
        assert (event, data["name"], data["output"]) == ("tool:output", "add", "3")
        event, data = results["call_1"]
        assert (event, data["code"]) == ("agent:error", "TOOL_EXECUTION_DENIED")
        event, data = results["call_2"]
        assert event == "agent:error"
        assert "out of order" in data["message"]
        assert text_of(client.frames) == "Done."


async def test_calls_may_follow_calls_and_arguments_be_changed(server: Server) -> None:
    session_id = await server.new_session(tool_settings=ASKED)
    message = scripted([calls("add", a=2, b=3)], [calls("add", a=5, b=5)], [says("Done.")])
    async with ready_socket(server, session_id=session_id) as client:
        await client.send("message", {"message": message})
        for expected, changes in (("7", {"arguments": {"a": 3, "b": 4}}), ("10", {})):
            asked = (await client.until("tool:approval_required"))["data"]
            assert (asked["queuePosition"], asked["totalInQueue"]) == (1, 1)
            decision = {"callId": asked["callId"], "approved": True, **changes}
            await client.send("tool:approval", decision)
            assert (await client.until("tool:output"))["data"]["output"] == expected
        await client.until("done")


async def test_a_decision_about_nothing_is_an_error_and_the_socket_stays(server: Server) -> None:
    async with ready_socket(server, model="qwen3:14b") as client:
        answer = await client.ask("tool:approval", {"callId": "call_none", "approved": True})
        assert (answer["event"], answer["data"]["code"]) == ("error", "CONFIRMATION_NOT_FOUND")
        assert text_of(await client.say(HELLO)) == "Hello there."


async def test_any_socket_or_request_decides_once_and_all_are_told(server: Server) -> None:
    session_id = await server.new_session(tool_settings=ASKED)
    async with (
        ready_socket(server, session_id=session_id) as first,
        ready_socket(server) as second,
        ready_socket(server) as third,
    ):
        reply = await first.ask("message", {"message": SUM})
        run_id = reply["data"]["run_id"]
        assert (await first.until("tool:approval_required"))["run_id"] == run_id
        async with socket(server, session_id=session_id) as late:
            ready = await late.next()
            assert ready["data"]["run_id"] == run_id
        for client in (second, third):
            reply = await client.ask("resume", {"run_id": run_id})
            assert reply["data"] == {"run_id": run_id, "session_id": session_id, "state": "waiting"}
            await client.until("tool:approval_required")
        reply = await second.ask("tool:approval", {"callId": "call_add", "approved": True})
        assert reply["event"] == "reply"
        reply = await third.ask("tool:approval", {"callId": "call_add", "approved": False})
        assert reply["data"]["code"] == "CONFIRMATION_NOT_FOUND"
        for client in (first, second, third):
            while not client.is_done(run_id):
                await client.next()
        streams = [client.of_run(run_id) for client in (first, second, third)]
        assert streams[0] == streams[1] == streams[2]
        (decided,) = [f for f in streams[0] if f["event"] == "tool_call_confirmation_decided"]
        assert decided["data"]["approved"] is True

        sse = [event async for event in server.events(f"/runs/{run_id}/events")]
        assert [int(event.id or 0) for event in sse] == [frame["id"] for frame in streams[0]]


async def test_a_confirmation_can_be_decided_by_its_own_id_on_a_socket_that_does_not_read(
    server: Server,
) -> None:
    session_id = await server.new_session(tool_settings=ASKED)
    async with (
        ready_socket(server, session_id=session_id) as reader,
        ready_socket(server) as inbox,
    ):
        await reader.send("message", {"message": SUM})
        asked = (await reader.until("tool:approval_required"))["data"]
        decision = {"callId": asked["confirmation_id"], "approved": False, "reason": "Not now."}
        assert (await inbox.ask("tool:approval", decision))["event"] == "reply"
        error = (await reader.until("agent:error"))["data"]
        assert error["code"] == "TOOL_EXECUTION_DENIED"
        await reader.until("done")


async def decided_elsewhere(one: Server, other: Server, *, closes: bool) -> None:
    """Decide by the id of a call on a socket that was not told of it."""
    settings = ASKED | {"tools": ["add"]}
    session_id = await one.new_session("qwen3:14b", tool_settings=settings)
    async with ready_socket(one, session_id=session_id) as first:
        started = await first.ask("message", {"message": SUM, "on_disconnect": "continue"})
        asked = await first.until("tool:approval_required")
        if closes:
            await first.connection.close()
        async with ready_socket(other, session_id=session_id) as later:
            decision = {"callId": asked["data"]["callId"], "approved": True}
            answer = await later.ask("tool:approval", decision)
            assert answer["event"] == "reply", answer
            path = f"/runs/{started['data']['run_id']}/events"
            ended = [event.event async for event in one.events(path)]
            assert ended[-2:] == ["message_complete", "done"]
            answer = await later.ask("tool:approval", decision)
            assert answer["data"]["code"] == "CONFIRMATION_NOT_FOUND"


@pytest.mark.parametrize("closes", [False, True])
async def test_a_call_is_decided_by_its_id_on_a_later_socket(server: Server, closes: bool) -> None:
    await decided_elsewhere(server, server, closes=closes)


async def test_a_call_is_decided_by_its_id_at_another_process(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", add=ADD)
    async with FakeOllama() as ollama, AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(running_server(data_dir=tmp_path, ollama=ollama))
            for _ in range(2)
        ]
        ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 2, "b": 3}}])
        await decided_elsewhere(one, other, closes=False)


async def test_a_run_is_read_again_after_a_number(server: Server) -> None:
    async with ready_socket(server, model="qwen3:14b") as client:
        frames = await client.say(HELLO)
        run_id = frames[0]["run_id"]
    async with ready_socket(server) as client:
        await client.send("resume", {"run_id": run_id, "after": 2})
        await client.until("done")
        assert client.of_run(run_id) == frames[2:]
        reply = await client.ask("resume", {"run_id": run_id, "after": frames[-1]["id"]})
        assert reply["data"]["state"] == "done"
        reply = await client.ask("resume", {"run_id": "run_none"})
        assert (reply["event"], reply["data"]["code"]) == ("error", "RUN_NOT_FOUND")


async def test_a_run_is_stopped_and_keeps_what_it_has_said(server: Server) -> None:
    session_id = await server.new_session(tool_settings=ASKED)
    message = scripted([says("Let me see."), calls("add", a=2, b=3)], [says("Done.")])
    async with ready_socket(server, session_id=session_id) as client:
        await client.send("message", {"message": message})
        await client.until("tool:approval_required")
        reply = await client.ask("stop")
        assert reply["data"]["state"] == "stopped"
        assert reply["data"]["message"]["content"] == "Let me see."
        frames = client.frames
        while not client.is_done(reply["data"]["run_id"]):
            await client.next()
        assert frames[-1]["event"] in {"done", "reply"}
    async with ready_socket(server, model="qwen3:14b") as client:
        assert (await client.ask("stop"))["data"]["code"] == "RUN_NOT_FOUND"


async def test_a_socket_that_switches_leaves_the_run_to_go_on(server: Server) -> None:
    one = await server.new_session("qwen3:14b", tool_settings=ASKED)
    other = await server.new_session("lorem")
    async with ready_socket(server, session_id=one) as client:
        reply = await client.ask("message", {"message": SUM})
        run_id = reply["data"]["run_id"]
        asked = await client.until("tool:approval_required")
        reply = await client.ask("session:switch", {"session_id": other})
        data = {"provider": "test", "model": "lorem", "session_id": other}
        assert reply["data"] == data
        assert client.frames[-2] == {"event": "session:switched", "data": data}
        assert text_of(await client.say(scripted([says("Elsewhere.")]))) == "Elsewhere."
        decision = {"callId": asked["data"]["confirmation_id"], "approved": True}
        assert (await client.ask("tool:approval", decision))["event"] == "reply"
        reply = await client.ask("session:switch", {"session_id": "none"})
        assert (reply["event"], reply["data"]["code"]) == ("error", "SESSION_NOT_FOUND")
        assert text_of(await client.say(scripted([says("Still.")]))) == "Still."
        ended = [event.event async for event in server.events(f"/runs/{run_id}/events")]
        assert ended[-2:] == ["message_complete", "done"]


async def test_a_run_in_a_queue_is_read_when_it_begins(server: Server) -> None:
    session_id = await server.new_session(tool_settings=ASKED)
    async with ready_socket(server, session_id=session_id) as client:
        await client.send("message", {"message": SUM})
        await client.until("tool:approval_required")
        busy = await client.ask("message", {"message": HELLO})
        assert (busy["event"], busy["data"]["code"]) == ("error", "SESSION_BUSY")
        queued = await client.ask("message", {"message": HELLO, "when_busy": "queue"})
        assert queued["data"]["state"] == "queued"
        await client.send("tool:approval", {"callId": "call_add", "approved": True})
        while not client.is_done(queued["data"]["run_id"]):
            await client.next()
        frames = client.of_run(queued["data"]["run_id"])
        assert text_of(frames) == "Hello there."


async def test_a_socket_that_is_idle_reads_the_runs_that_others_begin_in_its_session(
    server: Server,
) -> None:
    session_id, other = await server.new_session(), await server.new_session()
    before = {"message": scripted([says("Before.")])}
    assert (await server.post(f"/chat/{session_id}", before))[0] == 200
    async with (
        ready_socket(server, session_id=session_id) as idle,
        ready_socket(server, session_id=session_id) as busy,
        ready_socket(server, session_id=other) as elsewhere,
    ):
        runs = []
        for text in ("Own.", "Again."):
            frames = await busy.say(scripted([says(text)]))
            runs.append(frames[0]["run_id"])
        for text in ("By HTTP.", "And more."):
            message = {"message": scripted([says(text)])}
            status, answer = await server.post(f"/chat/{session_id}/runs", message)
            assert status == 202, answer
            runs.append(answer["run_id"])
            for client in (idle, busy):
                while not client.is_done(runs[-1]):
                    await client.next()
        for client in (idle, busy):
            by_run = [client.of_run(run_id) for run_id in runs]
            assert [text_of(frames) for frames in by_run] == [
                *("Own.", "Again.", "By HTTP.", "And more.")
            ]
            for frames in by_run:
                assert events_of(frames)[0] == "run_start"
                assert len({frame["id"] for frame in frames}) == len(frames)
            assert {frame.get("run_id") for frame in client.frames} <= {None, *runs}
        await elsewhere.ask("session:switch", {"session_id": session_id})
        status, answer = await server.post(f"/chat/{other}", before)
        frames = await busy.say(scripted([says("Last.")]))
        while not elsewhere.is_done(frames[0]["run_id"]):
            await elsewhere.next()
        assert {f["run_id"] for f in elsewhere.frames if "run_id" in f} == {frames[0]["run_id"]}


async def test_a_refused_frame_is_named_and_changes_nothing(server: Server) -> None:
    wrong = {
        "{": ("INVALID_JSON", None),
        "[]": ("VALIDATION_ERROR", None),
        '{"event": "shout", "id": 1}': ("VALIDATION_ERROR", 1),
        '{"event": "message", "data": [], "id": "a"}': ("VALIDATION_ERROR", "a"),
        '{"event": "message", "data": {"message": " "}, "id": "b"}': ("VALIDATION_ERROR", "b"),
        '{"event": "message", "data": {}, "id": "c"}': ("EMPTY_HISTORY", "c"),
        '{"event": "message", "data": {"text": "Hi"}, "id": {}}': ("VALIDATION_ERROR", None),
        '{"event": "resume", "data": {"run_id": "r", "after": -1}}': ("VALIDATION_ERROR", None),
        "[" * 100_000: ("VALIDATION_ERROR", None),
    }
    async with ready_socket(server, model="qwen3:14b") as client:
        for text, (code, frame_id) in wrong.items():
            await client.connection.send(text)
            frame = await client.next()
            assert (frame["event"], frame["data"]["code"]) == ("error", code), (text[:80], frame)
            assert frame.get("reply_to") == frame_id, text[:80]
        await client.connection.send(json.dumps({"event": "ping", "id": 5}).encode())
        assert await client.next() == {"event": "pong", "data": {}, "reply_to": 5}
        assert text_of(await client.say(HELLO)) == "Hello there."


async def test_a_failure_in_mid_reply_is_an_error_of_the_run(server: Server) -> None:
    message = scripted([says("One two three."), fails(500, "Gone.", after_words=2)])
    async with ready_socket(server, model="qwen3:14b") as client:
        frames = await client.say(message)
        assert events_of(frames)[-2:] == ["error", "done"]
        assert frames[-2]["data"]["code"] == "PROVIDER_ERROR"


async def test_a_deleted_session_and_a_message_that_is_too_long_are_errors(server: Server) -> None:
    session_id = await server.new_session("qwen3:14b")
    async with ready_socket(server, session_id=session_id) as client:
        answer = await client.ask("message", {"message": "word " * 100_000})
        assert (answer["event"], answer["data"]["code"]) == ("error", "CONTEXT_OVERFLOW")
        await server.request("DELETE", f"/sessions/{session_id}")
        answer = await client.ask("message", {"message": HELLO})
        assert (answer["event"], answer["data"]["code"]) == ("error", "SESSION_NOT_FOUND")
        await client.ask("session:switch", {"model": "qwen3:14b"})
        assert text_of(await client.say(HELLO)) == "Hello there."


async def test_without_the_key_of_its_provider_a_socket_is_closed(tmp_path: Path) -> None:
    async with running_server(data_dir=tmp_path) as server:
        async with socket(server, model="anthropic/claude") as client:
            error = await client.next()
            assert (error["event"], error["data"]["code"]) == ("error", "PROVIDER_NOT_CONFIGURED")
            assert await client.closed() == (1011, "PROVIDER_NOT_CONFIGURED")
        async with ready_socket(server) as client:
            answer = await client.ask("session:switch", {"model": "anthropic/claude"})
            assert answer["data"]["code"] == "PROVIDER_NOT_CONFIGURED"
            await client.send("ping")
            await client.until("pong")


async def test_what_is_said_on_one_wire_is_heard_on_all_others(server: Server) -> None:
    """Begun over OpenAI's, continued over Ollama's, decided on the socket, read everywhere."""
    hello = scripted([says("Hello there.")])
    added = scripted([says("Let me see. "), calls("add", a=2, b=3)], [says("It is five.")])
    options: dict[str, Any] = {"api_key": "none", "max_retries": 0}
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", **options) as client:
        begun: Any = await client.chat.completions.create(
            model="lorem",
            messages=[{"role": "user", "content": hello}],
            extra_headers={"X-Mochi-Session": "new"},
        )
        session_id = begun.mochi["session_id"]
        asked = {"tools": ["add"], "execution_policy": "always_confirm"}
        status, _ = await server.request(
            "PATCH", f"/sessions/{session_id}", {"tool_settings": asked}
        )
        assert status == 200
        told: list[str] = []

        async def go_on() -> None:
            headers = {"X-Mochi-Session": session_id}
            own = ollama.AsyncClient(host=f"{server.url}/ollama", headers=headers)
            question = {"role": "user", "content": added}
            stream = await own.chat("lorem", [question], stream=True)
            told.extend([part.message.content or "" async for part in stream])
            await own.close()

        async with (
            ready_socket(server, session_id=session_id) as person,
            anyio.create_task_group() as group,
        ):
            group.start_soon(go_on)
            question = (await person.until("tool:approval_required"))["data"]
            assert (question["name"], question["args"]) == ("add", {"a": 2, "b": 3})
            decision = {"callId": question["confirmation_id"], "approved": True}
            await person.send("tool:approval", decision)
            assert (await person.until("tool:output"))["data"]["output"] == "5"
            done = await person.until("done")
        heard = text_of(person.of_run(done["run_id"]))
        assert heard == "Let me see. It is five."
        assert "".join(told).split() == heard.split()

        _, session = await server.get(f"/sessions/{session_id}")
        assert [(message["role"], message["content"]) for message in session["messages"]] == [
            *(("user", hello), ("assistant", begun.choices[0].message.content)),
            *(("user", added), ("assistant", "Let me see. "), ("tool", "5")),
            ("assistant", "It is five."),
        ]
        items = await client.conversations.items.list(session_id, order="asc")
        texts = [
            part.text
            async for item in items
            if item.type == "message"
            for part in item.content
            if part.type in {"input_text", "output_text"}
        ]
        assert texts == [
            message["content"] for message in session["messages"] if message["role"] != "tool"
        ]
        _, listed = await server.get("/sessions", params={"query": "five"})
        assert session_id in {each["session_id"] for each in listed["sessions"]}
