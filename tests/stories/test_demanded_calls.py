"""Calls that a client demands of models whose provider cannot demand any, as Ollama's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from mochi_server.errors import ToolsNotSupported
from mochi_server.protocol.messages import ToolMessage
from mochi_server.sessions.types import ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.text_calls import TOOLS
from tests.support.turns import Bench, text_of

CONVERT, WEATHER = TOOLS[:2]
ROME = '{"city": "Rome"}'
UNABLE = "gemma2:2b"


class Town(BaseModel):
    """A town."""

    name: str
    people: int


@pytest.fixture
async def server(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Server]:
    async with running_server(data_dir=tmp_path, ollama=ollama) as running:
        yield running


async def demanded(engine: Bench, tools: list[Any], **fields: Any) -> tuple[str, list[Any], Any]:
    """The text that a client is shown, the calls that it gets, and what was ignored."""
    session = await engine.session(fields.pop("model", "qwen3:14b"))
    events = await engine.turn(session, client_tools=tools, must_call=True, **fields)
    complete = events[-2].payload()
    calls = complete.get("client_calls", ())
    return (
        text_of(events),
        [(each["name"], each["arguments"]) for each in calls],
        complete.get("ignored_options"),
    )


async def test_the_only_tool_is_the_form_of_the_reply(engine: Bench, ollama: FakeOllama) -> None:
    ollama.reply([*ROME])
    assert await demanded(engine, [WEATHER]) == ("", [("get_weather", {"city": "Rome"})], None)
    [chat] = ollama.chats
    assert "tools" not in chat
    assert chat["format"] == WEATHER["function"]["parameters"]
    assert "get_weather(city: string, days?: integer)" in chat["messages"][0]["content"]


async def test_one_of_several_is_called_by_its_name(engine: Bench, ollama: FakeOllama) -> None:
    ollama.reply([f'{{"name": "get_weather", "arguments": {ROME}}}'])
    said = await demanded(engine, [CONVERT, WEATHER])
    assert said == ("", [("get_weather", {"city": "Rome"})], None)
    form = ollama.chats[0]["format"]
    assert form["type"] == "object"  # as vendors demand it
    calls = form["properties"]["tool_call"]["anyOf"]
    assert [each["properties"]["name"] for each in calls] == [
        {"const": "convert_units"},
        {"const": "get_weather"},
    ]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (f"```json\n{ROME}\n```", {"city": "Rome"}),
        (
            f'<tool_call>{{"name": "get_weather", "arguments": {ROME}}}</tool_call>',
            {"city": "Rome"},
        ),
        ('{"city": "Rome", "days": null}', {"city": "Rome"}),
        ("{'city': 'Rome',}", {"city": "Rome"}),
        (f"Here it is: {ROME} I hope that this helps.", {"city": "Rome"}),
        (f"He wants to know it.\n</think>\n\n{ROME}", {"city": "Rome"}),
        ('{"properties": {"city": "Rome"}, "required": ["city"]}', {"city": "Rome"}),
        (f'{{"arguments": {ROME}}}', {"city": "Rome"}),
        (f'{{"get_weather": {ROME}}}', {"city": "Rome"}),
        ('{"arguments": "{\\"city\\": \\"Rome\\"}"}', {"city": "Rome"}),
        ('{"name": "get_weather", "city": "Rome"}', {"city": "Rome"}),
    ],
)
async def test_a_server_that_ignores_the_form_is_understood(
    engine: Bench, ollama: FakeOllama, text: str, arguments: Any
) -> None:
    ollama.reply([*text])
    assert await demanded(engine, [WEATHER]) == ("", [("get_weather", arguments)], None)


@pytest.mark.parametrize(
    "text", [f'{{"tool_call": {{"get_weather": {ROME}}}}}', f'{{"get_weather": {ROME}}}']
)
async def test_one_of_several_is_called_under_its_name(
    engine: Bench, ollama: FakeOllama, text: str
) -> None:
    ollama.reply([text])
    said = await demanded(engine, [CONVERT, WEATHER])
    assert said == ("", [("get_weather", {"city": "Rome"})], None)


STRICT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "nickname": {"type": ["string", "null"]}},
    "required": ["name", "nickname"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": True}
RECORD = '{"id": 1, "type": "invoice", "description": "Rent", "required": true}'


@pytest.mark.parametrize(
    ("schema", "text", "arguments"),
    [
        (STRICT, '{"save": {"name": "Ada", "nickname": null}}', {"name": "Ada", "nickname": None}),
        (OPEN, RECORD, json.loads(RECORD)),
    ],
)
async def test_what_a_schema_says_is_kept(
    engine: Bench, ollama: FakeOllama, schema: Any, text: str, arguments: Any
) -> None:
    save = {"type": "function", "function": {"name": "save", "parameters": schema}}
    ollama.reply([text])
    assert await demanded(engine, [save]) == ("", [("save", arguments)], None)


async def test_each_object_is_a_call(engine: Bench, ollama: FakeOllama) -> None:
    ollama.reply([f'{ROME}\n{{"city": "Oslo"}}\n{ROME}'])
    _, calls, _ = await demanded(engine, [WEATHER])
    assert [arguments["city"] for _, arguments in calls] == ["Rome", "Oslo"]


async def test_a_call_of_a_tool_without_parameters(engine: Bench, ollama: FakeOllama) -> None:
    now = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
    for text in ("{}", '{"name": "now", "arguments": {}}', '{"name": "now"}', '{"now": {}}'):
        ollama.reply([text])
        assert await demanded(engine, [now]) == ("", [("now", {})], None)


async def test_a_call_that_comes_as_text_as_well_is_one(engine: Bench, ollama: FakeOllama) -> None:
    call = {"name": "get_weather", "arguments": {"city": "Rome"}}
    ollama.reply([ROME], tool_calls=[call])
    assert await demanded(engine, [WEATHER]) == ("", [("get_weather", {"city": "Rome"})], None)


@pytest.mark.parametrize(
    "text",
    [
        *("It is sunny.", "[1]", '{"city": "Ro', '{"place": {"city": "Rome"}, "days": ['),
        '{"city": "Rome"}\n{"city": "Os',
        "<function=get_weather>\n<parameter=city>Ro",
    ],
)
async def test_what_is_no_call_is_shown(engine: Bench, ollama: FakeOllama, text: str) -> None:
    ollama.reply([*text], done_reason="length")
    assert await demanded(engine, [WEATHER]) == (text, [], None)


async def test_a_model_that_says_nothing_behind_a_result_is_held_to_a_call_again(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await engine.session()
    ollama.reply(tool_calls=[{"name": "get_weather", "arguments": {"city": "Oslo"}}])
    events = await engine.turn(session, client_tools=[WEATHER])
    [call] = events[-2].payload()["client_calls"]  # type: ignore[misc]
    result = ToolMessage(content="Snow.", tool_call_id=call["id"])
    ollama.reply([""])
    ollama.reply([ROME])
    options: Any = {"client_tools": [WEATHER], "must_call": True}
    events = await engine.turn(session, None, new_messages=[result], **options)
    [again] = events[-2].payload()["client_calls"]  # type: ignore[misc]
    assert again["arguments"] == {"city": "Rome"}
    assert "format" in ollama.chats[-1]


async def test_references_and_words_that_grammars_lack(engine: Bench, ollama: FakeOllama) -> None:
    town = {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^\\d+$"}}}
    schema = {
        "type": "object",
        "properties": {"pattern": {"$ref": "#/$defs/Town"}},
        "$defs": {"Town": town},
    }
    visit = {"type": "function", "function": {"name": "visit", "parameters": schema}}
    await demanded(engine, [visit, WEATHER])
    form = ollama.chats[0]["format"]
    [call, _] = form["properties"]["tool_call"]["anyOf"]
    assert call["properties"]["arguments"] == {"$ref": "#/$defs/arguments0"}
    moved = form["$defs"]["arguments0"]
    assert moved["properties"]["pattern"] == {"$ref": "#/$defs/arguments0/$defs/Town"}
    assert moved["$defs"]["Town"]["properties"] == {"zip": {"type": "string"}}


@pytest.mark.parametrize("tool_mode", ["native", "prompted"])
@pytest.mark.parametrize("must_call", [False, True])
async def test_a_schema_with_words_of_a_wrong_kind_is_read_as_far_as_it_goes(
    engine: Bench, ollama: FakeOllama, tool_mode: str, *, must_call: bool
) -> None:
    broken: list[Any] = [
        {"required": [{}, "city"], "properties": {"city": {"type": [{}, "string"]}}},
        *({"properties": each} for each in (["a"], "a", 1)),
        *({"required": each} for each in (5, "city", {"a": 1}, [[], None])),
        {"properties": {"city": {"type": 5, "allOf": 7, "anyOf": "x", "enum": {}, "$ref": 1}}},
        {"anyOf": [{"required": [{}]}, {"properties": []}, 3], "$defs": [], "allOf": "x"},
    ]
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "description": "", "parameters": each}}
        for n, each in enumerate(broken)
    ]
    settings = ToolSettings(tool_mode=tool_mode)
    for offered in (tools, *([tool] for tool in tools)):
        name = str(offered[-1]["function"]["name"])
        session = await engine.session(tool_settings=settings)
        call = f'{{"name": "{name}", "arguments": {ROME}}}'
        ollama.reply([ROME if must_call and len(offered) == 1 else call])
        events = await engine.turn(session, client_tools=offered, must_call=must_call)
        [made] = events[-2].payload()["client_calls"]  # type: ignore[misc]
        assert (made["name"], made["arguments"]) == (name, {"city": "Rome"})


async def test_a_model_without_tools_can_be_made_to_call(engine: Bench, ollama: FakeOllama) -> None:
    ollama.add_model(UNABLE, capabilities=["completion"])
    ollama.reply([ROME])
    _, calls, _ = await demanded(engine, [WEATHER], model=UNABLE)
    assert calls == [("get_weather", {"city": "Rome"})]
    with pytest.raises(ToolsNotSupported):
        await engine.turn(await engine.session(UNABLE), client_tools=[WEATHER])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs
async def test_structured_output_of_langchain_and_pydantic_ai(
    server: Server, ollama: FakeOllama
) -> None:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes seconds
    from pydantic_ai import Agent  # noqa: PLC0415
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    options: Any = {"base_url": f"{server.url}/v1", "api_key": "none"}
    async with DefaultAsyncHttpxClient() as http:  # it closes none of its own
        model = ChatOpenAI(model="qwen3:14b", max_retries=0, http_async_client=http, **options)
        formed = model.with_structured_output(Town, method="function_calling")
        assert isinstance(await formed.ainvoke("Which town?"), Town)
    async with AsyncOpenAI(**options) as client:
        provider = OpenAIProvider(openai_client=client)
        agent = Agent(OpenAIChatModel("qwen3:14b", provider=provider), output_type=Town)
        assert isinstance((await agent.run("Which town?")).output, Town)
    assert len(ollama.chats) == 2


NAMED = {"type": "function", "function": {"name": "get_weather"}}
WIRES = {
    "openai": ("/v1/chat/completions", {"tools": [WEATHER], "tool_choice": NAMED}),
    "anthropic": (
        "/v1/messages",
        {
            "max_tokens": 100,
            "tools": [{"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}],
            "tool_choice": {"type": "tool", "name": "get_weather"},
        },
    ),
    "responses": (
        "/v1/responses",
        {
            "tools": [{"type": "function", **WEATHER["function"]}],
            "tool_choice": {"type": "function", "name": "get_weather"},
        },
    ),
}
"""What instructor, LangChain and the AI SDK send for an object, by wire."""


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_wires_hand_on_an_ordinary_call(
    server: Server, ollama: FakeOllama, wire: str, *, stream: bool
) -> None:
    path, fields = WIRES[wire]
    said: Any = [{"role": "user", "content": "How is the weather in Rome?"}]
    body = {"model": "qwen3:14b", "stream": stream, **fields}
    body["input" if wire == "responses" else "messages"] = said
    ollama.reply([*ROME])
    async with server.http.post(f"{server.url}{path}", json=body) as response:
        assert response.status == 200
        answer = await response.text()
    assert "get_weather" in answer
    assert "ignored_options" not in answer
    assert "output_text.delta" not in answer
    if not stream:
        assert '{"city":"Rome"}' in answer.replace("\\", "").replace(" ", "")
