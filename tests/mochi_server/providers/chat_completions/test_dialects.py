"""What servers make of OpenAI's protocol: vLLM, LM Studio, OpenRouter, DeepSeek, Mistral."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import orjson
import pytest

from mochi_server.errors import ProviderBusy, ProviderError
from mochi_server.protocol.files import RequestFile, with_files
from mochi_server.protocol.response_format import JsonObjectFormat, JsonSchemaFormat
from mochi_server.providers.base import Chunk, ContentDelta, Finish, ThinkingDelta
from mochi_server.providers.openai import OpenAICompatibleProvider
from tests.support.exact_vendors import HELLO, chunks_of, stored
from tests.support.fake_openai import (
    JSON,
    Answer,
    FakeOpenAI,
    call_delta,
    delta,
    error,
    finished,
    running_fake,
    stream,
    usage,
)

reply = partial(chunks_of, model="m")


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with running_fake() as server:
        yield server


@pytest.fixture
async def provider(fake: FakeOpenAI) -> AsyncIterator[OpenAICompatibleProvider]:
    provider = OpenAICompatibleProvider("it", base_url=fake.base_url)
    provider.attempts = 2
    yield provider
    await provider.aclose()


def whole(index: int | None, name: str | None, arguments: Any, **fields: Any) -> dict[str, Any]:
    """A call in one piece."""
    call = {"index": index, "function": {"name": name, "arguments": arguments}, **fields}
    return delta(tool_calls=[call])


TWO = [("add", {"x": 1}), ("add", {"x": 2})]
CALLS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, dict[str, Any]]]]] = {
    "all at index 0, each with its id": (
        [whole(0, "add", '{"x": 1}', id="a"), whole(0, "add", '{"x": 2}', id="b")], TWO),
    "all at index 0, in fragments": (
        [call_delta(0, id="a", name="add", arguments=""), call_delta(0, arguments='{"x": 1}'),
         call_delta(0, id="b", name="add", arguments=""), call_delta(0, arguments='{"x"'),
         call_delta(0, arguments=": 2}")], TWO),
    "all at index 0, without ids": (
        [whole(0, "add", '{"x": 1}'), whole(0, "add", '{"x": 2}')], TWO),
    "one within another": (
        [call_delta(0, id="a", name="add", arguments='{"x"'), call_delta(1, id="b", name="now"),
         call_delta(0, arguments=": 1}")], [TWO[0], ("now", {})]),
    "without index": (
        [whole(None, "add", '{"x": 1}', id="a"), whole(None, "add", '{"x": 2}', id="b")], TWO),
    "no index at all": (
        [delta(tool_calls=[{"id": each, "function": {"name": "add", "arguments": arguments}}])
         for each, arguments in (("a", '{"x": 1}'), ("b", '{"x": 2}'))], TWO),
    "no index at all, in fragments": (
        [delta(tool_calls=[{"id": "a", "function": {"name": "add"}}]),
         delta(tool_calls=[{"function": {"arguments": '{"x"'}}]),
         delta(tool_calls=[{"function": {"arguments": ": 1}"}}])], TWO[:1]),
    "empty ids": (
        [whole(0, "add", '{"x": 1}', id=""), whole(1, "add", '{"x": 2}', id="")], TWO),
    "id and name in each fragment": (
        [call_delta(0, id="a", name="add", arguments=part) for part in ('{"x"', ": ", "1}")],
        TWO[:1]),
    "another id in each fragment": (
        [call_delta(0, id="a", name="add", arguments='{"x"'),
         call_delta(0, id="b", arguments=": 1}")], TWO[:1]),
    "empty strings in later fragments": (
        [call_delta(0, id="a", name="add", arguments=""),
         call_delta(0, id="", name="", arguments='{"x": 1}')], TWO[:1]),
    "a name in two fragments": (
        [call_delta(0, id="a", name="a"), call_delta(0, name="dd"),
         call_delta(0, arguments='{"x": 1}')], TWO[:1]),
    "arguments as an object": ([whole(0, "add", {"x": 1}, id="a")], TWO[:1]),
    "null for no arguments": ([whole(0, "now", "null", id="a")], [("now", {})]),
    "nothing for no arguments": ([whole(0, "now", None, id="a")], [("now", {})]),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
async def test_calls_are_put_together(provider, fake, case, reason):
    deltas, wanted = CALLS[case]
    fake.answers = [stream(*deltas, finished(reason))]
    *calls, finish = await reply(provider)
    assert [(call.name, call.arguments) for call in calls] == wanted
    assert len({call.id for call in calls} - {""}) == len(wanted)
    assert finish.reason == "tool_calls"


@pytest.mark.parametrize("arguments", ['{"x', "", None])
@pytest.mark.parametrize(
    ("reason", "words"), [("length", "limit within a call of 'add'"), ("content_filter", "filter")]
)
async def test_a_call_that_was_cut_is_not_made(provider, fake, arguments, reason, words):
    """Nothing at all may be what came of its arguments: a call without any is another one."""
    cut = call_delta(
        0, id="a", name="add", **({} if arguments is None else {"arguments": arguments})
    )
    fake.answers = [stream(cut, finished(reason))]
    with pytest.raises(ProviderError, match=words):
        await reply(provider)


TEXTS: dict[str, tuple[list[dict[str, Any]], list[Chunk]]] = {
    "Mistral's parts": (
        [delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]),
         delta(content=[{"type": "text", "text": "Yes"}]), delta(content="."), finished()],
        [ThinkingDelta("Hm."), ContentDelta("Yes"), ContentDelta("."), Finish(reason="stop")]),
    "a refusal": (
        [delta(content=None, refusal="I can"), delta(refusal="not."), finished()],
        [ContentDelta("I can"), ContentDelta("not."), Finish(reason="refusal")]),
    "a filter": ([delta(content="a"), finished("content_filter")],
                 [ContentDelta("a"), Finish(reason="content_filter")]),
    "capital letters": ([delta(content="a"), finished("STOP")],
                        [ContentDelta("a"), Finish(reason="stop")]),
    "calls announced and not made": ([delta(content="a"), finished("tool_calls")],
                                     [ContentDelta("a"), Finish(reason="stop")]),
    "a call of nothing, as LM Studio's": (
        [delta(content="a"), delta(tool_calls=[{"index": 0, "id": "", "type": "function"}]),
         delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "", "arguments": ""}}]),
         finished("tool_calls")],
        [ContentDelta("a"), Finish(reason="stop")]),
    "an emoji in two halves": (
        [delta(content="a\ud83d"), delta(content="\ude00b"), finished()],
        [ContentDelta("a"), ContentDelta("😀b"), Finish(reason="stop")]),
    "half an emoji": (
        [delta(content="\ude00"), delta(content="\ud83d"), finished()],
        [ContentDelta("\ufffd"), ContentDelta("\ufffd"), Finish(reason="stop")]),
    "chunks that say nothing": (
        [{"type": "ping"}, {**delta(), "choices": []}, {**delta(), "choices": None},
         {**delta(), "choices": [{"index": 0}]}, delta(content="", tool_calls=[]),
         delta(tool_calls=None), delta(content="a"), finished(), {**delta(), "usage": {}}],
        [ContentDelta("a"), Finish(reason="stop")]),
    "counts in each chunk": (
        [{**delta(content="a"), "usage": {"prompt_tokens": 7, "completion_tokens": 1}},
         {**finished(), "usage": {"prompt_tokens": 7, "completion_tokens": 2}}],
        [ContentDelta("a"), Finish(reason="stop", eval_count=2, prompt_eval_count=7)]),
    "only the prompt counted": (
        [delta(content="a"), finished(), {**usage(7, 0), "usage": {"prompt_tokens": 7}}],
        [ContentDelta("a"), Finish(reason="stop", prompt_eval_count=7)]),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
async def test_texts_and_ends_are_understood(provider, fake, case):
    chunks, wanted = TEXTS[case]
    fake.answers = [stream(*chunks)]
    assert await reply(provider) == wanted


NOW = {"index": 0, "id": "functions.now:0", "function": {"name": "now", "arguments": "{}"}}
SIGNED = {"google": {"thought_signature": "c2ln"}}
PARTS = [{"type": "reasoning.text", "text": "Hm", "index": 0},
         {"type": "reasoning.text", "text": "m.", "index": 0, "signature": None},
         {"type": "reasoning.text", "signature": "sig", "text": "", "index": 0},
         {"type": "reasoning.encrypted", "data": "x", "index": 1}]  # fmt: skip
JOINED = [{"type": "reasoning.text", "text": "Hmm.", "index": 0, "signature": "sig"}, PARTS[-1]]
ECHOES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "DeepSeek": ([delta(reasoning_content="Hm"), delta(reasoning_content="m.")],
                 {"reasoning_content": "Hmm."}),
    "vLLM": ([delta(reasoning="Hmm.")], {"reasoning": "Hmm."}),
    "OpenRouter": (
        [delta(reasoning=part.get("text"), reasoning_details=[part]) for part in PARTS],
        {"reasoning": "Hmm.", "reasoning_details": JOINED}),
    "MiniMax": ([delta(reasoning_details=[part]) for part in PARTS[:2]], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", ECHOES)
async def test_thinking_goes_back_as_it_came(provider, fake, case):
    thoughts, wanted = ECHOES[case]
    fake.answers = [
        stream(*thoughts, delta(tool_calls=[NOW]), finished("tool_calls")),
        stream(delta(content="Noon."), finished()),
        stream(delta(content="Noon."), finished()),
    ]
    first = await reply(provider)
    assert "".join(c.content for c in first if isinstance(c, ThinkingDelta)) == "Hmm."
    history = [*HELLO, *stored(first, "1", model="it/m")]
    await reply(provider, messages=history)
    _, said, result = fake.bodies[1]["messages"]
    function = {"name": "now", "arguments": "{}"}
    call = {"id": "functions.now:0", "type": "function", "function": function}
    assert said == {"role": "assistant", "content": "", **wanted, "tool_calls": [call]}
    assert result["tool_call_id"] == "functions.now:0"
    await reply(provider, model="other", messages=history)
    assert fake.bodies[2]["messages"][1].keys() == {"role", "content", "tool_calls"}


async def test_signatures_of_calls_go_back_with_them(provider, fake):
    signed = {**NOW, "extra_content": SIGNED}
    fake.answers = [
        stream(delta(tool_calls=[signed, {**NOW, "index": 1, "id": "b"}]), finished("tool_calls")),
        error(400, message="enough"),
    ]
    history = [*HELLO, *stored(await reply(provider), "1", "2", model="it/m")]
    with pytest.raises(ProviderError):
        await reply(provider, messages=history)
    first, second = fake.bodies[1]["messages"][1]["tool_calls"]
    assert first["extra_content"] == SIGNED
    assert "extra_content" not in second


BUSY = {"error": {"code": 429, "message": "Rate limit exceeded"}}


async def test_a_busy_service_may_say_so_in_the_stream(provider, fake):
    fake.answers = [stream(BUSY), stream(delta(content="a"), finished())]
    assert (await reply(provider))[0] == ContentDelta("a")
    fake.answers = [stream(delta(content="a"), BUSY)]
    with pytest.raises(ProviderBusy):
        await reply(provider)
    assert len(fake.paths) == 3


@pytest.mark.parametrize(
    "answer",
    [
        stream(delta(content="a"), {"object": "error", "message": "CUDA died", "code": 400}),
        stream(delta(content="a"), {"error": {"code": {"odd": 1}, "message": "CUDA died"}}),
        stream(delta(content="a"), {"error": "CUDA died"}),
        stream(delta(content="a"), {"error": {"message": ["odd"]}}),
        stream(delta(content="a"), finished("error")),
        error(500, message={"odd": 1}, type=["odd"], code=["odd"]),
        Answer(pieces=[b'{"detail": "CUDA died"}'], status=500, content_type=JSON),
        Answer(pieces=[b'["odd"]'], status=400, content_type=JSON),
        Answer(pieces=[b"data: 7\n\n"]),
        Answer(pieces=[b'data: ["odd"]\n\n']),
        Answer(pieces=[b"data: \xff\n\n"]),
    ],
)
async def test_odd_errors_are_errors_with_a_name(provider, fake, answer):
    fake.answers = [answer]
    with pytest.raises(ProviderError):
        await reply(provider)


async def test_what_failed_within_a_choice_is_told(provider, fake):
    """OpenRouter's, where a service behind it fails."""
    broken = finished("error")
    broken["choices"][0]["error"] = {"code": 502, "message": "CUDA died"}
    fake.answers = [stream(delta(content="a"), broken)]
    with pytest.raises(ProviderError, match="CUDA died"):
        await reply(provider)


@pytest.mark.parametrize("odd", ["\ud83d", 2**70, ["x"]])
async def test_whatever_comes_can_be_stored(provider, fake, odd):
    details = [{"type": "reasoning.encrypted", "data": odd}]
    fake.answers = [stream(delta(content="a", reasoning_details=details), finished(odd))]
    assert orjson.dumps((await reply(provider))[-1])


LOC = ["body", "stream_options", "include_usage"]
FORBIDDEN = {"type": "extra_forbidden", "loc": LOC, "msg": "Extra inputs are not permitted"}
UNKNOWN = "Unknown parameter: 'stream_options.include_usage'."


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, message=UNKNOWN, code="unknown_parameter"),
        error(422, message={"detail": [FORBIDDEN]}, type="invalid_request_error"),
        Answer(
            pieces=[json.dumps({"detail": [FORBIDDEN]}).encode()], status=422, content_type=JSON
        ),
    ],
)
async def test_a_server_that_refuses_to_be_asked_for_counts_is_not_asked(provider, fake, refusal):
    """Mistral's own API, which sends them unasked, and some gateways."""
    yes = stream(delta(content="Yes"), finished(), usage(7, 2))
    fake.answers = [refusal, yes, yes]
    for _ in range(2):
        assert await reply(provider) == [
            ContentDelta("Yes"),
            Finish(reason="stop", eval_count=2, prompt_eval_count=7),
        ]
    assert ["stream_options" in body for body in fake.bodies] == [True, False, False]


@pytest.mark.parametrize(
    "words",
    [
        "This response_format type is unavailable now",
        "Unsupported value: 'json_schema' is not supported with this model.",
    ],
)
async def test_a_model_that_knows_no_schemas_is_not_sent_any(provider, fake, words):
    """DeepSeek's own API, and older models."""
    yes = stream(delta(content="Yes"), finished())
    fake.answers = [error(400, message=words), yes]
    asked = JsonSchemaFormat.of({})
    assert provider.takes_format("m", asked, tools=False)
    await reply(provider, model="m", response_format=asked)
    assert ["response_format" in body for body in fake.bodies] == [True, False]
    assert not provider.takes_format("m", asked, tools=False)
    assert provider.takes_format("other", asked, tools=False)
    assert provider.takes_format("m", JsonObjectFormat(type="json_object"), tools=False)
    fake.answers = [
        error(400, message="Invalid schema for response_format: 'allOf' is not permitted.")
    ]
    with pytest.raises(ProviderError, match="allOf"):
        await reply(provider, model="other", response_format=asked)


async def test_of_the_models_of_a_gateway_only_those_that_refuse_are_not_asked_for_counts(
    provider, fake
):
    yes = stream(delta(content="Yes"), finished(), usage(7, 2))
    refusal = error(422, message={"detail": [FORBIDDEN]}, type="invalid_request_error")
    fake.answers = [refusal, yes, yes, yes]
    for model in ("mistral", "gpt-x", "mistral"):
        await reply(provider, model=model)
    asked = [(body["model"], "stream_options" in body) for body in fake.bodies]
    assert asked == [("mistral", True), ("mistral", False), ("gpt-x", True), ("mistral", False)]


CALLED: list[dict[str, Any]] = [
    *HELLO,
    {"role": "assistant", "content": "", "model": "other/model", "tool_calls": [
        {"function": {"name": "now", "arguments": {}}, "id": "a"}]},
    {"role": "tool", "tool_name": "now", "tool_call_id": "a", "content": "noon"},
    {"role": "assistant", "content": "It is noon.", "model": "other/model"},
    *HELLO,
]  # fmt: skip
WANTED = "thinking is enabled but reasoning_content is missing in assistant tool call message at 1"
MUST = "The `reasoning_content` in the thinking mode must be passed back to the API."


MISSING = "Missing `reasoning_content` field in the assistant message at message index 1."


@pytest.mark.parametrize("words", [WANTED, MUST, MISSING])
async def test_models_that_want_thoughts_of_others_get_blanks(provider, fake, words):
    """Kimi and DeepSeek: replies of other models have none, nor have all of their own."""
    yes = stream(delta(content="Yes"), finished())
    fake.answers = [error(400, message=words), yes, yes, yes]
    for model in ("kimi", "kimi", "gpt-x"):
        assert (await reply(provider, model=model, messages=CALLED))[0] == ContentDelta("Yes")
    thoughts = [
        [m.get("reasoning_content") for m in body["messages"] if m["role"] == "assistant"]
        for body in fake.bodies
    ]
    assert thoughts == [[None, None], [" ", " "], [" ", " "], [None, None]]


NOW_TOOL = {"type": "function", "function": {"name": "now", "description": "The time.",
            "parameters": {"type": "object", "properties": {}}}}  # fmt: skip
NO_EFFORT = (
    "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. "
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)


async def test_models_that_call_no_tools_while_they_reason_do_not_reason(provider, fake):
    """OpenAI's, since GPT-5.5, also where nobody asked them to reason."""
    yes = stream(delta(content="Yes"), finished())
    fake.answers = [error(400, message=NO_EFFORT, param="reasoning_effort"), yes, yes, yes, yes]
    for fields in (
        {"tools": [NOW_TOOL]},
        {"tools": [NOW_TOOL]},
        {},
        {"model": "x", "tools": [NOW_TOOL]},
    ):
        assert (await reply(provider, **fields))[0] == ContentDelta("Yes")
    asked = [body.get("reasoning_effort") for body in fake.bodies]
    assert asked == [None, "none", "none", None, None]
    fake.answers = [error(400, message=NO_EFFORT, param="reasoning_effort")]
    with pytest.raises(ProviderError, match="not supported"):
        await reply(provider, tools=[NOW_TOOL], think="high")
    assert fake.bodies[-1]["reasoning_effort"] == "high"


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model.",
        "Unrecognized request argument supplied: reasoning_effort",
        "[{'loc': ['body', 'reasoning_effort'], 'msg': 'Extra inputs are not permitted'}]",
    ],
)
async def test_a_model_is_told_not_to_reason_unless_it_refuses_that(provider, fake, words):
    yes = stream(delta(content="Yes"), finished())
    fake.answers = [yes, error(400, message=words), yes, yes, yes, yes]
    for fields in (
        {"think": False},
        {"think": False, "model": "always"},
        {"think": False, "model": "always"},
        {"think": None},
        {"think": "low", "model": "always"},
    ):
        assert (await reply(provider, **fields))[0] == ContentDelta("Yes")
    asked = [body.get("reasoning_effort") for body in fake.bodies]
    assert asked == ["none", "none", None, None, None, "low"]


async def test_descriptions_are_cut_where_they_are_too_long_for_a_service(provider, fake):
    """Tools of other sources have long ones, for which OpenAI has refused the whole request."""
    words = (
        "Invalid 'tools[1].function.description': string too long. Expected a string with maximum "
        "length 20, but got a string with length 27 instead."
    )
    yes = stream(delta(content="Yes"), finished())
    fake.answers = [error(400, message=words, code="string_above_max_length"), yes, yes]
    described = {
        **NOW_TOOL["function"],
        "name": "then",
        "description": "The time of the next event.",
    }
    tools = [NOW_TOOL, {"type": "function", "function": described}]
    for _ in range(2):
        assert (await reply(provider, tools=tools))[0] == ContentDelta("Yes")
    told = [[tool["function"]["description"] for tool in body["tools"]] for body in fake.bodies]
    cut = ["The time.", "The time of the nex…"]
    assert told == [["The time.", "The time of the next event."], cut, cut]


GROQ = "'messages.2': property 'reasoning_content' is unsupported"
LITELLM = {"type": "extra_forbidden", "loc": ["body", "messages", 1, "reasoning_content"],
           "msg": "Extra inputs are not permitted"}  # fmt: skip


@pytest.mark.parametrize("words", [GROQ, {"detail": [LITELLM]}])
async def test_models_that_take_no_thoughts_back_get_none(provider, fake, words):
    """Gateways show the thinking of models whose services refuse it in requests."""
    thought = stream(delta(reasoning_content="Hm."), delta(content="Yes"), finished())
    fake.answers = [thought, error(400, message=words), thought, thought]
    said = stored(await reply(provider), model="it/m")
    for _ in range(2):
        found = await reply(provider, messages=[*HELLO, *said, *HELLO])
        assert found[1] == ContentDelta("Yes")
    thoughts = [[m.get("reasoning_content") for m in b["messages"][1:2]] for b in fake.bodies]
    assert thoughts == [[], ["Hm."], [None], [None]]


async def test_a_refusal_of_thoughts_that_were_not_sent_is_told(provider, fake):
    fake.answers = [error(400, message=GROQ)]
    with pytest.raises(ProviderError, match="unsupported"):
        await reply(provider, messages=CALLED)
    assert len(fake.bodies) == 1


async def test_a_model_that_is_never_content_is_not_asked_for_ever(provider, fake):
    fake.answers = [error(400, message=f"{words} stream_options") for words in (MUST, MUST, WANTED)]
    with pytest.raises(ProviderError, match="missing"):
        await reply(provider, messages=CALLED)
    assert len(fake.bodies) == 3
    fake.answers = [stream(delta(content="Yes"), finished())]
    await reply(provider, messages=CALLED)
    assert fake.bodies[3] == fake.bodies[0], "nothing is learnt from what did not help"


async def test_other_fields_that_are_refused_are_named(provider, fake):
    fields = {"detail": [{**FORBIDDEN, "loc": ["body", "tools"]}]}
    fake.answers = [error(422, message=fields)]
    with pytest.raises(ProviderError, match=r"tools.*Extra inputs"):
        await reply(provider)
    assert len(fake.bodies) == 1


async def test_a_server_without_a_list_of_models_answers_all_the_same(provider, fake):
    await provider.prepare()  # the import of the SDK may take long
    fake.answers = [error(status, message="no such route") for status in (404, 405, 501, 404)]
    assert [await provider.check() for _ in range(3)] == [True] * 3
    assert await provider.list_models() == []
    assert (await provider.show_model("gpt-x")).name == "gpt-x"
    assert len(fake.paths) == 4


async def test_a_server_without_a_list_of_models_is_believed(provider, fake):
    fake.answers = [
        error(404, message="no such route"),
        stream(delta(content="a"), finished()),
        error(500, message="boom"),
    ]
    assert (await provider.show_model("gpt-x")).name == "gpt-x"
    assert (await provider.show_model("gpt-y")).name == "gpt-y"
    assert (await reply(provider, model="gpt-x"))[0] == ContentDelta("a")
    other = OpenAICompatibleProvider("it", base_url=fake.base_url)
    with pytest.raises(ProviderError, match="boom"):
        await other.show_model("gpt-x")
    await other.aclose()


@pytest.mark.parametrize("data", [None, [], [{"object": "model"}], [{"id": None}]])
async def test_a_list_may_be_empty(provider, fake, data):
    body = json.dumps({"object": "list", "data": data}).encode()
    fake.answers = [Answer(pieces=[body], content_type=JSON)]
    assert await provider.list_models() == []


@pytest.mark.parametrize("status", [400, 500])
async def test_a_model_that_does_not_see_gets_no_images_of_results(
    fake: FakeOpenAI, provider: OpenAICompatibleProvider, status: int
) -> None:
    image = RequestFile(media_type="image/png", data="AAAA")
    call = {"id": "call12345", "function": {"name": "draw", "arguments": {}}}
    result = {"role": "tool", "content": "Here.", "tool_name": "draw", "tool_call_id": "call12345"}
    messages = [*HELLO, {"role": "assistant", "tool_calls": [call]}, with_files(result, [image])]
    asked = [*messages, {"role": "user", "content": "And?"}]
    words = "image input is not supported - hint: you may need to provide the mmproj"
    yes = stream(delta(content="Yes."), finished())
    fake.answers = [error(status, message=words), yes, yes]
    for _ in range(2):
        assert (await reply(provider, messages=asked))[0] == ContentDelta("Yes.")
    first, second, third = (body["messages"] for body in fake.bodies)
    assert [part["type"] for part in first[3]["content"]] == ["image_url", "text", "text"]
    assert second == third
    assert second[2:] == [
        {"role": "tool", "tool_call_id": "call12345", "name": "draw", "content": "Here."},
        {"role": "user", "content": "And?"},
    ]
