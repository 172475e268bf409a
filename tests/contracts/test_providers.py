"""One conversation with every provider: the same events, and the same messages in the file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from mochi_server.config import load_settings
from mochi_server.errors import EmbeddingsNotSupported, ModelNotFound
from mochi_server.protocol.events import Event, MessageComplete
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import (
    Chunk,
    ContentDelta,
    EmbeddingRequest,
    Finish,
    ModelRequest,
)
from mochi_server.providers.builtin.provider import SLOTS
from mochi_server.providers.registry import TEXTS_AT_ONCE
from mochi_server.runtime import Runtime
from mochi_server.sessions import ToolSettings
from mochi_server.testmode.samples import vector_of
from mochi_server.testmode.script import START
from tests.support.fake_gemini import signature
from tests.support.model_services import Anthropic, Gemini, Ollama, OpenAI, Service
from tests.support.own_services import BuiltIn, TestMode
from tests.support.text_calls import SHAPES, TOOLS, shape
from tests.support.tools import write_tools
from tests.support.turns import kinds, masked, read_all, text_of

SERVICES: dict[str, type[Service]] = {
    "ollama": Ollama,
    "openai": OpenAI,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "test": TestMode,
    "local": BuiltIn,
}
NOT_TOLD = "nobody tells a real model what to say, and this one neither thinks nor calls"
NOT_BROKEN = "nobody tells a real model to fail; builtin/test_provider.py kills its process"
NEVER_BUSY = "llama.cpp lets requests wait and refuses none"
EVERY_NAME = "in test mode every name is a model"


def each_service(**cannot: str | pytest.MarkDecorator) -> pytest.MarkDecorator:
    """A row for each service; one that cannot do it is there with the reason."""
    assert cannot.keys() <= SERVICES.keys()
    rows = []
    for name in SERVICES:
        why = cannot.get(name, ())
        marks = pytest.mark.skip(reason=why) if isinstance(why, str) else why
        rows.append(pytest.param(name, marks=marks))
    return pytest.mark.parametrize("talk", rows, indirect=True)


def fails(reason: str) -> pytest.MarkDecorator:
    """A row that does something else, which is shown by its failure."""
    return pytest.mark.xfail(strict=True, raises=pytest.fail.Exception, reason=reason)


class Talk:
    """A session with one service."""

    def __init__(self, runtime: Runtime, service: Service, session_id: str) -> None:
        self.runtime, self.service, self._session_id = runtime, service, session_id

    async def turn(self, message: str, **fields: Any) -> list[Event]:
        """All events of a turn."""
        chat = self.runtime.chat
        asked = self.service.asked(message)
        opened = await chat.open_turn(self._session_id, TurnRequest(message=asked, **fields))
        return await read_all(chat.start(opened))

    async def begin_anew(self) -> None:
        """Go on with a session that has neither tools nor messages."""
        self._session_id = (await self.runtime.sessions.create(self.service.model)).session_id

    def messages(self) -> list[dict[str, Any]]:
        """The messages in the file."""
        path = self.runtime.settings.sessions_path / f"{self._session_id}.json"
        found: list[dict[str, Any]] = json.loads(path.read_bytes())["messages"]
        return found

    def stored(self) -> list[dict[str, Any]]:
        """The messages in the file, without what differs between vendors."""
        messages: list[dict[str, Any]] = masked(self.messages())
        for message in messages:
            for key in ("model", "eval_count", "prompt_eval_count", "provider_data"):
                message.pop(key, None)
            if message["role"] == "user":
                message["content"] = message["content"].partition(f"\n{START}")[0]
            for call in message.get("tool_calls") or ():
                call.pop("id")
        return messages

    def request(self, message: str, **fields: Any) -> ModelRequest:
        """The same question to the provider itself."""
        asked = [{"role": "user", "content": self.service.asked(message)}]
        return ModelRequest(**{"model": self.service.model, "messages": asked, **fields})

    async def reply(self, message: str, **fields: Any) -> list[Chunk]:
        """The provider's own chunks."""
        with anyio.fail_after(30):
            stream = self.service.provider.stream(self.request(message, **fields))
            async with aclosing(stream) as chunks:
                return [chunk async for chunk in chunks]


@pytest.fixture
async def talk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Talk]:
    async with talking(SERVICES[request.param](), tmp_path) as found:
        yield found


@asynccontextmanager
async def talking(service: Service, folder: Path) -> AsyncIterator[Talk]:
    add = 'def add(x: int, y: int) -> int:\n    """Add."""\n    return x + y\n'
    listed = '__all__ = ["add"]\n__destructive__: list[str] = []\n'
    write_tools(folder / "tools", init=f"{add}\n{listed}")
    async with AsyncExitStack() as stack:
        await service.start(stack)
        settings = load_settings(data_dir=folder, summarization_enabled=False)  # it asks as well
        runtime = Runtime(settings, providers={"it": service.provider})
        stack.push_async_callback(runtime.aclose)
        allowed = ToolSettings(tools=list(service.tools), execution_policy="never_confirm")
        session = await runtime.sessions.create(
            service.model, tool_settings=allowed, system_prompt="Be brief."
        )
        yield Talk(runtime, service, session.session_id)


QUESTION = "What is the capital of France?"
LONG = "Write a very long story about a dragon, with many chapters."


class Animal(BaseModel):
    name: str
    legs: int


def error_of(events: list[Event]) -> dict[str, Any]:
    """The data of the one error."""
    (error,) = (event.payload() for event in events if event.type == "error")
    return error


def without_context(events: list[Event]) -> list[str]:
    """Their names, each row of one kind once."""
    return [kind for kind in kinds(events) if not kind.startswith("context")]


@each_service(test="it sends no bytes", local=NOT_TOLD)
async def test_a_mark_and_an_invalid_byte_cost_nothing_of_a_reply(talk: Talk) -> None:
    talk.service.says_in_odd_bytes(["first ", "a#b", " last"])
    events = await talk.turn(QUESTION)
    assert kinds(events)[-1] == "done"
    assert text_of(events) == "first a\ufffdb last"
    assert talk.stored()[-1]["content"] == "first a\ufffdb last"


@each_service(local=NOT_TOLD)
async def test_thinking_two_parallel_calls_and_their_results(talk: Talk) -> None:
    sums = [("add", {"x": 1, "y": 2}), ("add", {"x": 3, "y": 4})]
    talk.service.says(["Hm", "m."], ["Let me ", "see."], sums)
    talk.service.says(["So."], ["3 and ", "7."])
    talk.service.says([], ["You are ", "welcome."])
    events = await talk.turn("Add.", think=True)
    assert without_context(events) == [
        "thinking_delta",
        "content_delta",
        "tool_call",
        "tool_result",
        "tool_continuation_start",
        "thinking_delta",
        "content_delta",
        "message_complete",
        "done",
    ]
    assert text_of(events) == "Let me see.3 and 7."
    assert text_of(await talk.turn("Thanks.")) == "You are welcome."
    assert text_of(events, "thinking_delta") == "Hmm.So."
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in sums]
    brief = [
        {
            key: message[key]
            for key in ("role", "content", "thinking", "tool_calls")
            if message.get(key)
        }
        for message in talk.stored()
    ]
    assert brief == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": "Let me see.",
            "thinking": "Hmm.",
            "tool_calls": calls,
        },
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "3 and 7.", "thinking": "So."},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "You are welcome."},
    ]


@pytest.mark.parametrize(
    ("talk", "echo"),
    [
        ("openai", '"reasoning": "Hmm 😀."'),
        ("anthropic", '{"type": "thinking", "thinking": "Hmm 😀.", "signature": "sig:a"}'),
        ("gemini", f'"thoughtSignature": "{signature()}"'),
    ],
    indirect=["talk"],
)
async def test_what_a_vendor_wants_back_goes_back_from_the_file(talk: Talk, echo: str) -> None:
    talk.service.says(["Hm", "m 😀."], [" Let me ", "see.\n"], [("add", {"x": 1, "y": 2})])
    talk.service.says([], ["3."])
    talk.service.says([], ["You are welcome."])
    for question in ("Add.", "Thanks."):
        assert kinds(await talk.turn(question, think=True))[-1] == "done"
        assert echo in json.dumps(talk.service.last_request(), ensure_ascii=False)


@each_service(local=NOT_TOLD, gemini="its arguments are no text")
async def test_a_bare_line_break_in_a_text_of_arguments_is_read(talk: Talk) -> None:
    talk.service.writes_badly("add", '{"x": "1\n", "y": 2}')
    talk.service.says([], ["3."])
    events = await talk.turn("Add.")
    [call] = (event.payload() for event in events if event.type == "tool_call")
    [result] = (event.payload() for event in events if event.type == "tool_result")
    assert call["arguments"] == {"x": "1\n", "y": 2}
    assert (result["success"], result["result"]) == (True, "3")


@each_service(local=NOT_TOLD, gemini="its arguments are no text")
@pytest.mark.parametrize("arguments", ["{'x': 1, 'y': 2}", '{"x": 1, "y": 2,}', '{"x": 1, "y": 2'])
async def test_arguments_that_are_nearly_json_are_read(talk: Talk, arguments: str) -> None:
    talk.service.writes_badly("add", arguments)
    talk.service.says([], ["3."])
    events = await talk.turn("Add.")
    [result] = (event.payload() for event in events if event.type == "tool_result")
    assert (result["success"], result["result"]) == (True, "3")


@each_service(local=NOT_TOLD)
@pytest.mark.parametrize("arguments", ['{"x": 1, "y"', "[1, 2]", "{'x': 1}"])
async def test_arguments_that_are_no_json_object_are_a_failed_call(
    talk: Talk, arguments: str
) -> None:
    talk.service.writes_badly("add", arguments)
    talk.service.says([], ["I try ", "again."], [("add", {"x": 1, "y": 2})])
    talk.service.says([], ["3."])
    events = await talk.turn("Add.")
    if error := [event.payload() for event in events if event.type == "error"]:
        pytest.fail(str(error))
    failed, result = (event.payload() for event in events if event.type == "tool_result")
    assert (failed["success"], failed["code"]) == (False, "VALIDATION_ERROR")
    assert failed["error_message"].startswith("invalid arguments: ")
    assert (result["success"], result["result"]) == (True, "3")
    assert text_of(events) == "I try again.3."
    told = [message["content"] for message in talk.stored() if message["role"] == "tool"]
    assert told == [f"Error: {failed['error_message']}", "3"]


@each_service(local=NOT_BROKEN)
@pytest.mark.parametrize("error", ["boom", None])
async def test_what_came_before_an_error_or_a_cut_is_kept(talk: Talk, error: str | None) -> None:
    talk.service.breaks("Half", error)
    talk.service.says([], ["Whole."])
    events = await talk.turn("Hello")
    assert without_context(events) == ["content_delta", "error", "done"]
    if error:
        assert error in str(error_of(events))
    assert talk.stored()[-1]["content"] == "Half"
    assert talk.stored()[-1]["interrupted"] is True
    assert text_of(await talk.turn("Again")) == "Whole."


@each_service(local=NEVER_BUSY)
async def test_a_busy_service_is_said_to_be_busy(talk: Talk) -> None:
    talk.service.is_busy()
    error = error_of(await talk.turn("Hello"))
    assert "PROVIDER_BUSY" in str(error)
    assert [message["role"] for message in talk.stored()] == ["system", "user"]


@each_service(test=fails(EVERY_NAME))
async def test_an_unknown_model_is_an_error_before_the_stream(talk: Talk) -> None:
    session = await talk.runtime.sessions.create("nobody")
    with pytest.raises(ModelNotFound):
        await talk.runtime.chat.open_turn(session.session_id, TurnRequest(message="Hello"))


@each_service()
async def test_a_reply_has_the_same_events_and_the_same_keys_in_the_file(talk: Talk) -> None:
    talk.service.says([], ["The capital ", "is ", "Paris."])
    events = await talk.turn(QUESTION)
    assert without_context(events) == ["content_delta", "message_complete", "done"]
    assert "Paris" in text_of(events)
    assert {event.type: set(event.payload()) for event in events[-3:]} == {
        "content_delta": {"content", "role"},
        "message_complete": {
            "context_window",
            "eval_count",
            "finish_reason",
            "message_id",
            "model",
            "prompt_eval_count",
            "timestamp",
        },
        "done": {"session_id"},
    }
    complete = events[-2].payload()
    assert complete["finish_reason"] == "stop"
    assert complete["model"] == talk.service.model
    always = {"role", "content", "message_id", "timestamp"}
    assert [(message["role"], message.keys()) for message in talk.messages()] == [
        ("system", always | {"source_file"}),
        ("user", always),
        ("assistant", always | {"model", "eval_count", "prompt_eval_count"}),
    ]


@each_service()
async def test_a_stream_is_text_and_one_finish_at_its_end(talk: Talk) -> None:
    talk.service.says([], ["The capital ", "is ", "Paris."])
    *pieces, finish = await talk.reply(QUESTION)
    assert isinstance(finish, Finish)
    assert finish.reason == "stop"
    texts = [piece.content for piece in pieces if isinstance(piece, ContentDelta)]
    assert len(texts) == len(pieces), "nothing but text"
    assert "Paris" in "".join(texts)


FEW_SHAPES = {
    *("bare_newline_in_a_text", "deepseek", "end_of_a_mark_is_left", "hermes_two"),
    *("mark_within_a_text", "number_beyond_64_bits", "qwen_coder_xml_over_lines"),
    *("text_fence_of_python", "text_inline_code_over_lines", "text_poem_in_braces"),
}
"""Those with white space, signs and numbers that a provider might change on the way."""


@each_service(local=NOT_TOLD)
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 100_000])
async def test_each_shape_is_its_calls_or_exactly_its_text(talk: Talk, size: int) -> None:
    """The table of ``tests/data/text_calls``, in single characters and whole.

    How a text is read does not depend on who has sent it: one service sends them all.
    """
    expected, seen = {}, {}
    for name in SHAPES if isinstance(talk.service, Ollama) else FEW_SHAPES:
        text, shown, calls = shape(name)
        talk.service.says([], [text[at : at + size] for at in range(0, len(text), size)])
        await talk.begin_anew()
        events = await talk.turn("Do it.", client_tools=TOOLS)
        asked = [event for event in events if isinstance(event, MessageComplete)]
        made = [(call["name"], call["arguments"]) for each in asked for call in each.client_calls]
        expected[name], seen[name] = (shown if calls else text, calls), (text_of(events), made)
    assert seen == expected


WRITTEN = {
    "fenced": '```json\n{"name": "add", "arguments": {"x": 2, "y": 3}}\n```',
    "tagged": '<tool_call>\n{"name": "add", "arguments": {"x": 2, "y": 3}}\n</tool_call>',
    "xml": "<function=add>\n<parameter=x>\n2\n</parameter>\n<parameter=y>3\n</function>",
}


@each_service(local=NOT_TOLD)
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
async def test_a_call_that_the_model_writes_as_text_runs(talk: Talk, written: str) -> None:
    talk.service.says([], ["I add.\n", *written])
    talk.service.says([], ["Five."])
    started, result = [
        event for event in await talk.turn("2 and 3?") if event.type.startswith("tool_")
    ][:2]
    assert started.payload()["recovered"] is True
    assert (result.payload()["tool_name"], result.payload()["result"]) == ("add", "5")
    before, answered, after = talk.stored()[-3:]
    assert before["content"] == "I add.\n"
    function = {"name": "add", "arguments": {"x": 2, "y": 3}}
    assert before["tool_calls"] == [{"function": function, "recovered": True}]
    assert (answered["content"], after["content"]) == ("5", "Five.")


@each_service(local=NOT_TOLD)
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize(("calls", "silences"), [(1, 2), (3, 1)])
async def test_a_model_that_says_nothing_of_a_result_is_answered_by_it(
    talk: Talk, calls: int, silences: int, *, written: bool
) -> None:
    for _ in range(calls):
        talk.service.says(
            [],
            ["I add.\n", *WRITTEN["fenced"]] if written else [],
            [] if written else [("add", {"x": 2, "y": 3})],
        )
    for _ in range(silences):
        talk.service.says([], [])
    events = await talk.turn("2 and 3?")
    assert kinds(events)[-2:] == ["message_complete", "done"]
    assert text_of(events) == "I add.\n" * calls * written + "5"
    assert talk.stored()[-1]["content"] == "5"


@each_service(local=NOT_TOLD)
async def test_thinking_that_is_left_in_the_text_is_thinking(talk: Talk) -> None:
    talk.service.says([], ["<th", "ink>\nI pon", "der\n</thi", "nk>\n\nThe", " answer"])
    events = await talk.turn(QUESTION)
    assert text_of(events) == "The answer"
    assert "".join(each.content for each in events if each.type == "thinking_delta") == "I ponder"
    assert (talk.stored()[-1]["thinking"], talk.stored()[-1]["content"]) == (
        "I ponder",
        "The answer",
    )


@each_service()
async def test_a_reply_with_a_schema_validates(talk: Talk) -> None:
    talk.service.says([], [Animal(name="Tom", legs=4).model_dump_json()])
    request = talk.request("Describe a cat as JSON with its name and its number of legs.")
    with anyio.fail_after(30):
        animal = await talk.service.provider.structured(request, Animal)
    assert animal.name


@pytest.mark.parametrize("talk", ["ollama", "openai", "test"], indirect=True)
async def test_each_text_has_a_vector(talk: Talk) -> None:
    texts = [f"text {number}" for number in range(TEXTS_AT_ONCE + 1)]
    vectors = [vector_of(text) for text in texts]
    talk.service.embeds(vectors[:TEXTS_AT_ONCE])
    talk.service.embeds(vectors[TEXTS_AT_ONCE:])
    request = EmbeddingRequest(model=talk.service.model, texts=texts, keep_alive="5m")
    made = await talk.runtime.models.embed(request)
    assert made.vectors == vectors
    assert made.prompt_tokens > 0


@pytest.mark.parametrize("talk", ["anthropic", "gemini"], indirect=True)
async def test_a_service_without_embeddings_says_so(talk: Talk) -> None:
    request = EmbeddingRequest(model=talk.service.model, texts=["x"])
    with pytest.raises(EmbeddingsNotSupported, match="'it' makes no embeddings"):
        await talk.runtime.models.embed(request)


@each_service()
async def test_closed_streams_leave_room_for_the_next_one(talk: Talk) -> None:
    """The built-in model would write 2,000 tokens in each and hold the next request up."""
    provider = talk.service.provider
    for _ in range(SLOTS):
        talk.service.says([], ["Once ", "upon ", "a ", "time."])
        stream = provider.stream(talk.request(LONG, max_tokens=2000))
        with anyio.fail_after(30):
            assert isinstance(await stream.__anext__(), ContentDelta)
        with anyio.fail_after(30):
            await stream.aclose()
    talk.service.says([], ["Paris."])
    assert isinstance((await talk.reply(QUESTION))[-1], Finish)


# Options


OPTIONS = ModelOptions(
    temperature=0.5,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    seed=7,
    stop="END",
    max_tokens=20,
    repeat_penalty=1.1,
    presence_penalty=0.2,
    frequency_penalty=0.3,
    keep_alive="10m",
    extra={"it": {"service_tier": "flex"}, "another": {"of_another": 1}},
)
COMMON = {"temperature": 0.5, "top_p": 0.9}
PENALTIES = {"seed": 7, "presence_penalty": 0.2, "frequency_penalty": 0.3}
SENT: dict[str, dict[str, Any]] = {
    "ollama": {
        "options": {
            **COMMON,
            **PENALTIES,
            "top_k": 40,
            "min_p": 0.05,
            "repeat_penalty": 1.1,
            "stop": ["END"],
            "num_predict": 20,
            "service_tier": "flex",
        },
        "keep_alive": "10m",
    },
    "openai": {**COMMON, **PENALTIES, "stop": "END", "max_tokens": 20, "service_tier": "flex"},
    "anthropic": {
        "stop_sequences": ["END"],
        "max_tokens": 20,
        "service_tier": "flex",
    },
    "gemini": {
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 40,
            "seed": 7,
            "presencePenalty": 0.2,
            "frequencyPenalty": 0.3,
            "stopSequences": ["END"],
        },
        "service_tier": "flex",
    },
}
"""What of the options a request has."""
IGNORED = {
    "ollama": set(),
    "openai": {"top_k", "min_p", "repeat_penalty", "keep_alive"},
    "anthropic": {  # its model decides about thinking
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "keep_alive",
    },
    "gemini": {"min_p", "repeat_penalty", "keep_alive"},
}


@pytest.mark.parametrize("talk", SENT, indirect=True)
async def test_options_are_sent_and_the_others_are_named(talk: Talk) -> None:
    name = next(name for name, service in SERVICES.items() if type(talk.service) is service)
    talk.service.says([], ["Yes."])
    events = await talk.turn("Is it?", options=OPTIONS)
    [complete] = [event for event in events if isinstance(event, MessageComplete)]
    assert set(complete.ignored_options) == IGNORED[name]
    request = talk.service.last_request()
    for field, value in SENT[name].items():
        if isinstance(value, dict):
            assert value.items() <= request[field].items()
        else:
            assert request[field] == value
    assert "of_another" not in json.dumps(request)


DEMANDED = {
    "ollama": ("format", {"type": "object", "properties": {}}),
    "openai": ("tool_choice", "required"),
    "anthropic": ("tool_choice", {"type": "any"}),
    "gemini": ("toolConfig", {"functionCallingConfig": {"mode": "ANY"}}),
}
"""The field of a request that demands a call, and its value."""


@pytest.mark.parametrize("talk", DEMANDED, indirect=True)
async def test_a_call_is_demanded_of_the_first_reply(talk: Talk) -> None:
    name = next(name for name, service in SERVICES.items() if type(talk.service) is service)
    talk.service.says([], ["Yes."])
    function: dict[str, Any] = {"name": "weather", "description": "", "parameters": {}}
    tool: dict[str, Any] = {"type": "function", "function": function}
    events = await talk.turn("Is it?", client_tools=[tool], selected=(), must_call=True)
    [complete] = [event for event in events if isinstance(event, MessageComplete)]
    field, value = DEMANDED[name]
    assert talk.service.last_request().get(field) == value
    assert "tool_choice" not in complete.ignored_options
