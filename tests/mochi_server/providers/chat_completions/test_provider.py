"""The adapter for OpenAI-compatible servers, against one on a socket."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import orjson
import pytest
from pydantic import BaseModel

from mochi_server.backends import build_provider, default_providers
from mochi_server.config import load_settings
from mochi_server.errors import (
    ContextOverflow,
    MochiError,
    ModelNotFound,
    ProviderError,
    ProviderNotConfigured,
    ProviderUnreachable,
)
from mochi_server.protocol.messages import ToolCall
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import RESPONSE_FORMAT, JsonSchemaFormat
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import ContentDelta, EmbeddingRequest, Finish, ModelRequest
from mochi_server.providers.builtin.engine import Engine
from mochi_server.providers.openai import OpenAICompatibleProvider
from mochi_server.runtime import Runtime
from mochi_server.testmode.provider import ScriptedProvider
from tests.support.exact_vendors import HELLO, VENDORS, chunks_of
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
from tests.support.local_model import folder_with_model
from tests.support.turns import read_all, text_of

reply = partial(chunks_of, model="m")


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with running_fake() as server:
        yield server


@pytest.fixture
async def provider(fake: FakeOpenAI) -> AsyncIterator[OpenAICompatibleProvider]:
    provider = OpenAICompatibleProvider("openai", base_url=fake.base_url, api_key="sk-test")
    yield provider
    await provider.aclose()


async def test_text_and_counts_arrive_and_one_finish_is_last(provider, fake):
    fake.answers = [
        stream(
            delta(role="assistant", content=None),
            delta(content="Hel"),
            delta(content="lo"),
            finished("length"),
            usage(7, 2),
        )
    ]
    assert await reply(provider, options=ModelOptions(temperature=0.5), max_tokens=9) == [
        ContentDelta("Hel"),
        ContentDelta("lo"),
        Finish(reason="length", eval_count=2, prompt_eval_count=7),
    ]
    assert fake.paths == ["POST /v1/chat/completions"]
    assert fake.headers[0]["authorization"] == "Bearer sk-test"
    assert fake.bodies[0] == {
        "model": "m",
        "messages": HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 9,
    }


async def test_arguments_can_be_stored_and_sent_again(provider, fake):
    """Python's own JSON reads what no other JSON may say."""
    odd = '{"half": "a\\ud83d", "whole": "\\ud83d\\ude00", "huge": 123456789012345678901234}'
    fake.answers = [stream(call_delta(0, id="a", name="add", arguments=odd), finished())]
    call, _ = await reply(provider)
    assert isinstance(call, ToolCall)
    assert call.arguments == {"half": "a?", "whole": "😀", "huge": 123456789012345678901234.0}
    assert orjson.loads(orjson.dumps(call.arguments)) == call.arguments


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("[1", "not JSON"),
        ("[1]", "not a JSON object"),
        ("7", "object"),
        ('{"a": NaN}', "not finite"),
        ('{"a": 1e999}', "not finite"),
        (f'{{"a": {"[" * 300 + "]" * 300}}}', "100 levels"),
        (f'{{"a": {"[" * 100_000 + "]" * 100_000}}}', "100 levels"),
    ],
)
async def test_a_call_whose_arguments_are_no_object_that_can_be_stored_says_what_is_wrong(
    provider, fake, odd, words
):
    fake.answers = [stream(call_delta(0, id="a", name="add", arguments=odd), finished())]
    call, _ = await reply(provider)
    assert isinstance(call, ToolCall)
    assert words in str(call.problem)
    written = call.as_stored()["function"]["arguments"]["input"]
    assert written == odd
    assert orjson.dumps(written)


async def test_arguments_of_many_values_are_not_read(provider, fake):
    """They would keep all others waiting; those of a text do not count."""
    many, text = json.dumps({"a": [{}] * 10_001}), json.dumps({"a": "[{," * 10_001})
    for arguments in (many, text):
        fake.answers = [stream(call_delta(0, id="a", name="add", arguments=arguments), finished())]
        call, _ = await reply(provider)
        assert isinstance(call, ToolCall)
        assert ("10,000 values" in str(call.problem)) is (arguments is many)
        assert call.arguments == ({"input": many} if arguments is many else json.loads(text))


async def test_an_event_of_many_choices_is_not_read(provider, fake):
    """The SDK makes objects of them, which would keep all others waiting."""
    fake.answers = [stream({"choices": [{}] * 20_000}, finished())]
    with pytest.raises(ProviderError, match="more than 12,000 values at once"):
        await reply(provider)


async def test_thinking_that_must_be_sent_back_is_bounded(provider, fake):
    """It is stored beside the reply."""
    data = {"type": "reasoning.encrypted", "data": "x" * 1_000_000}
    parts = [delta(reasoning_details=[{**data, "index": index}]) for index in range(5)]
    fake.answers = [stream(*parts, delta(content="Yes."), finished())]
    with pytest.raises(ProviderError, match="more than 4 MB at once"):
        await reply(provider)


async def test_a_call_without_end_is_ended(provider, fake):
    piece = call_delta(0, arguments="x" * 500_000)
    first = call_delta(0, id="a", name="add", arguments='{"a": "')
    fake.answers = [stream(first, *[piece] * 20, call_delta(0, arguments='"}'), finished())]
    with pytest.raises(ProviderError, match="more than 4 MB at once"):
        await reply(provider)


async def test_a_schema_always_comes_with_a_limit(provider, fake):
    fake.answers = [stream(delta(content="{}"), finished())]
    function = {
        "name": "add",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    tools = [{"type": "function", "function": function}]
    await reply(
        provider, response_format=JsonSchemaFormat.of({"type": "object"}), tools=tools, think="low"
    )
    body = fake.bodies[0]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": {"type": "object"}},
    }
    assert body["max_tokens"] > 0
    assert body["tools"] == tools
    assert body["tool_choice"] == "auto"
    assert body["reasoning_effort"] == "low"


async def test_a_format_is_sent_as_the_request_has_it(provider, fake):
    fake.answers = [stream(delta(content="{}"), finished()) for _ in range(2)]
    named = {"name": "town", "schema": {"type": ["null"]}, "description": "A town.", "strict": True}
    for asked in ({"type": "json_schema", "json_schema": named}, {"type": "json_object"}):
        await reply(provider, response_format=RESPONSE_FORMAT.validate_python(asked))
        assert fake.bodies[-1]["response_format"] == asked


@pytest.mark.parametrize(("url", "beside_tools"), [(None, True), ("http://localhost/v1", False)])
def test_only_the_vendor_itself_takes_a_format_beside_tools(url, beside_tools):
    provider = OpenAICompatibleProvider("it", base_url=url, api_key="k")
    asked = JsonSchemaFormat.of({})
    assert provider.takes_format("m", asked, tools=False)
    assert provider.takes_format("m", asked, tools=True) is beside_tools


async def test_a_stored_conversation_is_sent_with_matching_call_ids(provider, fake):
    """Files of old writers have calls and results without ids."""
    fake.answers = [stream(delta(content="5"), finished())]
    stored = [
        {"role": "system", "content": "Be kind.", "source_file": None},
        {"role": "user", "content": "2+3, and the time?", "message_id": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"function": {"name": "add", "arguments": {"a": 2}}},
                {"function": {"name": "now", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "noon", "tool_name": "now"},
        {"role": "tool", "content": "5", "tool_name": "add"},
        {"role": "weird", "content": "?"},
        {
            "role": "assistant",
            "content": "So",
            "model": "openai/m",
            "tool_calls": [{"function": {"name": "now", "arguments": {}}, "id": "call_7"}],
        },
        {"role": "tool", "content": "one", "tool_name": "now", "tool_call_id": "call_7"},
    ]
    await reply(provider, messages=stored)
    system, user, calls, add, now, second, result = fake.bodies[0]["messages"]
    assert system == {"role": "system", "content": "Be kind."}
    assert user == {"role": "user", "content": "2+3, and the time?"}
    assert calls["content"] == ""
    assert [call["function"]["name"] for call in calls["tool_calls"]] == ["add", "now"]
    assert json.loads(calls["tool_calls"][0]["function"]["arguments"]) == {"a": 2}
    assert add["tool_call_id"] == calls["tool_calls"][0]["id"]
    assert now["tool_call_id"] == calls["tool_calls"][1]["id"]
    assert second["tool_calls"][0]["id"] == result["tool_call_id"] == "call_7"
    assert [each["name"] for each in (add, now, result)] == ["add", "now", "now"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            error(400, type="exceed_context_size_error", message="too long", n_ctx=4096),
            ContextOverflow,
            "does not fit",
        ),
        (error(400, code="context_length_exceeded", message="long"), ContextOverflow, "fit"),
        (stream(delta(content="a"), done=False), ProviderError, "broke off"),
        (stream(delta(content="a")), ProviderError, "broke off"),
        (stream(delta(content="a"), done=False, then="cut"), ProviderUnreachable, "reached"),
        (stream(delta(content="a"), {"error": {"code": 500, "message": "x"}}), ProviderError, "x"),
        (Answer(pieces=[b"data: {oops\n\n"]), ProviderError, "openai"),
    ],
)
async def test_each_failure_has_its_error_and_the_servers_own_words(
    provider, fake, answer, kind, words
):
    fake.answers = [answer]
    with pytest.raises(MochiError, match=words) as caught:
        await reply(provider)
    assert type(caught.value) is kind
    assert len(fake.paths) == 1, "the SDK must not try again by itself"


async def test_no_header_comes_from_variables_that_are_no_settings(
    fake: FakeOpenAI, monkeypatch: Any
) -> None:
    """The SDK would send them to any address, and fail where they are not ASCII."""
    added = "X-Mine: secret\nAuthorization: Bearer other"
    variables = {
        "OPENAI_ORG_ID": "Zürich",
        "OPENAI_PROJECT_ID": "proj",
        "OPENAI_ADMIN_KEY": "sk-admin",
        "OPENAI_CUSTOM_HEADERS": added,
    }
    own = {"openai-organization", "openai-project", "x-mine"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    scripted = ScriptedProvider("test", words_per_second=0)
    provider = OpenAICompatibleProvider("openai", base_url=fake.base_url, api_key="sk-test")
    fake.answers = [MODELS, stream(delta(content="Yes"), finished())]
    await provider.list_models()
    assert (await reply(provider))[0] == ContentDelta("Yes")
    assert isinstance((await reply(scripted))[-1], Finish)
    for headers in fake.headers:
        assert headers["authorization"] == "Bearer sk-test"
        assert not own & headers.keys()
    await provider.aclose()
    await scripted.aclose()


def listed(*names: str) -> Answer:
    data = [{"id": name, "object": "model"} for name in names]
    return Answer(pieces=[json.dumps({"object": "list", "data": data}).encode()], content_type=JSON)


MODELS = listed("m")


async def test_models_are_listed_once_and_looked_up(provider, fake):
    fake.answers = [MODELS]
    assert (await provider.show_model("m")).provider == "openai"
    with pytest.raises(ModelNotFound):
        await provider.show_model("other")
    assert fake.paths == ["GET /v1/models"]


@pytest.mark.parametrize(
    ("created", "time"),
    [(1_735_689_600, datetime(2025, 1, 1, tzinfo=timezone.utc)), (0, None), ("x", None)],
)
async def test_the_time_of_a_model_is_the_one_that_its_server_says(provider, fake, created, time):
    data = [{"id": "m", "object": "model", "created": created}]
    body = json.dumps({"object": "list", "data": data}).encode()
    fake.answers = [Answer(pieces=[body], content_type=JSON)]
    assert [model.modified_at for model in await provider.list_models()] == [time]
    assert (await provider.show_model("m:nitro")).modified_at == time


async def test_variants_of_listed_models_are_models(provider, fake):
    """OpenRouter lists no ways to route: they stand behind any of its names."""
    fake.answers = [listed("maker/m", "maker/n:free")]
    assert (await provider.show_model("maker/m:nitro")).name == "maker/m:nitro"
    assert (await provider.show_model("maker/n:free:floor")).name == "maker/n:free:floor"
    for name in ("maker/other:nitro", "maker/n"):
        with pytest.raises(ModelNotFound):
            await provider.show_model(name)


async def at(address: str, *names: str) -> tuple[list[str], list[str]]:
    """Which of the names a service lists, and which can be used, where it lists them all."""
    body = {"object": "list", "data": [{"id": name, "object": "model"} for name in names[1:]]}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=body))
    client = httpx2.AsyncClient(transport=transport)
    provider = OpenAICompatibleProvider("it", base_url=address, api_key="k")
    provider._http = lambda: client
    listed = [model.name for model in await provider.list_models()]
    usable = []
    for name in names:
        with suppress(ModelNotFound):
            usable.append((await provider.show_model(name)).name)
    await provider.aclose()
    return listed, usable


async def test_models_of_openai_that_do_not_chat_are_left_out():
    fine_tuned = "ft:gpt-4.1:scotts-images::abc"
    names = ("gpt-9", fine_tuned, "gpt-4.1", "gpt-image-1", "ft:davinci-002:me::abc")
    chatting = [fine_tuned, "gpt-4.1"]
    assert await at("https://api.openai.com/v1", *names) == (chatting, chatting)


async def test_deployments_of_azure_are_models():
    """Its list has the models that could be deployed, under their own names."""
    listed, usable = await at("https://me.openai.azure.com/openai/v1", "my-gpt", "gpt-4.1")
    assert listed == ["gpt-4.1"]
    assert usable == ["my-gpt", "gpt-4.1"]


IMPORTS = """
import asyncio, sys, threading
from mochi_server.errors import ProviderUnreachable
from mochi_server.providers.base import ModelRequest
from mochi_server.providers.openai import OpenAICompatibleProvider

names = []

def note(event, details):
    if event == "import" and threading.current_thread() is threading.main_thread():
        names.append(details[0])

async def main():
    provider = OpenAICompatibleProvider("it", base_url="http://127.0.0.1:9")
    async for _ in provider.stream(ModelRequest(model="m", messages=[])):
        pass

sys.addaudithook(note)
try:
    asyncio.run(main())
except ProviderUnreachable:
    print([name for name in names if name.startswith("openai")])
"""


async def test_the_sdk_is_not_imported_in_the_event_loop():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IMPORTS, stdout=asyncio.subprocess.PIPE
    )
    with anyio.fail_after(100):
        out, _ = await process.communicate()
    assert out == b"[]\n"


async def test_check_says_whether_it_answers(provider, fake):
    fake.answers = [MODELS, error(500, message="boom")]
    assert await provider.check() is True
    assert await provider.check() is False


async def test_embeddings_that_fail(fake: FakeOpenAI, provider: OpenAICompatibleProvider) -> None:
    request = EmbeddingRequest(model="m", texts=["one", "two"], dimensions=8)
    fake.answers.append(error(404, message="no such model", code="model_not_found"))
    with pytest.raises(ModelNotFound):
        await provider.embed(request)
    assert fake.bodies[-1] | {"encoding_format": ""} == {
        "model": "m",
        "input": ["one", "two"],
        "dimensions": 8,
        "encoding_format": "",
    }
    body = json.dumps({"data": [{"index": 0, "embedding": [0.5]}]})
    fake.answers.append(Answer(pieces=[body.encode()], content_type=JSON))
    with pytest.raises(ProviderError, match="a vector for each text"):
        await provider.embed(request)
    fake.answers.append(Answer(pieces=[b'{"data": []}'], content_type=JSON))
    with pytest.raises(ProviderError):
        await provider.embed(request)
    assert (await provider.embed(EmbeddingRequest(model="m", texts=[]))).vectors == ()


# The provider \`openai\` as the settings make it, and vendors that nobody has set up


CHEAP = ("gpt-4.1-nano", "gpt-4o-mini", "gpt-5-nano")


def models(*names: str) -> Answer:
    body = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
    return Answer(pieces=[json.dumps(body).encode()], content_type=JSON)


async def test_a_server_of_ones_own_needs_no_key(fake: FakeOpenAI) -> None:
    settings = load_settings(openai_base_url=fake.base_url)
    provider = build_provider("openai", default_providers(settings)["openai"])
    fake.answers = [models("tiny"), stream(delta(content="a"), finished())]
    (model,) = await provider.list_models()
    assert (model.name, model.capabilities) == (
        "tiny",
        ["completion", "tools", "thinking", "vision"],
    )
    request = ModelRequest(model="tiny", messages=HELLO, max_tokens=9)
    chunks = [chunk async for chunk in provider.stream(request)]
    assert chunks[0] == ContentDelta("a")
    assert fake.bodies[1]["max_tokens"] == 9
    await provider.aclose()


async def test_vendors_without_a_key_are_an_error_at_use_and_shown_nowhere(tmp_path: Path) -> None:
    runtime = Runtime(load_settings(data_dir=tmp_path, ollama_host="http://127.0.0.1:9"))
    registry = runtime.providers
    assert set(VENDORS) <= set(registry.all_aliases)
    assert not set(VENDORS) & set(registry.aliases)
    for alias in VENDORS:
        with pytest.raises(ProviderNotConfigured, match=f"{alias.upper()}_API_KEY"):
            await registry.show_model(f"{alias}/some-model")
    await runtime.aclose()


class Town(BaseModel):
    name: str


@pytest.mark.slow
async def test_a_real_llama_cpp_server_answers_with_text_and_in_a_shape(tmp_path: Path) -> None:
    folder = folder_with_model(tmp_path)
    (weights,) = folder.iterdir()
    place = Engine.shared_folder(weights, 2048)
    engine = Engine(weights, folder=place, context=2048, slots=1, threads=2, idle_seconds=1)
    async with engine.use() as endpoint:
        settings = load_settings(
            data_dir=tmp_path / "data",
            openai_base_url=endpoint.base_url,
            openai_api_key=endpoint.api_key,
            max_output_tokens=24,
        )
        runtime = Runtime(settings)
        provider = runtime.providers.get("openai")
        (model,) = await provider.list_models()
        request = ModelRequest(
            model=model.name, messages=HELLO, max_tokens=24, options=ModelOptions(temperature=0.0)
        )
        session = await runtime.sessions.create(f"openai/{model.name}")
        with anyio.fail_after(50):
            chunks = [chunk async for chunk in provider.stream(request)]
            town = await provider.structured(replace(request, max_tokens=None), Town)
        opened = await runtime.chat.open_turn(session.session_id, TurnRequest(message="Say hello."))
        events = await read_all(runtime.chat.start(opened))
        assert sum(isinstance(chunk, ContentDelta) for chunk in chunks) > 1
        assert isinstance(chunks[-1], Finish)
        assert isinstance(town.name, str)
        assert [event.type for event in events[-2:]] == ["message_complete", "done"]
        assert events[-2].payload()["model"] == f"openai/{model.name}"
        assert text_of(events)
        await runtime.aclose()


@pytest.mark.e2e
@pytest.mark.parametrize("alias", VENDORS)
async def test_the_real_service_answers(alias: str) -> None:
    settings = load_settings()
    if getattr(settings, f"{alias}_api_key") is None:
        pytest.skip(f"{alias.upper()}_API_KEY is not set")
    provider = build_provider(alias, default_providers(settings)[alias])
    models = [model.name for model in await provider.list_models()]
    model = next((name for name in CHEAP if name in models), models[0])
    chunks = await chunks_of(provider, model=model, max_tokens=2000)
    await provider.aclose()
    assert any(isinstance(chunk, ContentDelta) and chunk.content for chunk in chunks)
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].eval_count


def test_keys_do_not_stand_in_the_table_of_backends() -> None:
    keys = {f"{alias}_api_key": f"very-secret-{alias}" for alias in VENDORS}
    assert "very-secret" not in repr(default_providers(load_settings(**keys)))
