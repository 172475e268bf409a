"""Chat completions, by OpenAI's own package against a real server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import anyio
import openai
import orjson
import pytest
import pytest_asyncio
from pydantic import BaseModel

from tests.support.decisions import decide_next
from tests.support.images import png
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
SERVER_ADD = {"type": "mochi", "names": ["add"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    options = {"api_key": "none", "max_retries": 0, "timeout": 60}
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", **options) as made:
        yield made


def user(*replies: list[dict[str, Any]]) -> dict[str, str]:
    return {"role": "user", "content": scripted(*replies)}


async def ask(client: openai.AsyncOpenAI, *messages: Any, **options: Any) -> Any:
    body = {"model": "lorem", "messages": messages, **options}
    return await client.chat.completions.create(**body)


async def chunks(client: openai.AsyncOpenAI, *messages: Any, **options: Any) -> list[Any]:
    stream = await ask(client, *messages, stream=True, **options)
    return [chunk async for chunk in stream]


def text_of(received: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in received if chunk.choices)


async def test_an_unknown_path_is_an_error_in_their_shape(server: Server) -> None:
    for path in ("/v1", "/v1/", "/v1/nothing"):
        async with server.http.get(server.url + path) as response:
            assert response.status == 404
            assert (await response.json())["error"]["type"] == "not_found_error"


async def test_an_answer_in_one_piece(client):
    answer = await ask(client, {"role": "system", "content": "Hi"}, user([says("Hello there.")]))
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello there.")
    assert choice.finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens > 0
    assert answer.object == "chat.completion"
    assert answer.mochi["dropped_messages"] == 0


async def test_a_stream(client):
    usage = {"stream_options": {"include_usage": True}}
    received = await chunks(client, user([thinks("Hm.", "Hello.")]), **usage)
    assert text_of(received) == "Hello."
    assert received[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in received}) == 1
    *_, last, counted = received
    assert last.choices[0].finish_reason == "stop"
    assert counted.choices == []
    assert counted.usage.completion_tokens > 0
    thoughts = [chunk.choices[0].delta.model_extra for chunk in received if chunk.choices]
    assert "".join(extra.get("reasoning_content", "") for extra in thoughts) == "Hm."


async def test_nothing_is_kept(client, server):
    _, before = await server.get("/sessions")
    await ask(client, user([says("Hello.")]))
    _, after = await server.get("/sessions")
    assert after == before


@pytest.mark.parametrize("stream", [False, True])
async def test_a_function_of_the_client(client, stream):
    question = user([calls("weather", city="Rome")], [says("Sunny.")])
    if stream:
        received = await chunks(client, question, tools=[WEATHER])
        [wanted] = [each for c in received for each in c.choices[0].delta.tool_calls or ()]
        reason = received[-1].choices[0].finish_reason
    else:
        choice = (await ask(client, question, tools=[WEATHER])).choices[0]
        [wanted], reason = choice.message.tool_calls, choice.finish_reason
    assert reason == "tool_calls"
    assert wanted.function.name == "weather"
    assert wanted.function.arguments == '{"city":"Rome"}'
    call = {
        "id": wanted.id,
        "type": "function",
        "function": {"name": "weather", "arguments": wanted.function.arguments},
    }
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": wanted.id, "content": "22 degrees"}
    answer = await ask(client, question, reply, result, tools=[WEATHER])
    assert answer.choices[0].message.content == "Sunny."


async def test_a_tool_of_the_server_after_a_person_has_allowed_it(client, server):
    question = user([calls("add", a=2, b=3)], [says("It is 5.")])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        received = await chunks(client, question, tools=[SERVER_ADD])
    assert text_of(received) == "It is 5."
    assert not any(chunk.choices[0].delta.tool_calls for chunk in received)


async def test_tools_of_both_in_one_reply_of_a_session(client, server):
    question = user([calls("weather", city="Rome"), calls("add", a=2, b=3)], [says("Both.")])
    options = {"tools": [WEATHER, SERVER_ADD]}
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        new = {"extra_headers": {"X-Mochi-Session": "new"}}
        raw = await client.chat.completions.with_raw_response.create(
            model="lorem", messages=[question], **options, **new
        )
    session_id = raw.headers["X-Mochi-Session"]
    [wanted] = raw.parse().choices[0].message.tool_calls
    assert wanted.function.name == "weather"
    result = {"role": "tool", "tool_call_id": wanted.id, "content": "22 degrees"}
    named = {"metadata": {"session_id": session_id}}
    answer = await ask(client, question, {"role": "assistant"}, result, **options, **named)
    assert answer.choices[0].message.content == "Both."
    assert answer.mochi["session_id"] == session_id
    _, session = await server.get(f"/sessions/{session_id}")
    roles = [message["role"] for message in session["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert {each["content"] for each in session["messages"][2:4]} == {"5", "22 degrees"}


@pytest.mark.parametrize("stream", [False, True])
async def test_failures_before_the_first_word_have_their_status(client, stream):
    question = user([fails(429, "Too many.", retry_after=7)])
    with pytest.raises(openai.InternalServerError, match="Too many") as caught:
        await ask(client, question, stream=stream)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["Retry-After"] == "7"


async def test_a_failure_later_is_raised_in_the_stream(client):
    question = user([says("One two three four."), fails(500, "Gone.", after_words=2)])
    received = []

    async def read():
        async for chunk in await ask(client, question, stream=True):
            received.append(chunk)  # noqa: PERF401 - what came before the failure counts

    with pytest.raises(openai.APIError, match="Gone"):
        await read()
    assert text_of(received).strip()


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0"),
    ],
)
async def test_bad_bodies_are_refused_in_the_vendors_shape(client, change, param):
    body = {"model": "lorem", "messages": [user([says("Hi.")])], **change}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**body)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param.startswith(param)


async def test_what_is_not_there(client):
    with pytest.raises(openai.NotFoundError) as caught:
        await ask(client, user([says("Hi.")]), extra_headers={"X-Mochi-Session": "0123456789"})
    assert caught.value.code == "SESSION_NOT_FOUND"
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve("file-1")


async def test_the_models_are_listed(client):
    listed = [model.id async for model in client.models.list()]
    assert "lorem" in listed
    assert (await client.models.retrieve("lorem")).object == "model"


async def test_an_image_reaches_the_model(client, server):
    pixel = f"data:image/png;base64,{b64encode(png()).decode()}"
    parts = [
        {"type": "text", "text": scripted([says("A pixel.")])},
        {"type": "image_url", "image_url": {"url": pixel}},
    ]
    new = {"extra_headers": {"X-Mochi-Session": "new"}}
    answer = await ask(client, {"role": "user", "content": parts}, **new)
    _, session = await server.get(f"/sessions/{answer.mochi['session_id']}")
    [attached] = session["messages"][0]["attachments"]
    assert attached["media_type"] == "image/png"
    parts[1]["image_url"]["url"] = "https://example.com/cat.png"
    with pytest.raises(openai.BadRequestError, match="data URL"):
        await ask(client, {"role": "user", "content": parts})


class Town(BaseModel):
    """What the model is to answer."""

    city: str
    people: int


async def test_a_structured_answer(client):
    question = [{"role": "user", "content": "The largest town?"}]
    answer = await client.chat.completions.parse(
        model="lorem", messages=question, response_format=Town
    )
    assert isinstance(answer.choices[0].message.parsed, Town)
    received = await chunks(client, *question, response_format={"type": "json_object"})
    assert text_of(received) == "{}"
    schema = {"name": "town", "schema": {"type": "nothing"}}
    with pytest.raises(openai.BadRequestError):
        await ask(client, *question, response_format={"type": "json_schema", "json_schema": schema})


async def test_embeddings(client):
    texts = [f"text {number}" for number in range(100)]
    made = await client.embeddings.create(model="lorem", input=texts)  # base64, by the package
    assert [each.index for each in made.data] == [*range(100)]
    assert {len(each.embedding) for each in made.data} == {64}
    assert made.usage.prompt_tokens == made.usage.total_tokens > 100
    one = await client.embeddings.create(model="lorem", input="text 7", encoding_format="float")
    assert one.data[0].embedding == pytest.approx(made.data[7].embedding, abs=1e-6)
    few = await client.embeddings.create(model="lorem", input="text 7", dimensions=8)
    assert len(few.data[0].embedding) == 8
    with pytest.raises(openai.BadRequestError):
        await client.embeddings.create(model="lorem", input=[[1, 2, 3]])


async def test_completions_of_texts(client):
    prompt = scripted([thinks("Hm.", "Hello there.")])
    made = await client.completions.create(model="lorem", prompt=prompt)
    [choice] = made.choices
    assert (choice.text, choice.finish_reason) == ("Hello there.", "stop")
    assert (made.object, made.id[:5]) == ("text_completion", "cmpl-")
    assert made.usage.completion_tokens > 0
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await client.completions.create(model="lorem", prompt=[prompt], **options)
    *parts, last, counted = [part async for part in stream]
    assert "".join(part.choices[0].text for part in parts) == "Hello there."
    assert {part.object for part in parts} == {"text_completion"}
    assert (last.choices[0].text, last.choices[0].finish_reason) == ("", "stop")
    assert counted.usage == made.usage
    for wrong in ({"prompt": [1, 2]}, {"prompt": ["a", "b"]}, {"echo": True}, {"suffix": "x"}):
        with pytest.raises(openai.BadRequestError):
            await client.completions.create(**{"model": "lorem", "prompt": "Hi", **wrong})


ALLOWED = {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}
FORCED = [
    ({"type": "allowed_tools", "allowed_tools": ALLOWED}, [SERVER_ADD, WEATHER]),
    ("required", [WEATHER]),
    ({"type": "function", "function": {"name": "weather"}}, [SERVER_ADD, WEATHER]),
]


@pytest.mark.parametrize(("choice", "tools"), FORCED)
async def test_a_forced_tool_is_called_with_arguments_of_its_schema(client, choice, tools):
    """In test mode; its result is answered with a text, as the client forces no other call."""
    question = {"role": "user", "content": "How is the weather?"}
    [made] = (await ask(client, question, tools=tools, tool_choice=choice)).choices
    [wanted] = made.message.tool_calls
    assert (wanted.function.name, made.finish_reason) == ("weather", "tool_calls")
    assert orjson.loads(wanted.function.arguments) == {"city": "Lorem ipsum"}


async def test_only_the_first_reply_must_call_a_tool(client, server):
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        answer = await ask(
            client,
            {"role": "user", "content": "Add."},
            tools=[SERVER_ADD],
            tool_choice="required",
        )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content.endswith("Add.")


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "add"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "add"}}],
            },
        },
    ],
)
async def test_a_tool_of_the_session_is_called_where_the_choice_names_it(client, server, choice):
    session = await server.new_session("lorem", tool_settings={"tools": ["add"]})
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        answer = await ask(
            client,
            {"role": "user", "content": "Add."},
            tool_choice=choice,
            extra_headers={"X-Mochi-Session": session},
        )
    assert answer.choices[0].message.content.endswith("Add.")
    _, stored = await server.get(f"/sessions/{session}")
    assert [each["role"] for each in stored["messages"][-3:]] == ["assistant", "tool", "assistant"]


async def test_a_forced_tool_that_is_not_there_is_refused(client):
    named = {"type": "function", "function": {"name": "tides"}}
    for options in ({"tool_choice": "required"}, {"tools": [WEATHER], "tool_choice": named}):
        with pytest.raises(openai.BadRequestError, match="tool_choice"):
            await ask(client, user([says("Hi.")]), **options)
