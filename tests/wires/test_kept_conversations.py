"""Conversations that clients send whole, on a server that keeps them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import openai
import orjson
import pytest
import pytest_asyncio

from tests.support.decisions import decide_next
from tests.support.scripts import calls, says, scripted
from tests.support.server import Server, running_server
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.wires.conftest import ADD
from tests.wires.test_openai_chat import SERVER_ADD, ask, user
from tests.wires.test_user_interfaces import RUN

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSION = "X-Mochi-Session"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server in test mode that keeps the conversations of all wires."""
    folder = tmp_path_factory.mktemp("data")
    write_tools(folder / "tools", add=ADD)
    settings = {"environment": "test", "test_words_per_second": 0, "keep_wire_sessions": "true"}
    async with running_server(data_dir=folder, **settings) as running:
        yield running


async def test_conversations_are_kept_and_found_again_where_that_is_wanted(server):
    options: Any = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
    async with openai.AsyncOpenAI(**options) as client:
        history: list[Any] = [{"role": "system", "content": "Be brief."}]
        sessions = []
        script = [says("Let me see."), calls("add", a=2, b=3)], [says("It is 5.")]
        for number, question in enumerate((user(*script), user([says("Two.")]))):
            async with anyio.create_task_group() as group:
                if number == 0:
                    group.start_soon(lambda: decide_next(server, approved=True))
                answer = await ask(client, *history, question, tools=[SERVER_ADD])
            said = answer.choices[0].message.content
            history += [question, {"role": "assistant", "content": said}]
            sessions.append(answer.mochi["session_id"])
        other = await ask(client, *history[:-1])  # the last answer anew: another branch
        _, session = await server.get(f"/sessions/{sessions[0]}")
    assert sessions[0] == sessions[1] != other.mochi["session_id"]
    roles = [message["role"] for message in session["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize("path", ["/agui", "/ui/chat"])
async def test_front_ends_find_their_conversations_again(server, path):
    messages: list[Any] = []
    sessions, texts = [], []
    for answer in ("One.", "Two."):
        text = f"{path}: {scripted([says(answer)])}"
        messages.append(_message("user", text, len(messages)))
        body = {**RUN, "messages": messages, "model": "lorem"}
        body["forwardedProps"] = {"model": "lorem"}
        async with server.http.post(server.api + path, json=body) as response:
            texts.append(await response.text())
            sessions.append(response.headers[SESSION])
        messages.append(_message("assistant", answer, len(messages)))
    assert sessions[0] == sessions[1]
    assert sessions[0] in texts[0]  # the stream names it as well
    _, session = await server.get(f"/sessions/{sessions[0]}")
    said = [each["content"] for each in session["messages"] if each["role"] == "assistant"]
    assert said == ["One.", "Two."]


@pytest.mark.parametrize("named", [False, True], ids=["found again", "named"])
@pytest.mark.parametrize("path", ["/agui", "/ui/chat"])
async def test_results_of_calls_that_nobody_offered_are_the_clients(server, path, named):
    script = [calls("weather"), calls("tides")], [says("Both.")]
    question = f"{path} {named}: {scripted(*script)}"
    body: dict[str, Any] = {**RUN, "messages": [_message("user", question, 0)], "model": "lorem"}
    body["forwardedProps"] = {"model": "lorem"}
    body["tools"] = [{"name": "weather", "description": "", "parameters": {"type": "object"}}]
    if path == "/ui/chat":
        body["tools"] = [{"type": "function", "name": "weather", "inputSchema": {"type": "object"}}]
    async with server.http.post(server.api + path, json=body) as response:
        told = re.findall(
            r'"toolCallId":"([^"]+)","toolCallName"|put-available","toolCallId":"([^"]+)"',
            await response.text(),
        )
        session_id = response.headers[SESSION]
    ids = ["".join(each) for each in told]
    tools = [*zip(ids, ("weather", "tides"), strict=True)]
    done = {"type": "dynamic-tool", "state": "output-available", "input": {}, "output": "22"}
    parts = [{**done, "toolCallId": call_id, "toolName": name} for call_id, name in tools]
    asked = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for call_id, name in tools
    ]
    body["messages"].append({**_message("assistant", "", 1), "parts": parts, "toolCalls": asked})
    if path == "/agui":
        for call_id in ids:
            body["messages"].append(
                {"id": call_id, "role": "tool", "toolCallId": call_id, "content": "22"}
            )
    headers = {SESSION: session_id} if named else {}
    async with server.http.post(server.api + path, json=body, headers=headers) as response:
        assert "Both." in await response.text()
        assert response.headers[SESSION] == session_id
    _, session = await server.get(f"/sessions/{session_id}")
    results = [each["content"] for each in session["messages"] if each["role"] == "tool"]
    assert results == ["22", "22"]


def _message(role: str, text: str, number: int) -> dict[str, Any]:
    """Return a message in the forms of both wires."""
    part = {"type": "text", "text": text}
    return {"id": str(number), "role": role, "content": text, "parts": [part]}


async def test_a_conversation_with_calls_of_both_is_found_again(server):
    """A call that is decided about is told before the client's own, whatever the model says."""
    weather = {"type": "function", "name": "weather", "inputSchema": {"type": "object"}}
    script = [calls("weather", city="Rome"), calls("add", a=2, b=3)], [says("Both.")]
    parts: list[dict[str, Any]] = []
    answer = {**_message("assistant", "", 1), "parts": parts}
    messages = [_message("user", scripted(*script), 0), answer]

    async def go_on(**changes: dict[str, Any]) -> str:
        """Change parts by their tools, send all, add the answer, and return the session's id."""
        for part in parts:
            part.update(changes.get(part.get("toolName", ""), {}))
        body = {"model": "lorem", "tools": [weather, SERVER_ADD]}
        body["messages"] = messages if parts else messages[:1]
        async with server.http.post(f"{server.api}/ui/chat", json=body) as response:
            lines = [line async for line in response.content if line.startswith(b"data: {")]
        for chunk in map(orjson.loads, (line.removeprefix(b"data: ") for line in lines)):
            if chunk["type"] == "start-step":
                parts.append({"type": "step-start"})
            elif chunk["type"] == "text-delta":
                parts.append({"type": "text", "text": chunk["delta"]})
            elif chunk["type"] == "tool-input-available":
                state = {"type": "dynamic-tool", "state": "input-available"}
                parts.append({**chunk, **state})
            elif chunk["type"] == "tool-approval-request":
                approved.update(id=chunk["approvalId"])
        return str(response.headers.get(SESSION))

    approved = {"approved": True}
    session_id = await go_on()
    await go_on(add={"state": "approval-responded", "approval": approved})
    told = [part["toolName"] for part in parts if "toolName" in part]
    assert told == ["add", "weather"]
    done = {"state": "output-available"}
    assert await go_on(add={**done, "output": "5"}, weather={**done, "output": "22"}) == session_id
    messages.append(_message("user", scripted([says("Again.")]), 2))
    assert await go_on() == session_id
    _, session = await server.get(f"/sessions/{session_id}")
    said = [(each["role"], each["content"]) for each in session["messages"][1:]]
    assert sorted(said[1:3]) == [("tool", "22"), ("tool", "5")]
    assert said[3:] == [
        ("assistant", "Both."),
        ("user", messages[2]["content"]),
        ("assistant", "Again."),
    ]


async def test_a_stream_says_that_the_server_stops_while_a_call_waits(tmp_path):
    """The call waits on; that nothing more is sent must not look like the end of the answer."""
    write_tools(tmp_path / "tools", add=ADD)
    settings = {"environment": "test", "test_words_per_second": 0, "keep_wire_sessions": "true"}
    messages = [{"role": "user", "content": scripted([calls("add", a=2, b=3)])}]
    body = {"model": "lorem", "messages": messages, "stream": True, "tools": [SERVER_ADD]}
    paths = ("/v1/chat/completions", "/v1/messages", "/ollama/api/chat")
    async with running_server(data_dir=tmp_path, **settings) as server:

        async def ask_on(path: str) -> tuple[int, str]:
            limit = {"max_tokens": 100} if path == "/v1/messages" else {}
            async with server.http.post(server.url + path, json={**body, **limit}) as response:
                return response.status, await response.text()

        asking = [asyncio.ensure_future(ask_on(path)) for path in paths]
        await until(
            lambda: server.get("/confirmations"),
            lambda answer: len(answer[1]["confirmations"]) == len(paths),
        )
        await server.stop()
        for path, (status, said) in zip(paths, await asyncio.gather(*asking), strict=True):
            assert "The server is shutting down." in said, path
            assert status in (200, 503)
