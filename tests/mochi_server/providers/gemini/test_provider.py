"""The adapter for Gemini, against its ``generateContent`` on a socket."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from importlib import import_module
from typing import Any

import orjson
import pytest

from mochi_server.errors import (
    ContextOverflow,
    MochiError,
    ModelNotFound,
    ProviderBusy,
    ProviderError,
    ProviderUnreachable,
)
from mochi_server.protocol.messages import ToolCall
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import JsonObjectFormat, JsonSchemaFormat
from mochi_server.providers.base import Chunk, ContentDelta, Finish, ModelRequest, ThinkingDelta
from mochi_server.providers.gemini.provider import GeminiProvider
from tests.support.exact_vendors import HELLO, chunks_of, stored
from tests.support.fake_gemini import KEY, MODEL, FakeGemini, call, listed, piece, signature
from tests.support.sse_vendor import Script, event
from tests.support.waiting import until

reply = partial(chunks_of, model=MODEL)
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds.",
       "parameters": SCHEMA}}  # fmt: skip
A = piece({"text": "a"})
END = piece(reason="STOP", generated=5)


@pytest.fixture
async def fake() -> AsyncIterator[FakeGemini]:
    async with FakeGemini() as server:
        yield server


@pytest.fixture
async def provider(fake: FakeGemini) -> AsyncIterator[GeminiProvider]:
    import_module(GeminiProvider.module)  # of which a busy machine makes half a minute
    provider = GeminiProvider("gemini", api_key=KEY, base_url=fake.url)
    yield provider
    await provider.aclose()


async def test_text_and_counts_arrive_and_one_finish_is_last(provider, fake):
    last = piece({"text": "lo"}, reason="MAX_TOKENS", prompt=8, generated=5, thoughts=4)
    fake.scripts = [Script(pieces=[piece({"text": "Hel"}), last])]
    system = {"role": "system", "content": "Be brief."}
    options = ModelOptions(temperature=0.5)
    assert await reply(provider, messages=[system, *HELLO], options=options) == [
        ContentDelta("Hel"),
        ContentDelta("lo"),
        Finish(reason="length", eval_count=9, prompt_eval_count=8),
    ]
    body = fake.chats[0]
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hello"}]}]
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    # The model thinks unasked, which counts.
    assert body["generationConfig"] == {"temperature": 0.5, "maxOutputTokens": 8192 + 24576}


async def test_signatures_go_back_where_they_were(provider, fake):
    fake.scripts = [
        Script(
            pieces=[
                piece({"text": "Hm.", "thought": True}),
                piece({"text": "Let me "}),
                piece({"text": "see."}),
                piece({"text": "", "thoughtSignature": signature("t")}),
                piece(
                    call("add", {"x": 1}, signed=signature("c"), id="one"), call("add", {"x": 2})
                ),
                END,
            ]
        ),
        Script(pieces=[piece({"text": "Three."}), END]),
    ]
    chunks = await reply(provider, tools=[ADD], think=True)
    first, second, finish = chunks[-3:]
    assert chunks[:-3] == [ThinkingDelta("Hm."), ContentDelta("Let me "), ContentDelta("see.")]
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.id, first.arguments, second.arguments) == ("one", {"x": 1}, {"x": 2})
    assert isinstance(finish, Finish)
    assert finish.reason == "tool_calls"
    again = [*HELLO, *stored(chunks, "1", "2")]
    assert await reply(provider, messages=again, tools=[ADD], think="low")
    config = fake.chats[1]["generationConfig"]
    assert config["thinkingConfig"] == {"include_thoughts": True, "thinking_level": "LOW"}
    declared = fake.chats[1]["tools"][0]["functionDeclarations"][0]
    assert declared == {"name": "add", "description": "Adds.", "parameters_json_schema": SCHEMA}
    _, model, user = fake.chats[1]["contents"]
    assert model["parts"] == [
        {"text": "Let me see."},
        {"text": "", "thoughtSignature": signature("t")},
        {
            "functionCall": {"id": "one", "name": "add", "args": {"x": 1}},
            "thoughtSignature": signature("c"),
        },
        {"functionCall": {"id": second.id, "name": "add", "args": {"x": 2}}},
    ]
    results = [part["functionResponse"] for part in user["parts"]]
    assert [(r["id"], r["response"]) for r in results] == [
        ("one", {"output": "1"}),
        (second.id, {"output": "2"}),
    ]


async def test_calls_that_came_without_a_signature_go_back_with_a_stand_in(provider, fake):
    """Gemini 3 refuses calls of the present turn without one, those of other models as well."""
    calls = [call("add", {"x": 1}, id="one"), call("add", {"x": 2}, id="two")]
    yes = Script(pieces=[piece({"text": "Three."}), END])
    fake.scripts = [Script(pieces=[piece(*calls), END]), yes, yes]
    chunks = await reply(provider, tools=[ADD])
    again = [*HELLO, *stored(chunks, "1", "2")]
    assert (await reply(provider, messages=again, tools=[ADD]))[0] == ContentDelta("Three.")
    stand_in = base64.b64encode(b"skip_thought_signature_validator").decode()
    parts = fake.chats[1]["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [stand_in, None]
    await reply(provider, messages=[*again, *HELLO], tools=[ADD])
    parts = fake.chats[2]["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, None], "a turn before"
    fake.models["gemini-2.5-test"] = listed("gemini-2.5-test")
    with pytest.raises(ProviderError, match="missing a thought_signature"):
        await reply(provider, model="gemini-2.5-test", messages=again)


async def test_a_gateway_that_refuses_ids_of_calls_gets_none(provider, fake):
    """The results are told apart by their order there."""
    fake.takes_ids = False
    signed = {"signed": signature()}
    calls = [call("add", {"x": 1}, id="one", **signed), call("add", {"x": 2}, id="two")]
    yes = Script(pieces=[piece({"text": "Three."}), END])
    fake.scripts = [Script(pieces=[piece(*calls), END]), yes, yes]
    said, first, second = stored(await reply(provider, tools=[ADD]), "1", "2")
    for _ in range(2):
        again = [*HELLO, said, second, first]
        chunks = await reply(provider, messages=again, tools=[ADD])
        assert chunks[0] == ContentDelta("Three.")
    assert len(fake.chats) == 4, "refused once"
    results = [part["functionResponse"] for part in fake.chats[-1]["contents"][-1]["parts"]]
    assert [found["response"] for found in results] == [{"output": "1"}, {"output": "2"}]


async def test_the_limit_leaves_room_for_thinking_that_nobody_asked_for(provider, fake):
    small = listed("gemini-2.5-flash-test")
    plain = listed("gemini-2.0-test", thinking=None)
    fake.models |= {"gemini-2.5-flash-test": small, "gemini-2.0-test": plain}
    fake.scripts = [Script(pieces=[A, END]) for _ in range(5)]
    await reply(provider, max_tokens=1024, response_format=JsonSchemaFormat.of({"type": "object"}))
    await reply(provider, model="gemini-2.5-flash-test", max_tokens=1024)
    await reply(provider, model="gemini-2.0-test", max_tokens=1024)
    await reply(provider, max_tokens=1024, think=True)
    configs = [chat["generationConfig"] for chat in fake.chats]
    assert [config["maxOutputTokens"] for config in configs] == [1024 + 24576, 1024, 1024, 1024]
    assert [config.get("thinkingConfig") for config in configs] == [
        None,
        {"thinking_budget": 0},
        None,
        {"include_thoughts": True},
    ]
    limited = GeminiProvider("gemini", api_key=KEY, base_url=fake.url, max_output_tokens=500)
    await reply(limited, max_tokens=1024)
    assert fake.chats[-1]["generationConfig"]["maxOutputTokens"] == 500
    await limited.aclose()


@pytest.mark.parametrize("name", ["a..b", "a?b", "a&b", "models/nobody", "../x", "a\nb"])
async def test_no_name_is_more_than_an_unknown_model(provider, fake, name):
    with pytest.raises(ModelNotFound):
        await provider.show_model(name)


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "QUITE_NEW"])
@pytest.mark.filterwarnings("ignore:QUITE_NEW is not a valid")
async def test_other_ends_are_told_in_lower_case(provider, fake, reason):
    fake.scripts = [Script(pieces=[A, piece(reason=reason)])]
    finish = (await reply(provider))[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == reason.lower()


async def test_whatever_comes_can_be_stored(provider, fake):
    fake.scripts = [Script(pieces=[piece(call("add\ud83d", {}, id="\ud83d")), END])]
    made = (await reply(provider))[0]
    assert isinstance(made, ToolCall)
    assert orjson.dumps(made.as_stored())


async def test_a_call_that_the_service_cannot_read_goes_back_with_its_words(provider, fake):
    words = "Malformed function call: print(default_api.add(x=1, y="
    end = piece(reason="MALFORMED_FUNCTION_CALL", words=words)
    fake.scripts = [Script(pieces=[A, end]), Script(pieces=[A, END])]
    text, made, finish = await reply(provider, tools=[ADD])
    assert isinstance(made, ToolCall)
    assert (text, made.name, made.arguments) == (ContentDelta("a"), "add", {"input": words})
    assert words in str(made.problem)
    assert isinstance(finish, Finish)
    assert finish.reason == "tool_calls"


async def test_a_form_is_sent_with_its_schema_or_without_one(provider, fake):
    schema = {"type": "object", "required": ["name"]}
    for form in (JsonSchemaFormat.of(schema), JsonObjectFormat(type="json_object")):
        fake.scripts = [Script(pieces=[piece({"text": "{}"}), END])]
        await reply(provider, response_format=form)
    configs = [chat["generationConfig"] for chat in fake.chats]
    assert [config["responseMimeType"] for config in configs] == ["application/json"] * 2
    assert [config.get("responseJsonSchema") for config in configs] == [schema, None]


def failure(status: int, words: str, *details: dict[str, Any], **headers: str) -> Script:
    body = FakeGemini().error(status, words)
    body["error"]["details"] = list(details)
    return Script(status=status, body=body, headers=headers)


TOO_LONG = "The input token count (210) exceeds the maximum number of tokens allowed (200)."
BLOCKED = event({"promptFeedback": {"blockReason": "SAFETY"}})
FULL = event({"error": {"code": 503, "message": "Full", "status": "UNAVAILABLE"}})


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (failure(400, TOO_LONG), ContextOverflow, "window"),
        (failure(429, "slow", {"@type": "RetryInfo", "retryDelay": "29.5s"}), ProviderBusy, "slow"),
        (Script(pieces=[A, FULL]), ProviderBusy, "Full"),
        (Script(pieces=[A]), ProviderError, "broke off"),
        (Script(pieces=[A], then="cut"), ProviderUnreachable, "reached"),
        (Script(pieces=[A, b"data: {oops\n\n"]), ProviderError, "gemini"),
        (Script(pieces=[BLOCKED]), ProviderError, "SAFETY"),
        (Script(pieces=[piece(reason="MALFORMED_FUNCTION_CALL")]), ProviderError, "MALFORMED"),
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
    if words == "slow":
        assert caught.value.retry_after == 30


QUOTA = "You exceeded your current quota.\nPlease retry in 0s."
SOON = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0s"}


def exceeded(*quotas: Any) -> dict[str, Any]:
    """The quotas that a refusal names."""
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [{"quotaId": quota} for quota in quotas]}


async def test_the_quota_of_a_day_is_no_reason_to_ask_again(provider, fake):
    """The service wants some seconds all the same."""
    minute = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
    day = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
    fake.scripts = [failure(429, QUOTA, exceeded(minute, day), SOON)] * 2
    with pytest.raises(ProviderError, match="quota of the day is used up: You exceeded") as caught:
        await reply(provider)
    assert type(caught.value) is ProviderError
    assert caught.value.details["upstream_status"] == 429
    assert len(fake.chats) == 1
    odd = {"violations": [5, {"quotaId": 5}]}
    short = [failure(429, QUOTA, found, SOON) for found in (exceeded(minute), odd)]
    fake.scripts = [*short, Script(pieces=[A, END])]
    assert (await reply(provider))[0] == ContentDelta("a")


@pytest.mark.parametrize("error", ["slow", {"message": "slow", "details": 5}])
async def test_a_refusal_of_another_shape_is_told_as_well(provider, fake, error):
    """Gateways before the service have their own."""
    fake.scripts = [Script(status=429, body={"error": error}, headers={"Retry-After": "30"})]
    with pytest.raises(ProviderBusy, match="slow"):
        await reply(provider)


async def test_nothing_stays_open_of_first_uses_at_the_same_time(provider, fake):
    await asyncio.gather(*(provider.list_models() for _ in range(3)))
    await provider.aclose()
    await until(lambda: all(found.transport.is_closing() for found in fake._connections))


async def test_models_come_with_what_they_can_and_how_much_they_read(provider, fake):
    (model,) = await provider.list_models()
    assert (model.name, model.context_length, model.provider) == (MODEL, 1_048_576, "gemini")
    assert model.capabilities == ["completion", "tools", "vision", "thinking"]
    assert await provider.show_model(MODEL) == model
    assert len(fake.requests) == 1
    with pytest.raises(ModelNotFound, match="gemini-9"):
        await provider.show_model("gemini-9")
    assert await provider.check() is True


@pytest.mark.parametrize("name", ["gemini-latest", f"models/{MODEL}"])
async def test_a_model_that_calls_itself_otherwise_is_known_by_the_name_it_is_asked_for(
    provider, fake, name
):
    fake.models["gemini-latest"] = listed(MODEL, outputTokenLimit=700)
    fake.models[MODEL] = listed(MODEL, outputTokenLimit=700)
    fake.scripts = [Script(pieces=[A, END])]
    assert (await provider.show_model(name)).context_length == 1_048_576
    await provider.show_model(name)
    await reply(provider, model=name)
    assert fake.chats[0]["generationConfig"]["maxOutputTokens"] == 700
    assert [request.method for request in fake.requests] == ["GET", "POST"]


async def test_a_model_by_its_long_name_gets_what_it_needs(provider, fake):
    made: list[Chunk] = [ToolCall(id="one", name="add", arguments={}), Finish(reason="stop")]
    unsigned = [*HELLO, *stored(made, "1")]
    fake.models["gemini-2.5-flash-test"] = listed("gemini-2.5-flash-test")
    fake.scripts = [Script(pieces=[A, END])] * 2
    await reply(provider, model=f"models/{MODEL}", messages=unsigned)
    await reply(provider, model="models/gemini-2.5-flash-test")
    assert fake.chats[1]["generationConfig"]["thinkingConfig"] == {"thinking_budget": 0}


async def test_a_reason_before_the_end_does_not_cut_the_reply(provider, fake):
    """Vertex has told one with every piece, and some gateways do."""
    pieces = [piece(reason="STOP"), piece({"text": "Hel"}, reason="STOP"), piece({"text": "lo"})]
    fake.scripts = [Script(pieces=[*pieces, END])]
    chunks = await reply(provider)
    assert chunks[:-1] == [ContentDelta("Hel"), ContentDelta("lo")]


async def test_a_reply_leaves_nothing_in_the_context_of_its_reader(provider, fake):
    """It would gather the responses of all that is asked there later."""
    await provider.show_model(MODEL)
    before = dict(copy_context().items())
    fake.scripts = [Script(pieces=[A, END])]
    async with aclosing(provider.stream(ModelRequest(model=MODEL, messages=HELLO))) as chunks:
        assert [chunk async for chunk in chunks]
    assert dict(copy_context().items()) == before


async def test_a_wrong_key_is_an_error_that_does_not_show_it(fake):
    provider = GeminiProvider("gemini", api_key="wrong-key", base_url=fake.url)
    with pytest.raises(ProviderError, match="API key not valid") as caught:
        await provider.list_models()
    assert "wrong-key" not in str(caught.value.as_json())
    await provider.aclose()
