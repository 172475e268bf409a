"""Messages, by Anthropic's own package against a real server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
import pytest_asyncio
from anthropic.tools import BetaAsyncLocalFilesystemMemoryTool

from chat.wires.anthropic.history import HistoryReader, block_of_data
from chat.wires.anthropic.schemas import ReplyTurn
from mochi_server.sessions.attachments import AttachmentReader
from tests.support.decisions import decide_next
from tests.support.images import png
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SERVER_ADD = {"type": "mochi", "names": ["add"]}
PIXEL = b64encode(png()).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(server: Server) -> AsyncIterator[anthropic.AsyncAnthropic]:
    options = {"api_key": "none", "max_retries": 0, "timeout": 60}
    async with anthropic.AsyncAnthropic(base_url=server.url, **options) as made:
        yield made


def user(*replies: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "user", "content": scripted(*replies)}


def body(*messages: Any, **options: Any) -> dict[str, Any]:
    return {"model": "lorem", "max_tokens": 4000, "messages": messages, **options}


async def ask(client: anthropic.AsyncAnthropic, *messages: Any, **options: Any) -> Any:
    return await client.messages.create(**body(*messages, **options))


async def stream(client: anthropic.AsyncAnthropic, *messages: Any, **options: Any) -> Any:
    async with client.messages.stream(**body(*messages, **options)) as streamed:
        return await streamed.get_final_message()


BOTH = pytest.mark.parametrize("send", [ask, stream])


def shape(message: Any) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in message.content]


@BOTH
async def test_an_answer(client, send):
    message = await send(client, user([says("Hello there.")]), system="Be kind.")
    assert (message.type, message.role, message.model) == ("message", "assistant", "lorem")
    assert shape(message) == [{"type": "text", "text": "Hello there."}]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.id.startswith("msg_")
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0


async def test_the_events_of_a_stream(client):
    events = await ask(client, user([thinks("Hm.", "Hello.")]), stream=True, **THINKS)
    received = [event async for event in events]
    types = [event.type for event in received]
    assert [name for n, name in enumerate(types) if name != types[n - 1]] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert received[-2].mochi["dropped_messages"] == 0


@BOTH
async def test_thinking_is_a_block_that_can_be_sent_back(client, send):
    question = user([thinks("Hm.", "Hello.")])
    message = await send(client, question, **THINKS)
    thought, text = shape(message)
    assert (thought["type"], thought["thinking"]) == ("thinking", "Hm.")
    assert thought["signature"]
    assert text == {"type": "text", "text": "Hello."}
    reply = {"role": "assistant", "content": message.content}
    again = await send(client, question, reply, user([says("Good.")]), **THINKS)
    assert shape(again) == [{"type": "text", "text": "Good."}]
    omitted = {"thinking": {**THINKS["thinking"], "display": "omitted"}}
    assert shape(await send(client, question, **omitted)) == [text]


@BOTH
async def test_a_tool_of_the_client(client, send):
    question = user([says("Wait."), calls("weather", city="Rome")], [says("Sunny.")])
    message = await send(client, question, tools=[WEATHER])
    assert message.stop_reason == "tool_use"
    text, wanted = message.content
    assert text.text == "Wait."
    assert (wanted.type, wanted.name, wanted.input) == ("tool_use", "weather", {"city": "Rome"})
    reply = {"role": "assistant", "content": message.content}
    result = {"type": "tool_result", "tool_use_id": wanted.id, "content": "22 degrees"}
    answer = await send(client, question, reply, {"role": "user", "content": [result]})
    assert shape(answer) == [{"type": "text", "text": "Sunny."}]


async def test_results_are_stored_as_the_client_sends_them(client, server):
    question = user([calls("weather", city="Rome")])
    header = {"extra_headers": {"X-Mochi-Session": "new"}}
    raw = await client.messages.with_raw_response.create(
        **body(question, tools=[WEATHER]), **header
    )
    session_id = raw.headers["X-Mochi-Session"]
    reply = await raw.parse()
    wanted = reply.content[-1]
    result = {
        "type": "tool_result",
        "tool_use_id": wanted.id,
        "is_error": True,
        "content": [{"type": "text", "text": "No such city."}, IMAGE],
        "cache_control": {"type": "ephemeral"},
    }
    more = {"type": "text", "text": scripted([says("A pity.")])}
    answer = await ask(
        client,
        question,
        {"role": "assistant", "content": reply.content},
        {"role": "user", "content": [result, more]},
        tools=[WEATHER],
        metadata={"session_id": session_id, "user_id": "somebody"},
    )
    assert shape(answer) == [{"type": "text", "text": "A pity."}]
    assert answer.mochi["session_id"] == session_id
    _, session = await server.get(f"/sessions/{session_id}")
    _, _, failed, follows, _ = session["messages"]
    assert failed["role"] == "tool"
    assert failed["content"] == "Error: No such city."
    assert [each["media_type"] for each in follows["attachments"]] == ["image/png"]


@BOTH
async def test_a_tool_of_the_server_after_a_person_has_allowed_it(client, server, send):
    question = user([says("I add."), calls("add", a=2, b=3)], [says("It is 5.")])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        message = await send(client, question, tools=[SERVER_ADD])
    assert shape(message) == [{"type": "text", "text": "I add.\n\nIt is 5."}]
    assert message.stop_reason == "end_turn"


VENDORS = {
    "bash": ["bash_20241022", "bash_20250124"],
    "str_replace_editor": ["text_editor_20241022", "text_editor_20250124"],
    "str_replace_based_edit_tool": ["text_editor_20250429", "text_editor_20250728"],
    "memory": ["memory_20250818"],
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for name, kinds in VENDORS.items() for kind in kinds]
)
async def test_tools_that_the_vendor_describes_and_the_client_runs(client, kind, name):
    question = user([calls(name, command="view", path="/memories")], [says("Nothing.")])
    tools = [{"type": kind, "name": name}]
    message = await client.beta.messages.create(**body(question, tools=tools))
    assert message.stop_reason == "tool_use"
    [wanted] = message.content
    assert (wanted.name, wanted.input["command"]) == (name, "view")
    plain = await client.messages.count_tokens(model="lorem", messages=[question])
    described = await client.beta.messages.count_tokens(
        model="lorem", messages=[question], tools=tools
    )
    assert described.input_tokens > plain.input_tokens + 40


MOCHI_BLOCKS = ["server_tool_use", "web_search_tool_result"]


@BOTH
async def test_blocks_that_only_the_vendor_reads_are_left_out_and_named(client, server, send):
    searched = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    known = {"type": "compaction", "content": "They like cats."}
    text = {"type": "text", "text": " It rains.", "citations": None}
    history = [
        {"role": "user", "content": "The weather?"},
        {"role": "assistant", "content": [known, searched, found, text]},
    ]
    new = {"extra_headers": {"X-Mochi-Session": "new"}}
    raw = await client.messages.with_raw_response.create(
        **body(*history, user([says("Yes.")])), **new
    )
    message = await raw.parse()
    assert message.mochi["ignored_blocks"] == MOCHI_BLOCKS
    _, session = await server.get(f"/sessions/{message.mochi['session_id']}")
    texts = [each["content"] for each in session["messages"]]
    assert texts[:2] == ["The weather?", "They like cats. It rains."]
    assert shape(await send(client, *history, user([says("Yes.")])))[0]["text"] == "Yes."


@pytest.mark.parametrize(
    ("content", "files"),
    [
        ("All of it.", ["text/plain"]),
        ([{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}], ["text/plain"]),
        ([{"type": "text", "text": "A pixel:"}, IMAGE], ["text/plain", "image/png"]),
        ([IMAGE], ["image/png"]),
    ],
)
async def test_a_document_in_parts(client, server, content, files):
    document = {
        "type": "document",
        "title": "Notes",
        "source": {"type": "content", "content": content},
    }
    asked = {"type": "text", "text": scripted([says("Read.")])}
    message = await ask(
        client,
        {"role": "user", "content": [document, asked]},
        extra_headers={"X-Mochi-Session": "new"},
    )
    _, session = await server.get(f"/sessions/{message.mochi['session_id']}")
    attached = session["messages"][0]["attachments"]
    assert [each["media_type"] for each in attached] == files


async def test_what_claudes_clients_send_is_understood(client):
    cached = {"cache_control": {"type": "ephemeral"}}
    many = [{**WEATHER, "name": f"tool_{n}", **cached} for n in range(40)]
    first = {"type": "text", "text": "<system-reminder>Today.</system-reminder>", **cached}
    second = {"type": "text", "text": scripted([says("Hi.")]), **cached}
    message = await client.beta.messages.create(
        **body({"role": "user", "content": [first, second]}, model="lorem-plain"),
        system=[{"type": "text", "text": "You are Claude Code.", **cached}],
        metadata={"user_id": "user_1_account__session_2"},
        thinking={"type": "adaptive"},
        context_management={"edits": []},
        output_config={"effort": "high"},
        betas=["interleaved-thinking-2025-05-14"],
        extra_body={"temperature": 1},
    )
    assert message.content[0].text == "Hi."
    with pytest.raises(anthropic.BadRequestError, match="thinking"):
        await ask(client, user([says("Hi.")]), model="lorem-plain", **THINKS)
    with pytest.raises(anthropic.BadRequestError, match="tools"):
        await ask(client, user([says("Hi.")]), model="lorem-plain", tools=many)
    assert (await ask(client, user([says("Hi.")]), tools=many)).stop_reason == "end_turn"


async def test_options_reach_the_model(client, server):
    new = {"extra_headers": {"X-Mochi-Session": "new"}}
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 5}  # unknown to new packages
    cut = [says("One two three."), {"finish_reason": "length"}]
    message = await ask(client, user(cut), stop_sequences=["END"], extra_body=sampling, **new)
    assert message.stop_reason == "max_tokens"
    _, session = await server.get(f"/sessions/{message.mochi['session_id']}")
    assert session["options"] == {**sampling, "stop": ["END"], "max_tokens": 4000}


async def test_an_answer_with_a_schema(client):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    config = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    message = await ask(client, {"role": "user", "content": "A number."}, **config)
    assert message.content[0].text.startswith('{"n":')


async def test_what_a_provider_wants_back_is_a_block_that_the_client_sends_back():
    data = {"form": "gemini", "model": "g", "parts": [{"kind": "call", "signature": "abc"}]}
    reply = ReplyTurn.model_validate({"role": "assistant", "content": [block_of_data(data)]})
    reader = HistoryReader(AttachmentReader(max_bytes=100))
    await reader.read(None, [reply])
    assert reader.messages[0].as_stored()["provider_data"] == data


async def test_tokens_are_estimated(client):
    text = {"role": "user", "content": "word " * 400}
    plain = {"model": "lorem", "messages": [text]}
    few = (await client.messages.count_tokens(**plain)).input_tokens
    assert 250 < few < 1000
    image = {"role": "user", "content": [IMAGE]}
    others = {"system": "Be brief. " * 40, "tools": [WEATHER], "messages": [text, image]}
    many = (await client.messages.count_tokens(**{**plain, **others})).input_tokens
    assert many > few + 1000


async def test_a_preset_is_a_model(client, server):
    preset = {"model": "lorem-plain", "system_prompt": "Be brief. " * 40}
    status, _ = await server.request("PUT", "/presets/brief", preset)
    assert status < 300
    question = user([says("Hi.")])
    options = {"model": "preset/brief", "thinking": {"type": "adaptive"}}
    message = await ask(client, question, **options)
    assert (message.model, shape(message)[0]["text"]) == ("preset/brief", "Hi.")
    plain, brief = [
        (await client.messages.count_tokens(model=model, messages=[question])).input_tokens
        for model in ("lorem-plain", "preset/brief")
    ]
    assert brief > plain + 50
    assert (await client.models.retrieve("preset/brief")).id == "preset/brief"
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.models.retrieve("preset/other")
    assert caught.value.body["type"] == "error"


async def test_a_history_that_is_too_long_is_shortened_and_the_client_told(client):
    history = [
        {"role": role, "content": f"{number} {'word ' * 2_000}"}
        for number in range(10)
        for role in ("user", "assistant")
    ]
    raw = await client.messages.with_raw_response.create(
        **body(*history, user([says("Short.")]), model="lorem-small")
    )
    assert int(raw.headers["X-Mochi-Dropped-Messages"]) > 0
    text = {"role": "user", "content": "word " * 20_000}
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long") as caught:
        await ask(client, text, model="lorem-small")
    assert caught.value.type == "invalid_request_error"


@BOTH
async def test_a_reply_that_a_stop_sequence_has_ended_says_so(client, send):
    message = await send(client, user([says("One, two"), {"stop_sequence": ", three"}]))
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ", three")


@BOTH
async def test_failures_before_the_first_word_have_their_status(client, send):
    question = user([fails(429, "Too many.", retry_after=7)])
    with pytest.raises(anthropic.APIStatusError, match="Too many") as caught:
        await send(client, question)
    assert caught.value.status_code == 503
    assert caught.value.type == "overloaded_error"
    assert caught.value.response.headers["Retry-After"] == "7"


async def test_a_failure_later_is_an_event_of_the_stream(client):
    question = user([says("One two three four."), fails(500, "Gone.", after_words=2)])
    received = []

    async def read():
        async for event in await ask(client, question, stream=True):
            received.append(event.type)  # noqa: PERF401 - what came before the failure counts

    with pytest.raises(anthropic.APIStatusError, match="Gone") as caught:
        await read()
    assert caught.value.body["error"]["type"] == "api_error"
    assert "content_block_delta" in received
    assert "message_stop" not in received


IMAGE_ELSEWHERE = {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}
DAMAGED = {"type": "redacted_thinking", "data": "mochi:?"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"compaction": {"type": "summary"}}}, "compaction"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, r"messages\.0"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, r"messages\.0"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\.0"),
        ({"messages": [{"role": "user", "content": [IMAGE_ELSEWHERE]}]}, "fetches none"),
        ({"messages": [{"role": "user", "content": [IMAGE] * 21}]}, "at most 20"),
        ({"messages": [{"role": "assistant", "content": [DAMAGED]}]}, "damaged"),
        ({"messages": [{"role": "assistant", "content": [{"text": "?"}]}]}, r"messages\.0"),
        ({"tools": [{"type": "bash_20990101", "name": "bash"}]}, r"tools\.0"),
        ({"tools": [{"type": "vendor", "name": "bash"}]}, r"tools\.0"),
    ],
)
async def test_bad_bodies_are_refused_in_the_vendors_shape(client, change, field):
    with pytest.raises(anthropic.BadRequestError, match=field) as caught:
        await client.messages.create(**{**body(user([says("Hi.")])), **change})
    assert caught.value.body["type"] == "error"
    assert caught.value.type == "invalid_request_error"


async def test_what_is_not_there(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        await ask(client, user([says("Hi.")]), extra_headers={"X-Mochi-Session": "0123456789"})
    assert caught.value.body["error"]["code"] == "SESSION_NOT_FOUND"
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.batches.retrieve("batch_1")


async def test_the_models_are_listed(client, server):
    listed = [model async for model in client.models.list()]
    assert "lorem" in [model.id for model in listed]
    model = await client.models.retrieve("lorem")
    assert (model.type, model.max_input_tokens) == ("model", 32_768)
    async with server.http.get(f"{server.url}/v1/models") as response:
        assert (await response.json())["object"] == "list"


async def test_the_package_without_async(client, server):
    def talk():
        with (
            anthropic.Anthropic(base_url=server.url, api_key="none") as made,
            made.messages.stream(**body(user([says("Hello there.")]))) as streamed,
        ):
            return "".join(streamed.text_stream)

    assert await anyio.to_thread.run_sync(talk) == "Hello there."


@BOTH
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
async def test_a_forced_tool_is_called(client, send, choice):
    question = {"role": "user", "content": "How is the weather?"}
    message = await send(client, question, tools=[WEATHER], tool_choice=choice)
    assert message.stop_reason == "tool_use"
    [wanted] = message.content
    assert (wanted.name, wanted.input) == ("weather", {"city": "Lorem ipsum"})


@anthropic.beta_async_tool
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"22 degrees in {city}"


def session_id_of(message: Any) -> str:
    """The session of an answer of a thread, which its id names."""
    return str(message.id.split("_")[1])


async def roles_of(server: Server, session_id: str) -> list[str]:
    _, session = await server.get(f"/sessions/{session_id}")
    return [message["role"] for message in session["messages"]]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("more", [{}, {"thread": False}])
async def test_the_runner_of_tools(client, server, streams, more):
    """It sends the results alone, and the server has what is before them."""
    question = user(
        [calls("weather", city="Rome")], [calls("weather", city="Oslo")], [says("Sunny.")]
    )
    runner = client.beta.messages.tool_runner(
        **body(question), tools=[weather], system="Be kind.", stream=streams, **more
    )
    message = await runner.until_done()
    assert shape(message) == [{"type": "text", "text": "Sunny."}]
    if not more:
        *said, last = await roles_of(server, session_id_of(message))
        assert said == ["system", "user", *["assistant", "tool"] * 2]
        assert last == "assistant"


async def test_the_memory_of_the_runner(client, tmp_path: Path):
    writes = calls("memory", command="create", path="/memories/a.md", file_text="Cats.")
    memory = BetaAsyncLocalFilesystemMemoryTool(str(tmp_path))
    runner = client.beta.messages.tool_runner(
        **body(user([writes], [says("Noted.")])), tools=[memory]
    )
    assert shape(await runner.until_done()) == [{"type": "text", "text": "Noted."}]
    assert (tmp_path / "memories" / "a.md").read_text() == "Cats."


async def test_a_thread_remembers(client, server):
    thread = client.beta.messages.thread(
        model="lorem", max_tokens=4000, system="Be kind.", tools=[WEATHER]
    )
    first = await thread.send(user([says("Hello.")]))
    async with thread.stream(user([calls("weather", city="Rome")], [says("Sunny.")])) as streamed:
        second = await streamed.get_final_message()
    assert second.stop_reason == "tool_use"  # the tools are of the first request
    assert thread.previous_message_id == second.id
    result = {"type": "tool_result", "tool_use_id": second.content[0].id, "content": "22 degrees"}
    third = await thread.send({"role": "user", "content": [result]})
    assert shape(third) == [{"type": "text", "text": "Sunny."}]
    session_id = session_id_of(first)
    assert session_id_of(third) == session_id
    begun = ["system", *["user", "assistant"] * 2]
    assert await roles_of(server, session_id) == [*begun, "tool", "assistant"]

    fork = client.beta.messages.create(
        **body(user([says("Once more.")])), thread=after(first), extra_headers=header("new")
    )
    assert session_id_of(await fork) != session_id
    await server.request("DELETE", f"/sessions/{session_id}")
    last = await thread.send(user([says("Still here.")]))  # all of it once more
    assert shape(last) == [{"type": "text", "text": "Still here."}]
    again = [*begun, "tool", "assistant", "user", "assistant"]
    assert await roles_of(server, session_id_of(last)) == again


def after(message: Any) -> dict[str, str]:
    return {"type": "continue", "previous_message_id": message.id}


def header(session_id: str) -> dict[str, str]:
    return {"X-Mochi-Session": session_id}


REPLY = {"role": "assistant", "content": "Yes."}
SYSTEM = {"role": "system", "content": "Be brief."}
UNSUPPORTED = "thread_unsupported_request"


@pytest.mark.parametrize(
    ("status", "error_code", "messages", "change"),
    [
        (400, UNSUPPORTED, [REPLY, user([says("Hi.")])], {}),
        (400, UNSUPPORTED, [user([says("Hi.")]), SYSTEM], {}),
        (400, UNSUPPORTED, [user([says("Hi.")]), REPLY], {"thread": {"type": "create"}}),
        (400, None, [user([says("Hi.")])], {"system": "Be brief."}),
        (400, None, [user([says("Hi.")])], {"tools": []}),
        (400, None, [user([says("Hi.")])], {"extra_headers": header("0123456789")}),
        (404, "thread_not_found", [user([says("Hi.")])], {"previous": "msg_0123456789abcdef"}),
        (404, "thread_not_found", [user([says("Hi.")])], {"previous": "msg_?"}),
        (
            404,
            "thread_not_found",
            [user([says("Hi.")])],
            {"previous": "msg_0123456789_0123456789abcdef"},
        ),
    ],
)
async def test_what_a_thread_cannot_do_is_said(client, status, error_code, messages, change):
    first = await client.beta.messages.create(
        **body(user([says("Hi.")])), thread={"type": "create"}
    )
    thread = {**after(first), "previous_message_id": change.pop("previous", first.id)}
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.beta.messages.create(**{**body(*messages), "thread": thread, **change})
    assert caught.value.status_code == status
    assert caught.value.body["error"].get("details", {}).get("error_code") == error_code


async def test_an_answer_that_is_not_complete_cannot_be_continued_yet(client):
    slow = user([says("One."), {"stall": {"seconds": 60}}])
    running = await client.beta.messages.create(
        **body(slow), thread={"type": "create"}, stream=True
    )
    begun = await anext(running)
    with pytest.raises(anthropic.ConflictError) as caught:
        await client.beta.messages.create(**body(user([says("Two.")])), thread=after(begun.message))
    await running.close()
    assert caught.value.body["error"]["details"] == {"error_code": "thread_continue_in_flight"}
