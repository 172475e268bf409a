"""The adapter for Anthropic, against its Messages API on a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from importlib import import_module
from typing import Any

import anyio
import orjson
import pytest
from pydantic import BaseModel

from mochi_server.errors import (
    ContextOverflow,
    MochiError,
    ModelNotFound,
    ProviderBusy,
    ProviderError,
    ProviderUnreachable,
    ThinkingNotSupported,
)
from mochi_server.protocol.messages import ToolCall
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import JsonObjectFormat, JsonSchemaFormat
from mochi_server.providers.anthropic.provider import AnthropicProvider
from mochi_server.providers.base import ContentDelta, Finish, ModelRequest
from tests.support.exact_vendors import HELLO, chunks_of, stored
from tests.support.fake_anthropic import (
    KEY,
    MODEL,
    PLAIN_MODEL,
    FakeAnthropic,
    block,
    call,
    end,
    start,
    text,
    thinking,
)
from tests.support.http_wire import Request
from tests.support.sse_vendor import Script, event

reply = partial(chunks_of, model=MODEL)
ADD = {"type": "function", "function": {"name": "add", "description": "Adds.",
       "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}  # fmt: skip


@pytest.fixture
async def fake() -> AsyncIterator[FakeAnthropic]:
    async with FakeAnthropic() as server:
        yield server


@pytest.fixture
async def provider(fake: FakeAnthropic) -> AsyncIterator[AnthropicProvider]:
    import_module(AnthropicProvider.module)  # of which a busy machine makes half a minute
    provider = AnthropicProvider("anthropic", api_key=KEY, base_url=fake.url)
    yield provider
    await provider.aclose()


def said(*parts: list[bytes], **fields: Any) -> Script:
    """A whole reply."""
    return Script(pieces=[start(), *(piece for part in parts for piece in part)], **fields)


async def test_text_and_counts_arrive_and_one_finish_is_last(provider, fake):
    fake.scripts = [Script(pieces=[start(7, cached=3), *text(0, "Hel", "lo"), *end("max_tokens")])]
    system = {"role": "system", "content": "Be brief."}
    options = ModelOptions(temperature=0.5)
    sent = {"model": PLAIN_MODEL, "messages": [system, *HELLO], "options": options}
    assert await reply(provider, **sent) == [
        ContentDelta("Hel"),
        ContentDelta("lo"),
        Finish(reason="length", eval_count=5, prompt_eval_count=10),
    ]
    assert fake.chats[0] == {
        "model": PLAIN_MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "stream": True,
        "system": "Be brief.",
        "max_tokens": 8192,
        "temperature": 0.5,
        "thinking": {"type": "disabled"},
    }


async def test_signed_thinking_goes_back_where_it_was(provider, fake):
    redacted = block(3, {"type": "redacted_thinking", "data": "secret"})
    fake.scripts = [
        said(
            thinking(0, "Hm", "m."),
            text(1, "Let me ", "see."),
            thinking(2, "So.", signature="sig:b"),
            redacted,
            call(4, "toolu_1", "add", '{"x"', ": 1}"),
            call(5, "toolu_2", "add", '{"x": 2}'),
            end("tool_use"),
        ),
        said(text(0, "Three."), end()),
    ]
    chunks = await reply(provider, tools=[ADD], think=True)
    assert chunks[-3:-1] == [
        ToolCall(id="toolu_1", name="add", arguments={"x": 1}),
        ToolCall(id="toolu_2", name="add", arguments={"x": 2}),
    ]
    again = [*HELLO, *stored(chunks, "one", "two")]
    assert await reply(provider, messages=again, tools=[ADD], think="high")
    _, assistant, user = fake.chats[1]["messages"]
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "Hmm.", "signature": "sig:a"},
        {"type": "text", "text": "Let me see."},
        {"type": "thinking", "thinking": "So.", "signature": "sig:b"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"x": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {"x": 2}},
    ]
    assert user["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "two"},
    ]
    assert fake.chats[1]["output_config"] == {"effort": "high"}
    assert fake.chats[1]["thinking"] == {"type": "adaptive", "display": "summarized"}


async def test_another_model_gets_no_signatures_and_thinks_in_the_next_turn_only(provider, fake):
    fake.scripts = [
        said(thinking(0, "Hm."), call(1, "toolu_1", "add", "{}"), end("tool_use")),
        said(text(0, "a"), end()),
        said(text(0, "a"), end()),
    ]
    history = [*HELLO, *stored(await reply(provider, tools=[ADD], think=True), "one")]
    await reply(provider, model=PLAIN_MODEL, messages=history, tools=[ADD], think=True)
    assert fake.chats[1]["thinking"] == {"type": "disabled"}
    assert [b["type"] for b in fake.chats[1]["messages"][1]["content"]] == ["tool_use"]
    history += [{"role": "assistant", "content": "One."}, *HELLO]
    await reply(provider, model=PLAIN_MODEL, messages=history, think="low")
    assert fake.chats[2]["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert fake.chats[2]["tool_choice"] == {"type": "none"}


async def test_too_little_room_to_think_in_is_named(fake):
    provider = AnthropicProvider("anthropic", api_key=KEY, base_url=fake.url, max_output_tokens=500)
    with pytest.raises(ThinkingNotSupported, match="500 tokens"):
        await reply(provider, model=PLAIN_MODEL, think=True)
    fake.scripts = [said(text(0, "a"), end())]
    await reply(provider, max_tokens=190_000)
    assert fake.chats[0]["max_tokens"] == 500
    await provider.aclose()


async def test_thinking_that_the_limit_has_cut_is_not_sent_back(provider, fake):
    """The API refuses a reply that ends with it."""
    fake.scripts = [
        said(thinking(0, "Hm."), text(1, "So"), thinking(2, "And."), end("max_tokens")),
        said(thinking(0, "Hm."), end("max_tokens")),
        said(text(0, "a"), end()),
    ]
    history = [*HELLO, *stored(await reply(provider, think=True)), *HELLO]
    history += [*stored(await reply(provider, messages=history, think=True)), *HELLO]
    await reply(provider, messages=history, think=True)
    assistants = [m["content"] for m in fake.chats[2]["messages"] if m["role"] == "assistant"]
    assert [[block["type"] for block in blocks] for blocks in assistants] == [["thinking", "text"]]


async def test_a_model_that_cannot_be_kept_from_thinking_gets_the_room(provider, fake):
    kinds = fake.models[MODEL]["capabilities"]["thinking"]["types"]
    kinds["disabled"] = {"supported": False}
    fake.scripts = [said(text(0, "a"), end()), said(text(0, "a"), end())]
    await reply(provider)
    await reply(provider, max_tokens=100)
    assert "thinking" not in fake.chats[0]
    assert [chat["max_tokens"] for chat in fake.chats] == [8192 + 8192, 100 + 8192]


@pytest.mark.parametrize("then", ["hold", "cut"])
async def test_a_reply_ends_where_it_says_so(provider, fake, then):
    """Gateways may keep the connection open after it, or break it off."""
    called = call(1, "one", "add", '{"x": 1}')
    fake.scripts = [said(text(0, "a"), called, end("tool_use"), then=then)]
    chunks = await reply(provider)
    assert chunks[:2] == [ContentDelta("a"), ToolCall(id="one", name="add", arguments={"x": 1})]
    assert isinstance(chunks[-1], Finish)
    if then == "hold":
        with anyio.fail_after(30):
            await fake.left.wait()


ODD_EVENTS: list[list[bytes]] = [
    [*text(0, "a"), event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, "x")],
    [event({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}, "x"),
     event({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "a"}}, "x"), *end()],
    [*block(0, {"type": "new_block", "odd": 1}, {"type": "new_delta"}), *text(1, "a"), *end()],
    [*block(0, {"type": "thinking", "thinking": ""}), *text(1, "a"), *end()],
]  # fmt: skip


@pytest.mark.parametrize("events", ODD_EVENTS)
async def test_services_that_leave_fields_out_are_understood(provider, fake, events):
    begin = {"type": "message_start", "message": {"type": "message", "role": "assistant"}}
    fake.scripts = [Script(pieces=[event(begin, "message_start"), *events])]
    first, finish = await reply(provider)
    assert first == ContentDelta("a")
    assert isinstance(finish, Finish)
    assert finish.reason == "stop"


@pytest.mark.parametrize("odd", ["\ud83d", 2**70, ["x"]])
async def test_whatever_comes_can_be_stored(provider, fake, odd):
    redacted = block(1, {"type": "redacted_thinking", "data": odd})
    fake.scripts = [said(thinking(0, "Hm.", signature=odd), redacted, text(2, "a"), end(odd))]
    finish = (await reply(provider))[-1]
    assert orjson.dumps(finish)


async def test_a_call_may_come_whole(provider, fake):
    """As some gateways send it: the arguments at the beginning of the block, no fragments."""
    begun = {"type": "tool_use", "id": "a", "name": "add", "input": {"x": 1}}
    empty, part = ({"type": "input_json_delta", "partial_json": p} for p in ("", '{"x": 2}'))
    again = {**begun, "id": "b"}
    fake.scripts = [said(block(0, begun, empty), block(1, again, empty, part), end("tool_use"))]
    assert (await reply(provider))[:2] == [
        ToolCall(id="a", name="add", arguments={"x": 1}),
        ToolCall(id="b", name="add", arguments={"x": 2}),
    ]


@pytest.mark.parametrize("arguments", [(), ('{"x"',)])
@pytest.mark.parametrize(("reason", "words"), [("max_tokens", "limit"), ("refusal", "refusal")])
async def test_a_call_that_was_cut_is_not_made(provider, fake, arguments, reason, words):
    fake.scripts = [said(call(0, "toolu_1", "add", *arguments), end(reason))]
    with pytest.raises(ProviderError, match=f"{words}'? within a call of 'add'"):
        await reply(provider)


@pytest.mark.parametrize(
    ("told", "reason", "sequence"),
    [
        (end("refusal"), "refusal", None),
        (end("pause_turn"), "pause_turn", None),
        (end("model_context_window_exceeded"), "length", None),
        (end("stop_sequence", stop_sequence="###"), "stop", "###"),
    ],
)
async def test_other_ends_are_told(provider, fake, told, reason, sequence):
    fake.scripts = [said(text(0, "a"), told)]
    finish = (await reply(provider))[-1]
    assert isinstance(finish, Finish)
    assert (finish.reason, finish.stop_sequence) == (reason, sequence)


class Town(BaseModel):
    name: str


async def test_a_model_without_a_mode_for_schemas_replies_by_a_call_in_pieces_or_whole(
    provider, fake
):
    pieces = call(0, "toolu_1", "reply", '{"name": ', '"Rome"}')
    whole = block(0, {"type": "tool_use", "id": "a", "name": "reply", "input": {"name": "Rome"}})
    fake.scripts = [said(pieces, end()), said(whole, end("tool_use"))]
    request = ModelRequest(model=PLAIN_MODEL, messages=HELLO)
    for _ in range(2):
        assert await provider.structured(request, Town) == Town(name="Rome")
        assert fake.chats[-1]["tool_choice"] == {"type": "tool", "name": "reply"}


async def test_a_schema_goes_beside_tools_where_the_model_has_a_mode_for_it(provider, fake):
    """The other way to hold it to a form is a tool that it must call."""
    properties = {"name": {"type": "string"}}
    schema = JsonSchemaFormat.of({"type": "object", "properties": properties, "required": ["name"]})
    any_object = JsonObjectFormat(type="json_object")
    fake.scripts = [said(text(0, "{}"), end()), said(call(0, "toolu_1", "reply", "{}"), end())]
    await reply(provider, tools=[ADD], response_format=schema)
    form = fake.chats[0]["output_config"]["format"]
    assert (form["type"], form["schema"]["required"]) == ("json_schema", ["name"])
    assert [tool["name"] for tool in fake.chats[0]["tools"]] == ["add"]
    assert (await reply(provider, response_format=any_object))[0] == ContentDelta("{}")
    assert fake.chats[1]["tool_choice"] == {"type": "tool", "name": "reply"}
    assert provider.takes_format(MODEL, schema, tools=True)
    for model, asked in ((MODEL, any_object), (PLAIN_MODEL, schema)):
        assert provider.takes_format(model, asked, tools=False)
        assert not provider.takes_format(model, asked, tools=True)
    choice = JsonSchemaFormat.of({"anyOf": [{"type": "object"}]})  # no tool may have that
    assert not provider.takes_format(PLAIN_MODEL, choice, tools=False)


def failure(status: int, words: str, **headers: str) -> Script:
    kind = FakeAnthropic().error(status, words)
    return Script(status=status, body=kind, headers=headers)


OVERLOADED = event({"type": "error", "error": {"type": "overloaded_error", "message": "Full"}},
                   "error")  # fmt: skip


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (failure(400, "prompt is too long: 210 tokens > 200 maximum"), ContextOverflow, "window"),
        (said(text(0, "a"), [OVERLOADED]), ProviderBusy, "Full"),
        (said(text(0, "a")), ProviderError, "broke off"),
        (said(text(0, "a"), then="cut"), ProviderUnreachable, "reached"),
        (said([b"event: message_delta\ndata: {oops\n\n"]), ProviderError, "anthropic"),
    ],
)
async def test_each_failure_has_its_error_and_the_services_own_words(
    provider, fake, script, kind, words
):
    fake.scripts = [script]
    with pytest.raises(MochiError, match=words) as caught:
        await reply(provider)
    assert type(caught.value) is kind
    assert len(fake.chats) == 1
    assert KEY not in str(caught.value.as_json())
    if kind is ContextOverflow:
        assert caught.value.details["n_prompt_tokens"] == 210
        assert caught.value.details["n_ctx"] == 200


async def test_a_stream_that_begins_with_being_full_is_opened_again(provider, fake):
    fake.scripts = [Script(pieces=[start(), OVERLOADED]), said(text(0, "a"), end())]
    assert (await reply(provider))[0] == ContentDelta("a")


async def test_retired_models_are_not_listed(provider, fake):
    fake.models[PLAIN_MODEL]["lifecycle"] = "retired"
    assert [model.name for model in await provider.list_models()] == [MODEL]


async def test_models_come_with_what_they_can_and_how_much_they_read(provider, fake):
    first, second = await provider.list_models()
    assert (first.name, first.context_length, first.provider) == (MODEL, 200_000, "anthropic")
    assert first.capabilities == ["completion", "tools", "thinking", "vision"]
    assert await provider.show_model(second.name) == second
    assert len(fake.requests) == 1
    with pytest.raises(ModelNotFound, match="claude-9"):
        await provider.show_model("claude-9")
    assert await provider.check() is True


class FakeGateway(FakeAnthropic):
    """A service that has the messages of the API, and not its list of models."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__()
        self.instead = Script(status=status, body=body)

    def route(self, request: Request) -> Script:
        if request.path.startswith("/v1/models"):
            return self.instead
        return super().route(request)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"detail": "Not Found"}),
        (404, {"error": {"code": 404, "message": "No route"}}),
        (405, {"detail": "Method Not Allowed"}),
        (501, {}),
    ],
)
async def test_a_gateway_without_a_list_of_models_is_believed_to_have_every_model(status, body):
    async with FakeGateway(status, body) as gateway:
        provider = AnthropicProvider("it", api_key=KEY, base_url=gateway.url)
        await provider.prepare()
        assert await provider.list_models() == []
        assert await provider.check() is True
        model = await provider.show_model(PLAIN_MODEL)
        assert (model.name, model.provider, model.context_length) == (PLAIN_MODEL, "it", None)
        assert model.capabilities == ["completion", "tools", "thinking", "vision"]
        asked = len(gateway.requests)
        gateway.scripts = [said(text(0, "a"), end())] * 2
        assert (await reply(provider, model=PLAIN_MODEL))[0] == ContentDelta("a")
        assert (await reply(provider, model=PLAIN_MODEL, think="low"))[0] == ContentDelta("a")
        assert len(gateway.requests) == asked + 2
        assert gateway.chats[1]["thinking"]["type"] == "enabled"
        with pytest.raises(ModelNotFound, match="nobody"):
            await reply(provider, model="nobody")
        await provider.aclose()


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_a_list_that_is_refused_is_an_error(status):
    async with FakeGateway(status, {"detail": "No"}) as gateway:
        provider = AnthropicProvider("it", api_key=KEY, base_url=gateway.url)
        for asked in (provider.list_models(), provider.show_model(MODEL)):
            with pytest.raises(ProviderError, match="No"):
                await asked
        await provider.aclose()


async def test_a_wrong_key_is_an_error_that_does_not_show_it(fake):
    provider = AnthropicProvider("anthropic", api_key="sk-wrong", base_url=fake.url)
    with pytest.raises(ProviderError, match="invalid x-api-key") as caught:
        await provider.list_models()
    assert "sk-wrong" not in str(caught.value.as_json())
    assert await provider.check() is False
    await provider.aclose()


async def test_no_header_comes_from_variables_that_are_no_settings(provider, monkeypatch):
    """The SDK would send them to any address, and fail where they are not ASCII."""
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Api-Key: other\nX-Mine: Zürich")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "other")
    assert await provider.list_models()


async def test_a_call_is_demanded_without_thinking(provider, fake):
    fake.scripts = [said(call(0, "toolu_1", "reply", "{}"), end("tool_use"))]
    named = {**ADD, "function": {**ADD["function"], "name": "reply"}}
    made = await reply(provider, tools=[named], must_call=True, think=True)
    assert fake.chats[0]["tool_choice"] == {"type": "any"}
    assert fake.chats[0].get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert [each.name for each in made if isinstance(each, ToolCall)] == ["reply"]
