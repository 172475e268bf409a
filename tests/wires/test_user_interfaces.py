"""Packages of npm against a real server: front ends, and clients of OpenAI and Anthropic.

AG-UI is there twice: version 1.0, and the last one before it, which CopilotKit has.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import pytest_asyncio

from tests.support.fake_ollama import FakeOllama
from tests.support.images import png
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.server import Server, running_server
from tests.support.waiting import until

HERE = Path(__file__).parent
LIMIT_SECONDS = 240

pytestmark = pytest.mark.asyncio(loop_scope="module")
node = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed"
)


async def run(*command: str, cwd: Path) -> str:
    """Run a program and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={**os.environ, "COPILOTKIT_TELEMETRY_DISABLED": "true"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
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


async def installed(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs and the packages that they use."""
    folder = tmp_path_factory.mktemp("npm") / name
    shutil.copytree(HERE / name, folder)
    await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    return folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await installed("node", tmp_path_factory)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def copilotkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of CopilotKit, with the program for AG-UI as well."""
    folder = await installed("copilotkit", tmp_path_factory)
    shutil.copy(HERE / "node" / "agui.js", folder)
    return folder


@pytest.fixture
def ag_ui(request: pytest.FixtureRequest) -> Path:
    """The folder of one of the versions."""
    folder: Path = request.getfixturevalue(request.param)
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
QUESTIONS = {"asked": ASKED, "called": CALLED, "summed": SUM, "failed": FAILED}
SUM_CALL = {"role": "assistant", "content": "Let me see.", "calls": [["add", '{"a":2,"b":3}']]}


@node
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_SECONDS)
@pytest.mark.parametrize(
    ("ag_ui", "success"),
    [("packages", {"pendingToolCallIds": ["call_weather"]}), ("copilotkit", {})],
    ids=["1.0", "0.x"],
    indirect=["ag_ui"],
)
async def test_conversations_over_ag_ui(
    server: Server, ag_ui: Path, success: dict[str, Any]
) -> None:
    came = await said(ag_ui, "agui.js", server, **QUESTIONS)
    streams = came["streams"]
    texts = [(each["role"], each["content"]) for each in streams["messages"][1:]]
    assert texts == [("reasoning", "Hm."), ("assistant", "Hello there.")]
    assert streams["events"][0] == "RUN_STARTED"
    assert streams["events"][-1] == "RUN_FINISHED"
    assert streams["result"]["dropped_messages"] == 0

    weather = [{"role": "assistant", "calls": [["weather", '{"city":"Rome"}']]}]
    weather.append({"role": "tool", "content": "22 degrees"})
    weather.append({"role": "assistant", "content": "Sunny."})
    called = {"outcome": {"type": "success", **success}, "messages": weather}
    assert came["client"] == came["session"] == called

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
@pytest.mark.timeout(2 * LIMIT_SECONDS)
async def test_conversations_by_copilotkit(server: Server, copilotkit: Path) -> None:
    came = await said(copilotkit, "copilotkit.js", server, **QUESTIONS)
    said_before, called = ["assistant", "Let me see."], ["assistant", None]
    messages = {
        "streams": [["reasoning", "Hm."], ["assistant", "Hello there."]],
        "client": [called, ["tool", "22 degrees in Rome"], ["assistant", "Sunny."]],
        "server": [said_before, ["tool", "23"], ["assistant", "Done."]],
        "failed": [["assistant", "One two"]],
    }
    assert {name: each["messages"] for name, each in came.items()} == messages
    failed = came.pop("failed")
    assert failed["errors"] == ["Provider 'test': Gone."]
    assert not any(each["errors"] for each in came.values())


@node
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_SECONDS)
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
@pytest.mark.timeout(2 * LIMIT_SECONDS)
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


@node
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_SECONDS)
async def test_the_ai_sdk_demands_objects_of_a_model_of_ollama(
    packages: Path, tmp_path: Path
) -> None:
    async with FakeOllama() as ollama, running_server(data_dir=tmp_path, ollama=ollama) as server:
        came = await said(packages, "demanded.js", server)
    town = {"name": "Lorem ipsum", "people": 1}
    assert came == {"required": ["town", town], "named": ["town", town], "formed": town}
    assert all(chat["format"] and "tools" not in chat for chat in ollama.chats)


@node
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_SECONDS)
async def test_threads_by_the_client_of_anthropic(server: Server, packages: Path) -> None:
    came = await said(
        packages, "anthropic.js", server, asked=ASKED, called=CALLED, again=scripted([says("Bye.")])
    )
    assert came["runner"]["text"] == came["stream"]["text"] == "Sunny."
    assert came["thread"]["texts"] == ["Sunny.", "Bye."]
    [session_id] = {each.split("_")[1] for each in came["thread"]["ids"]}
    roles = {
        session_id: [
            "system",
            *["user", "assistant"] * 2,
            "tool",
            "assistant",
            "user",
            "assistant",
        ],
        came["runner"]["id"].split("_")[1]: ["user", "assistant", "tool", "assistant"],
    }
    for each, expected in roles.items():
        _, session = await server.get(f"/sessions/{each}")
        assert [message["role"] for message in session["messages"]] == expected


RUN = {
    "threadId": "thread",
    "runId": "run",
    "protocolVersion": "1.0",
    "tools": [],
    "context": [],
}


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
    # until the server has let the other run go
    await until(lambda: any("Turn waits" in each and kept_run in each for each in server.output))
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
    binary = {"type": "binary", "mimeType": "image/png", "data": pixel, "filename": "a.png"}
    url = {**binary, "data": None, "url": f"data:image/png;base64,{pixel}"}
    older = [
        await ask(
            server,
            "/agui",
            {
                **RUN,
                "messages": [{**shown, "content": [parts[0], part]}],
                "forwardedProps": props,
            },
        )
        for part in (binary, url)
    ]
    file = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{pixel}"}
    message = {"id": "1", "role": "user", "parts": [parts[0], file]}
    chat = await ask(server, "/ui/chat", {**props, "messages": [message]})
    assert chat.headers["x-vercel-ai-ui-message-stream"] == "v1"
    for answer in (agent, chat, *older):
        _, session = await server.get(f"/sessions/{answer.headers['X-Mochi-Session']}")
        [attached] = session["messages"][0]["attachments"]
        assert attached["media_type"] == "image/png"
        assert answer not in older or attached["name"] == "a.png"
    file["url"] = "https://example.com/cat.png"
    refused = await ask(server, "/ui/chat", {**props, "messages": [message]})
    assert refused.status_code == 400
    message = {**shown, "content": [{**url, "url": file["url"]}]}
    body = {**RUN, "messages": [message], "forwardedProps": props}
    assert (await ask(server, "/agui", body)).status_code == 400


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


MOCHI = [{"type": "mochi", "names": ["add"]}, {"type": "mochi", "names": []}]


@pytest.mark.parametrize(
    ("path", "tools", "named"),
    [
        ("/ui/chat", [{"type": "function", "name": "weather"}, *MOCHI], None),
        ("/agui", [{"name": "weather"}, *MOCHI], None),
        ("/agui", [{"name": "weather"}, *MOCHI], []),
        ("/agui", [{"name": "weather"}], ["add"]),
    ],
)
async def test_of_the_tools_of_both_sides_those_that_are_named_are_offered(
    server, path, tools, named
):
    """A function of the client, and tools of the server from several places."""
    question = {"id": "1", "role": "user", "parts": [{"type": "text", "text": SUM}], "content": SUM}
    body = {**RUN, "model": "lorem", "messages": [question], "tools": tools}
    answer = await ask(server, path, {**body, "forwardedProps": {"model": "lorem", "tools": named}})
    assert ("tool-approval-request" if path == "/ui/chat" else '"type":"interrupt"') in answer.text


@pytest.mark.parametrize("version", ["1.0", None])
async def test_a_run_that_a_person_stops(server, version):
    """Clients before 1.0 refuse an outcome that they do not know."""
    asked = scripted([says("One two three."), {"stall": {"seconds": 60}}, says("Four.")])
    body = {**RUN, "protocolVersion": version, "forwardedProps": {"model": "lorem"}}
    body["messages"] = [{"id": "1", "role": "user", "content": asked}]
    events: list[Any] = []
    async with (
        httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=60) as client,
        client.stream("POST", "/agui", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            events.append(json.loads(line[6:]))
            if events[-1]["type"] == "TEXT_MESSAGE_CONTENT" and len(events) == 4:
                run_id = answer.headers["X-Run-Id"]
                assert (await client.post(f"/runs/{run_id}/stop")).status_code < 300
    assert events[0].get("protocolVersion") == version
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events[-1].get("outcome") == ({"type": "cancelled"} if version else None)
