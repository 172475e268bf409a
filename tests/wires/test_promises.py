"""What each wire promises, in one piece and as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import anyio
import orjson
import pytest
import pytest_asyncio

from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.tools import write_tools
from tests.support.wires import HELLO, WITHOUT_MODEL, wires_without
from tests.wires.conftest import ADD

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSION = "X-Mochi-Session"
DROPPED = "X-Mochi-Dropped-Messages"
MODEL = "qwen3:14b"
NOT_MET = "does not have the "
SCHEMA = {
    "type": "object",
    "properties": {"people": {"type": "integer"}},
    "required": ["people"],
}
BAD, GOOD = '{"people": "many"}', '{"people": 3}'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
Body = dict[str, Any]


def joined(parts: list[Any]) -> str:
    return "".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One way to ask; its functions read a body, or the list of what a stream has sent."""

    path: str
    question: Callable[[str], Body]
    """The field with a question."""
    text: Callable[[Any], str]
    is_stream: bool = True
    more: Body | None = None
    """Other fields of each request."""
    session: Callable[[str], Body] | None = None
    """The field that names a session; None: only the header can."""
    form: Callable[[Body], Body] | None = None
    """The field with the schema of the answer."""
    functions: Callable[[str], Body] | None = None
    """The field that offers a function of the client."""
    calls: Callable[[Any], list[str]] | None = None
    """Names of the functions that the client is to call."""
    thinks_unasked: bool = True
    has_thoughts: bool = True
    unthinking: Body | None = None
    """The field that says that the model does not think."""
    model: Callable[[str], Body] = lambda name: {"model": name}
    """The field that names the model."""

    def body(self, question: str, *others: Body) -> Body:
        made: Body = {"model": MODEL, **self.question(question), **(self.more or {})}
        for each in others:
            made = merged(made, each)
        return made


def merged(body: Body, other: Body) -> Body:
    """Return both, and of fields that are objects in both the fields of both."""
    inner = {
        name: merged(body[name], value) if isinstance(body.get(name), dict) else value
        for name, value in other.items()
    }
    return {**body, **inner}


def messages(question: str) -> Body:
    return {"messages": [{"role": "user", "content": question}]}


def function(name: str) -> Body:
    return {"name": name, "description": "", "parameters": PARAMETERS}


def in_metadata(session_id: str) -> Body:
    return {"metadata": {"session_id": session_id}}


def as_json_schema(schema: Body) -> Body:
    return {"type": "json_schema", "json_schema": {"name": "town", "schema": schema}}


def agents_question(question: str) -> Body:
    message = {"id": "1", "role": "user", "content": question}
    return {
        "messages": [message],
        "threadId": "t",
        "runId": "r",
        "forwardedProps": {"model": MODEL},
    }


def of_kind(events: list[Body], kind: str) -> list[Body]:
    return [each for each in events if each["type"] == kind]


CHAT: Body = {
    "path": "/v1/chat/completions",
    "question": messages,
    "session": in_metadata,
    "form": lambda schema: {"response_format": as_json_schema(schema)},
    "unthinking": {"reasoning_effort": "none"},
    "functions": lambda name: {"tools": [{"type": "function", "function": function(name)}]},
}
TEXT: Body = {
    "path": "/v1/completions",
    "question": lambda text: {"prompt": text},
    "session": in_metadata,
    "thinks_unasked": False,
    "has_thoughts": False,
}
MESSAGES: Body = {
    "path": "/v1/messages",
    "question": messages,
    "more": {"max_tokens": 100},
    "session": in_metadata,
    "form": lambda schema: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    "functions": lambda name: {"tools": [{"name": name, "input_schema": PARAMETERS}]},
    "thinks_unasked": False,  # Anthropic's own models do not
    "unthinking": {"thinking": {"type": "disabled"}},
}
RESPONSES: Body = {
    "path": "/v1/responses",
    "unthinking": {"reasoning": {"effort": "none"}},
    "question": lambda text: {"input": text},
    "session": in_metadata,
    "form": lambda schema: {
        "text": {"format": {"type": "json_schema", "name": "town", "schema": schema}}
    },
    "functions": lambda name: {"tools": [{"type": "function", **function(name)}]},
}
OLLAMA_CHAT: Body = {
    "path": "/ollama/api/chat",
    "unthinking": {"think": False},
    "question": messages,
    "form": lambda schema: {"format": schema},
    "functions": lambda name: {"tools": [{"type": "function", "function": function(name)}]},
}
GENERATE: Body = {
    "path": "/ollama/api/generate",
    "unthinking": {"think": False},
    "question": lambda text: {"prompt": text},
    "form": lambda schema: {"format": schema},
}
WHOLE: Body = {"is_stream": False}
WIRES = {
    "chat": Wire(
        **CHAT,
        **WHOLE,
        text=lambda answer: answer["choices"][0]["message"]["content"],
        calls=lambda answer: [
            call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]
        ],
    ),
    "chat stream": Wire(
        **CHAT,
        text=lambda sent: joined(
            [c["delta"].get("content") for each in sent for c in each.get("choices", ())]
        ),
        calls=lambda sent: [
            call["function"]["name"]
            for each in sent
            for choice in each["choices"]
            for call in choice["delta"].get("tool_calls", ())
        ],
    ),
    "completions": Wire(**TEXT, **WHOLE, text=lambda answer: answer["choices"][0]["text"]),
    "completions stream": Wire(
        **TEXT, text=lambda sent: joined([c["text"] for each in sent for c in each["choices"]])
    ),
    "messages": Wire(
        **MESSAGES,
        **WHOLE,
        text=lambda answer: joined([block["text"] for block in of_kind(answer["content"], "text")]),
        calls=lambda answer: [block["name"] for block in of_kind(answer["content"], "tool_use")],
    ),
    "messages stream": Wire(
        **MESSAGES,
        text=lambda sent: joined(
            [each["delta"].get("text") for each in of_kind(sent, "content_block_delta")]
        ),
        calls=lambda sent: [
            each["content_block"]["name"]
            for each in of_kind(sent, "content_block_start")
            if each["content_block"]["type"] == "tool_use"
        ],
    ),
    "responses": Wire(
        **RESPONSES,
        **WHOLE,
        text=lambda answer: joined(
            [item["content"][0]["text"] for item in of_kind(answer["output"], "message")]
        ),
        calls=lambda answer: [item["name"] for item in of_kind(answer["output"], "function_call")],
    ),
    "responses stream": Wire(
        **RESPONSES,
        text=lambda sent: joined(
            [each["delta"] for each in of_kind(sent, "response.output_text.delta")]
        ),
        calls=lambda sent: [
            each["name"] for each in of_kind(sent, "response.function_call_arguments.done")
        ],
    ),
    "ollama chat": Wire(
        **OLLAMA_CHAT,
        **WHOLE,
        text=lambda answer: answer["message"]["content"],
        calls=lambda answer: [call["function"]["name"] for call in answer["message"]["tool_calls"]],
    ),
    "ollama chat stream": Wire(
        **OLLAMA_CHAT,
        text=lambda sent: joined(
            [each["message"]["content"] for each in sent if "message" in each]
        ),
        calls=lambda sent: [
            call["function"]["name"]
            for each in sent
            for call in each["message"].get("tool_calls", ())
        ],
    ),
    "generate": Wire(**GENERATE, **WHOLE, text=lambda answer: answer["response"]),
    "generate stream": Wire(
        **GENERATE, text=lambda sent: joined([each.get("response") for each in sent])
    ),
    "agui": Wire(
        path="/api/v1/agui",
        question=agents_question,
        unthinking={"forwardedProps": {"think": False}},
        model=lambda name: {"forwardedProps": {"model": name}},
        session=lambda session_id: {"forwardedProps": {"session_id": session_id}},
        form=lambda schema: {"forwardedProps": {"response_format": as_json_schema(schema)}},
        functions=lambda name: {"tools": [function(name)]},
        text=lambda sent: joined([each["delta"] for each in of_kind(sent, "TEXT_MESSAGE_CONTENT")]),
        calls=lambda sent: [each["toolCallName"] for each in of_kind(sent, "TOOL_CALL_START")],
    ),
    "ui chat": Wire(
        path="/api/v1/ui/chat",
        unthinking={"think": False},
        question=lambda text: {
            "id": "c",
            "messages": [
                {"id": "1", "role": "user", "parts": [{"type": "text", "text": text}]},
            ],
        },
        session=lambda session_id: {"session_id": session_id},
        form=lambda schema: {"response_format": as_json_schema(schema)},
        functions=lambda name: {
            "tools": [{"type": "function", "name": name, "inputSchema": PARAMETERS}]
        },
        text=lambda sent: joined([each["delta"] for each in of_kind(sent, "text-delta")]),
        calls=lambda sent: [each["toolName"] for each in of_kind(sent, "tool-input-available")],
    ),
}
ALL = pytest.mark.parametrize("name", WIRES)


async def test_every_wire_with_a_model_is_in_the_table():
    assert wires_without(wire.path for wire in WIRES.values()) == WITHOUT_MODEL
    assert wires_without(HELLO) == WITHOUT_MODEL


def those_with(field: str) -> Any:
    return pytest.mark.parametrize("name", [name for name in WIRES if getattr(WIRES[name], field)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ollama() -> AsyncIterator[FakeOllama]:
    async with FakeOllama() as running:
        running.add_model("small:1b", context_length=8_192)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    tmp_path_factory: pytest.TempPathFactory, ollama: FakeOllama
) -> AsyncIterator[Server]:
    """A server with a tool ``add``, whose models are those of a fake Ollama."""
    folder = tmp_path_factory.mktemp("data")
    write_tools(folder / "tools", add=ADD)
    async with running_server(data_dir=folder, ollama=ollama, on_disconnect="continue") as running:
        yield running


@dataclass
class Answer:
    """What came for one request."""

    status: int
    headers: Any
    content: Any
    """The body, or the list of what a stream has sent."""
    raw: str


async def ask(server: Server, wire: Wire, *fields: Body, **headers: str) -> Answer:
    body = wire.body("Hello?", {"stream": wire.is_stream}, *fields)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    async with server.http.post(server.url + wire.path, json=body, headers=headers) as response:
        raw = await response.text()
        if response.content_type == "application/json":
            return Answer(response.status, response.headers, orjson.loads(raw), raw)
        lines = [line.removeprefix("data: ") for line in raw.split("\n")]
        sent = [orjson.loads(line) for line in lines if line.startswith("{")]
        return Answer(response.status, response.headers, sent, raw)


async def said(server: Server, session_id: str) -> list[tuple[str, str]]:
    status, session = await server.get(f"/sessions/{session_id}")
    assert status == 200
    return [(each["role"], each["content"]) for each in session["messages"]]


@ALL
async def test_the_header_makes_a_session(server, ollama, name):
    wire = WIRES[name]
    ollama.reply(["Hello."])
    answer = await ask(server, wire, X_Mochi_Session="new")
    assert wire.text(answer.content) == "Hello."
    session_id = answer.headers[SESSION]
    assert await said(server, session_id) == [("user", "Hello?"), ("assistant", "Hello.")]
    assert session_id in answer.raw  # also for clients that see no headers


@ALL
@pytest.mark.parametrize("by_header", [True, False])
async def test_a_session_that_is_named_is_continued_with_its_tools(server, ollama, name, by_header):
    wire = WIRES[name]
    if not by_header and wire.session is None:
        pytest.skip("only the header can name it")
    session_id = await server.new_session(tool_settings={"tools": ["add"]})
    ollama.reply(["Hello."])
    answer = await (
        ask(server, wire, X_Mochi_Session=session_id)
        if by_header
        else ask(server, wire, wire.session(session_id))
    )
    assert wire.text(answer.content) == "Hello."
    assert answer.headers[SESSION] == session_id
    assert await said(server, session_id) == [("user", "Hello?"), ("assistant", "Hello.")]
    assert [tool["function"]["name"] for tool in ollama.chats[-1]["tools"]] == ["add"]


@those_with("functions")
async def test_tools_of_the_server_are_named_in_one_form(server, ollama, name):
    wire = WIRES[name]
    tools = [*wire.functions("weather")["tools"], {"type": "mochi", "names": ["add"]}]
    ollama.reply(["Hello."])
    await ask(server, wire, {"tools": tools})
    offered = [tool["function"]["name"] for tool in ollama.chats[-1]["tools"]]
    assert sorted(offered) == ["add", "weather"]


SUM: Body = {"name": "add", "arguments": {"a": 2, "b": 3}}


async def session_that_adds(server: Server) -> str:
    settings = {"tools": ["add"], "execution_policy": "never_confirm"}
    return await server.new_session(tool_settings=settings)


@ALL
@pytest.mark.parametrize(("calls", "silences"), [(1, 2), (3, 1)])
async def test_a_model_that_says_nothing_of_a_result_is_answered_by_it(
    server, ollama, name, calls, silences
):
    for _ in range(calls):
        ollama.reply(tool_calls=[SUM])
    for _ in range(silences):
        ollama.reply()
    session_id = await session_that_adds(server)
    answer = await ask(server, WIRES[name], X_Mochi_Session=session_id)
    assert answer.status == 200
    assert WIRES[name].text(answer.content) == "5"
    assert (await said(server, session_id))[-1] == ("assistant", "5")


@those_with("functions")
async def test_functions_of_the_client_are_offered_after_a_call_of_the_server_is_repeated(
    server, ollama, name
):
    for _ in range(3):
        ollama.reply(tool_calls=[SUM])
    ollama.reply(tool_calls=[{"name": "weather", "arguments": {"city": "Oslo"}}])
    session_id = await session_that_adds(server)
    wire = WIRES[name]
    answer = await ask(server, wire, wire.functions("weather"), X_Mochi_Session=session_id)
    assert wire.calls(answer.content)[-1] == "weather"
    assert [tool["function"]["name"] for tool in ollama.chats[-1]["tools"]] == ["weather"]


@ALL
async def test_a_session_that_is_not_there_is_an_error(server, name):
    answer = await ask(server, WIRES[name], X_Mochi_Session="0123456789")
    assert answer.status == 404
    assert "0123456789" in answer.raw


@ALL
async def test_messages_that_are_left_out_are_counted_in_a_header(server, ollama, name):
    wire = WIRES[name]
    props = wire.model("small:1b")
    session_id = await server.new_session("small:1b")
    for number in range(4):
        text = f"Question {number}? {'word ' * 2_500}"
        ollama.reply(["Well."])
        await server.post(f"/chat/{session_id}", {"message": text})
    ollama.reply(["Now."])
    answer = await ask(server, wire, props, X_Mochi_Session=session_id)
    assert wire.text(answer.content) == "Now."
    assert int(answer.headers[DROPPED]) > 0
    fresh = await ask(server, wire, props, X_Mochi_Session="new")
    assert fresh.headers[DROPPED] == "0"


@those_with("is_stream")
async def test_the_run_of_a_session_goes_on_without_its_client(server, ollama, name):
    wire, gate = WIRES[name], asyncio.Event()
    session_id = await server.new_session()
    ollama.reply(["One. ", "Two."], gate=gate, pause_after=1)
    body, headers = wire.body("Hello?", {"stream": True}), {SESSION: session_id}
    async with server.http.post(server.url + wire.path, json=body, headers=headers) as response:
        async for line in response.content:
            if b"One." in line:
                break
        response.close()
    gate.set()
    with anyio.fail_after(30):
        events = [each.event async for each in server.events(f"/chat/{session_id}/stream?after=0")]
    assert events[-2:] == ["message_complete", "done"]
    assert (await said(server, session_id))[-1] == ("assistant", "One. Two.")


@those_with("form")
async def test_a_structured_answer_is_repaired_or_an_error(server, ollama, name):
    """A stream cannot take back what it has said; the session has what was repaired."""
    wire = WIRES[name]
    for text in (BAD, GOOD):
        ollama.reply([text], thinking=["Hm."])
    answer = await ask(server, wire, wire.form(SCHEMA), X_Mochi_Session="new")
    if wire.is_stream:
        assert wire.text(answer.content) == BAD
        assert NOT_MET in answer.raw
    else:
        assert wire.text(answer.content) == GOOD
        assert NOT_MET not in answer.raw
        assert BAD not in answer.raw
    assert await said(server, answer.headers[SESSION]) == [("user", "Hello?"), ("assistant", GOOD)]


@those_with("form")
async def test_an_answer_that_cannot_be_repaired_is_an_error(server, ollama, name):
    wire = WIRES[name]
    for text in (BAD, BAD):
        ollama.reply([text])
    answer = await ask(server, wire, wire.form(SCHEMA))
    is_object = wire.is_stream or name == "responses"  # which may say that it has failed
    assert answer.status == (200 if is_object else 502)
    assert NOT_MET in answer.raw


@ALL
async def test_models_think_unasked_as_their_provider_lets_them(server, ollama, name):
    wire = WIRES[name]
    await ask(server, wire)
    assert ollama.chats[-1]["think"] is wire.thinks_unasked


@ALL
async def test_a_preset_says_whether_its_model_thinks(server, ollama, name):
    """Where a request does not; one without a place for thoughts has none."""
    wire = WIRES[name]
    for number, think in enumerate(("high", False)):
        preset = {"model": MODEL, "think": think}
        assert (await server.request("PUT", f"/presets/p{number}", preset))[0] == 200
        await ask(server, wire, wire.model(f"preset/p{number}"))
        assert ollama.chats[-1]["think"] == (think if wire.has_thoughts else False)


@those_with("unthinking")
async def test_a_model_does_not_think_where_the_request_says_so(server, ollama, name):
    wire = WIRES[name]
    preset = {"model": MODEL, "think": True}
    assert (await server.request("PUT", "/presets/thinker", preset))[0] == 200
    for model in (MODEL, "preset/thinker"):
        await ask(server, wire, wire.model(model), wire.unthinking)
        assert ollama.chats[-1]["think"] is False


@those_with("calls")
async def test_a_call_that_was_not_offered_reaches_the_client_beside_its_own(server, ollama, name):
    """It can tell the model so; the server would have to do that in secret."""
    wire = WIRES[name]
    ollama.reply(tool_calls=[{"name": each, "arguments": {}} for each in ("weather", "tides")])
    answer = await ask(server, wire, wire.functions("weather"))
    assert wire.calls(answer.content) == ["weather", "tides"]


@ALL
async def test_a_model_that_is_nowhere_is_not_found_and_the_nearest_is_named(server, name):
    answer = await ask(server, WIRES[name], WIRES[name].model("quen3:14b"))
    assert answer.status == 404
    assert "Did you mean 'qwen3:14b'?" in answer.raw


@ALL
async def test_a_model_that_fails_before_its_first_word_is_answered_with_a_status(
    server, ollama, name
):
    ollama.reply([], error="out of order")
    answer = await ask(server, WIRES[name])
    assert answer.status == 502
    assert "out of order" in answer.raw
    assert "Exception in ASGI" not in server.log


@those_with("functions")
async def test_a_first_message_that_is_refused_leaves_no_session(server, name):
    """Tools for a model that can call none."""
    _, before = await server.get("/sessions")
    fields = (WIRES[name].model("gemma3:4b"), WIRES[name].functions("weather"))
    answer = await ask(server, WIRES[name], *fields, X_Mochi_Session="new")
    assert answer.status == 400, answer.raw
    body = {"message": "Hello?", "model": "gemma3:4b", "selected_tools": ["add"]}
    assert (await server.post("/chat/stream", body))[0] == 400
    assert (await server.get("/sessions"))[1] == before


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lonely(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server whose Ollama is not there."""
    async with running_server(data_dir=tmp_path_factory.mktemp("data")) as running:
        yield running


@ALL
@pytest.mark.parametrize(("model", "status"), [("gpt-4o", 404), ("qwen3:14b", 502)])
async def test_an_outage_is_told_only_of_a_model_that_may_be_there(lonely, name, model, status):
    answer = await ask(lonely, WIRES[name], WIRES[name].model(model))
    assert answer.status == status
    assert ("No provider that answers has a model" in answer.raw) == (status == 404)


async def test_a_chat_of_another_program_names_the_model_that_is_nowhere(lonely):
    metadata = {"session_id": "imported", "model": "unknown", "format_version": "1.3"}
    asked = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello."}]
    export = {"metadata": metadata, "messages": asked}
    status, imported = await lonely.post("/sessions/import", export)
    assert status == 200, imported
    session_id = imported["imported"][0]["session_id"]
    for body in ({"message": "Hello"}, {"message": "Hello", "think": True}):
        status, answer = await lonely.post(f"/chat/{session_id}", body)
        assert (status, answer["error"]["code"]) == (404, "MODEL_NOT_FOUND")
        assert answer["error"]["message"] == "No provider that answers has a model 'unknown'."
    body = {"message": "Hello", "model": "gpt-4o"}
    assert (await lonely.post("/chat", body))[0] == 404
    _, listed = await lonely.get("/sessions")
    assert [each["message_count"] for each in listed["sessions"]] == [2]


async def test_the_times_of_models_are_those_of_their_provider(server):
    async def listed(path: str, **headers: str) -> Any:
        async with server.http.get(server.url + path, headers=headers) as response:
            return await response.json()

    changed = datetime.fromisoformat("2026-05-10T15:06:48.639712+00:00")
    for path in ("/v1/models", "/ollama/v1/models"):
        [model] = [each for each in (await listed(path))["data"] if each["id"] == MODEL]
        assert model["created"] == int(changed.timestamp())
        assert await listed(f"{path}/{MODEL}") == model
        anthropics = await listed(f"{path}/{MODEL}", **{"anthropic-version": "2023-06-01"})
        assert datetime.fromisoformat(anthropics["created_at"]) == changed
    tags = (await listed("/ollama/api/tags"))["models"]
    [model] = [each for each in tags if each["name"] == MODEL]
    async with server.http.post(f"{server.url}/ollama/api/show", json={"model": MODEL}) as response:
        shown = await response.json()
    for each in (model, shown):
        assert datetime.fromisoformat(each["modified_at"]) == changed


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_routes_below_v1_are_below_that_of_ollama_as_well(server, ollama, path):
    [wire, *_] = [each for each in WIRES.values() if each.path == path]
    wire = replace(wire, path=f"/ollama{path}")
    ollama.reply(["Hello."])
    answer = await ask(server, wire, X_Mochi_Session="new")
    assert wire.text(answer.content) == "Hello."
    assert answer.headers[SESSION]
    answer = await ask(server, wire, wire.model("nothing:1b"))
    assert answer.status == 404
    assert answer.content["error"]["type"] == "not_found_error"
    assert answer.content.get("type") == ("error" if path == "/v1/messages" else None)
