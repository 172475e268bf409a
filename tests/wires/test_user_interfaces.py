"""Packages of npm against a real server: front ends of AG-UI and Vercel, OpenAI's clients."""

from __future__ import annotations

import asyncio
import json
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import pytest_asyncio

from tests.support.images import png
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.server import Server

HERE = Path(__file__).parent / "node"
LIMIT_SECONDS = 240

pytestmark = pytest.mark.asyncio(loop_scope="module")
node = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed"
)


async def run(*command: str, cwd: Path) -> str:
    """Run a program and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, error.decode()
    return out.decode()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs and the packages that they use."""
    folder = tmp_path_factory.mktemp("npm") / "node"
    shutil.copytree(HERE, folder)
    await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    return folder


async def said(packages: Path, program: str, server: Server, **questions: str) -> Any:
    return json.loads(await run("node", program, server.url, json.dumps(questions), cwd=packages))


def calls_of(*arguments: tuple[int, int]) -> dict[str, Any]:
    """Several calls of ``add`` in one reply."""
    return {
        "tool_call": [
            {"name": "add", "args": {"a": a, "b": b}, "id": f"call_{a}_{b}"} for a, b in arguments
        ]
    }


ASKED = scripted([thinks("Hm.", "Hello there.")])
CALLED = scripted([calls("weather", city="Rome")], [says("Sunny.")])
SUM = scripted([says("Let me see."), calls("add", a=2, b=3)], [says("Done.")])
FAILED = scripted([says("One two three."), fails(500, "Gone.", after_words=2)])
SUM_CALL = {"role": "assistant", "content": "Let me see.", "calls": [["add", '{"a":2,"b":3}']]}


@node
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 60)
async def test_conversations_over_ag_ui(server: Server, packages: Path) -> None:
    came = await said(
        packages, "agui.js", server, asked=ASKED, called=CALLED, summed=SUM, failed=FAILED
    )
    streams = came["streams"]
    texts = [(each["role"], each["content"]) for each in streams["messages"][1:]]
    assert texts == [("reasoning", "Hm."), ("assistant", "Hello there.")]
    assert streams["events"][0] == "RUN_STARTED"
    assert streams["events"][-1] == "RUN_FINISHED"
    assert streams["result"]["dropped_messages"] == 0

    weather = [{"role": "assistant", "calls": [["weather", '{"city":"Rome"}']]}]
    weather.append({"role": "tool", "content": "22 degrees"})
    weather.append({"role": "assistant", "content": "Sunny."})
    assert came["client"][1:] == came["session"][1:] == weather

    done = {"role": "assistant", "content": "Done."}
    for name, result in {
        "edited": "23",
        "denied": "Error: the user denied this call. Reason: No.",
        "cancelled": "Error: the user denied this call. Reason: The user has not answered.",
    }.items():
        messages = [SUM_CALL, {"role": "tool", "content": result}, done]
        assert came[name] == {"reasons": ["tool_call"], "messages": messages}

    assert came["failed"] == {"message": "Provider 'test': Gone.", "code": "PROVIDER_ERROR"}
    assert came["refused"] == 404


@node
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 60)
async def test_conversations_over_the_ui_message_stream(server: Server, packages: Path) -> None:
    both = scripted([calls("weather", city="Rome"), calls("add", a=2, b=3)], [says("Both.")])
    twice = scripted([calls_of((1, 1))], [calls_of((2, 2), (3, 3))], [says("Done.")])
    came = await said(
        packages,
        "vercel.js",
        server,
        asked=ASKED,
        called=CALLED,
        both=both,
        twice=twice,
        denied=SUM,
        failed=FAILED,
    )
    step = {"type": "step-start"}
    weather = {
        "type": "tool-weather",
        "state": "output-available",
        "input": {"city": "Rome"},
        "output": {"degrees": 22},
    }

    def text(said: str, kind: str = "text") -> dict[str, str]:
        return {"type": kind, "text": said, "state": "done"}

    def added(a: int, b: int) -> dict[str, Any]:
        called = {"type": "dynamic-tool", "toolName": "add", "input": {"a": a, "b": b}}
        return {**called, "state": "output-available", "output": str(a + b)}

    denied = {**added(2, 3), "state": "output-denied"}
    del denied["output"]
    parts = {
        "streams": [step, text("Hm.", "reasoning"), text("Hello there.")],
        "client": [step, weather, step, text("Sunny.")],
        "session": [step, added(2, 3), weather, step, text("Both.")],
        "twice": [step, added(1, 1), step, added(2, 2), added(3, 3), step, text("Done.")],
        "denied": [step, text("Let me see."), denied, step, text("Done.")],
        "failed": [step, text("One two")],
    }
    assert {name: each["parts"] for name, each in came.items()} == parts
    assert {name: len(each["asked"]) for name, each in came.items() if each["asked"]} == {
        "session": 1,
        "twice": 3,
        "denied": 1,
    }
    assert all(each["messages"] == 2 for each in came.values())
    assert came["streams"]["metadata"]["usage"]["outputTokens"] > 0
    assert came["failed"]["error"] == "Provider 'test': Gone."
    session_id = came["session"]["metadata"]["mochi"]["session_id"]
    _, session = await server.get(f"/sessions/{session_id}")
    roles = [message["role"] for message in session["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


@node
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 60)
async def test_conversations_by_clients_of_openai(server: Server, packages: Path) -> None:
    came = await said(
        packages,
        "openai.js",
        server,
        asked=ASKED,
        called=CALLED,
        added=SUM,
        slow=scripted([says("One two three."), {"stall": {"seconds": 0.5}}, says("Four.")]),
        pixel=f"data:image/png;base64,{b64encode(png()).decode()}",
    )
    for each in came.values():
        assert (each["streamed"], each["called"]) == ("Hello there.", "Sunny.")
        assert each["seen"].endswith("[files: 1]")
        assert list(each["formed"]) == ["town"]
    assert came["openai"]["decided"] == ["mcp_call", "message"]
    assert came["openai"]["resumed"] == "One two three.\n\nFour."
    assert came["ai"]["thought"] == "Hm."
    assert came["ai"]["tokens"] > 0


RUN = {"threadId": "thread", "runId": "run", "tools": [], "context": []}


async def ask(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=60) as client:
        return await client.post(path, json=body)


async def ask_agent(server: Server, text: str, *, resume: Any = None, **props: Any) -> list[Any]:
    """Run an agent of AG-UI and return its events."""
    body = {**RUN, "messages": [{"id": "1", "role": "user", "content": text}]}
    body["forwardedProps"] = {"model": "lorem", **props}
    answer = await ask(server, "/agui", body if resume is None else {**body, "resume": resume})
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line]


def answer_to(events: list[Any], **payload: Any) -> list[Any]:
    [interrupt] = events[-1]["outcome"]["interrupts"]
    assert interrupt["toolCallId"] == "call_add"
    return [{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}]


def text_of(events: list[Any]) -> str:
    kind = "TEXT_MESSAGE_CONTENT"
    return "".join(each["delta"] for each in events if each["type"] == kind)


async def test_a_run_whose_session_is_not_kept_waits_for_a_decision(server):
    asked = await ask_agent(server, SUM, tools=["add"])
    kept = await ask_agent(server, SUM, tools=["add"], session_id="new")
    kept_run = kept[0]["metadata"]["mochi"]["run_id"]
    with anyio.fail_after(30):  # until the server has let the other run go
        while True:
            if any("Turn waits" in line and kept_run in line for line in server.output):
                break
            await anyio.sleep(0.02)
    for events in (asked, kept):
        answer = answer_to(events, approved=True, editedArgs={"a": 20, "b": 3})
        done = await ask_agent(server, "", resume=answer)
        [result] = [each for each in done if each["type"] == "TOOL_CALL_RESULT"]
        assert result["content"] == "23"
        assert text_of(done) == "Done."
        again = await ask_agent(server, "", resume=answer)
        assert text_of(again) == "Done."


async def test_answers_that_do_not_fit_leave_the_run_waiting(server):
    asked = await ask_agent(server, SUM, tools=["add"])
    answer = answer_to(asked, approved=True)
    for entry in (
        {"payload": {}},
        {"payload": {"approved": "yes"}},
        {"payload": {"approved": True, "editedArgs": {"a": "x"}}},
        {"payload": {"approved": True, "editedArgs": 5}},
        {"interruptId": "conf_1"},
    ):
        refused = await ask(
            server, "/agui", {**RUN, "messages": [], "resume": [{**answer[0], **entry}]}
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
    done = await ask_agent(server, "", resume=answer)
    assert text_of(done) == "Done."


@pytest.mark.parametrize("path", ["/agui", "/ui/chat"])
async def test_bad_bodies_are_refused(server, path):
    question = {"id": "1", "role": "user", "content": "Hi", "parts": []}
    body = {**RUN, "model": "lorem", "messages": [question], "forwardedProps": {"model": "lorem"}}
    for change in (
        {"messages": [{**question, "role": "robot"}]},
        {"messages": "none"},
        {"model": None, "forwardedProps": {}},
        {"options": {"temperature": -1}, "forwardedProps": {"options": {"temperature": -1}}},
    ):
        refused = await ask(server, path, {**body, **change})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
    named = {"model": "lorem", "session_id": "0123456789"}
    assert (await ask(server, path, {**body, **named, "forwardedProps": named})).status_code == 404


async def test_images_reach_the_model(server):
    pixel = b64encode(png()).decode()
    source = {"type": "data", "value": pixel, "mimeType": "image/png"}
    text = scripted([says("A pixel.")])
    parts = [{"type": "text", "text": text}, {"type": "image", "source": source}]
    shown = {"id": "1", "role": "user", "content": parts}
    props = {"model": "lorem", "session_id": "new"}
    agent = await ask(server, "/agui", {**RUN, "messages": [shown], "forwardedProps": props})
    file = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{pixel}"}
    message = {"id": "1", "role": "user", "parts": [parts[0], file]}
    chat = await ask(server, "/ui/chat", {**props, "messages": [message]})
    assert chat.headers["x-vercel-ai-ui-message-stream"] == "v1"
    for answer in (agent, chat):
        _, session = await server.get(f"/sessions/{answer.headers['X-Mochi-Session']}")
        [attached] = session["messages"][0]["attachments"]
        assert attached["media_type"] == "image/png"
    file["url"] = "https://example.com/cat.png"
    refused = await ask(server, "/ui/chat", {**props, "messages": [message]})
    assert refused.status_code == 400


@pytest.mark.parametrize("path", ["/agui", "/ui/chat"])
async def test_presets_and_forms_of_answers(server, path):
    preset = {"model": "lorem-plain", "system_prompt": "Be brief."}
    status, _ = await server.request("PUT", "/presets/short", preset)
    assert status < 300
    schema = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
    form = {"type": "json_schema", "json_schema": {"name": "town", "schema": schema}}
    props = {"model": "preset/short", "session_id": "new", "response_format": form}
    part = {"type": "text", "text": "Which town?"}
    message = {"id": "1", "role": "user", "content": part["text"], "parts": [part]}
    body = {**RUN, **props, "messages": [message], "forwardedProps": props}
    answer = await ask(server, path, body)
    _, session = await server.get(f"/sessions/{answer.headers['X-Mochi-Session']}")
    assert session["model"] == "preset/short"
    assert list(json.loads(session["messages"][-1]["content"])) == ["town"]
    for change, status in (
        ({"response_format": {"type": "rhyme"}}, 400),
        ({"model": "preset/none"}, 404),
    ):
        wrong = {**props, **change}
        refused = await ask(server, path, {**body, **wrong, "forwardedProps": wrong})
        assert refused.status_code == status


async def test_of_the_tools_of_both_sides_those_that_are_named_are_offered(server):
    """A function of the client, and tools of the server from two places."""
    tools = [
        {"type": "function", "name": "weather"},
        {"type": "mochi", "names": ["add"]},
        {"type": "mochi", "names": []},
    ]
    question = {"id": "1", "role": "user", "parts": [{"type": "text", "text": SUM}]}
    body = {"model": "lorem", "messages": [question], "tools": tools}
    answer = await ask(server, "/ui/chat", body)
    assert "tool-approval-request" in answer.text
