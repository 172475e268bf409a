"""Models, windows and structured replies of an Ollama server."""

from __future__ import annotations

import asyncio
from datetime import datetime

import anyio
import orjson
import pytest
from pydantic import BaseModel

from mochi_server.errors import ContextOverflow, MochiError, ModelNotFound, OllamaError
from mochi_server.protocol.completions import ModelInfo, ModelRequest
from mochi_server.protocol.options import ModelOptions
from mochi_server.providers.base import EmbeddingRequest, LoadState
from mochi_server.providers.ollama import provider as module
from mochi_server.providers.ollama.provider import OllamaProvider
from tests.support.fake_ollama import FakeOllama

QWEN = ModelInfo(
    name="qwen3:14b",
    size_mb=9276.2,
    format="gguf",
    family="qwen3",
    parameter_size="14.8B",
    quantization_level="Q4_K_M",
    capabilities=["completion", "tools", "thinking"],
    context_length=40960,
    modified_at=datetime.fromisoformat("2026-05-10T08:06:48.639712-07:00"),
)


class Summary(BaseModel):
    summary: str
    topics: list[str]


@pytest.fixture
async def provider(ollama):
    made = OllamaProvider("ollama", host=f"{ollama.url}/", connect_timeout=1)
    yield made
    await made.aclose()


def paths(ollama):
    return [request.path for request in ollama.requests]


def ask(**fields):
    messages = [{"role": "user", "content": "hi"}]
    return ModelRequest(**{"model": "qwen3:14b", "messages": messages, **fields})


async def test_one_request_lists_the_models_that_can_chat(ollama, provider):
    models = await provider.list_models()
    assert [model.name for model in models] == ["qwen3:14b", "gemma3:4b"]
    assert models[0] == QWEN
    assert paths(ollama) == ["/api/tags"]


async def test_an_old_server_is_asked_for_each_model_once():
    async with FakeOllama(old=True) as ollama:
        provider = OllamaProvider("ollama", host=ollama.url)
        models = await provider.list_models()
        assert models[0] == QWEN
        assert [model.name for model in models] == ["qwen3:14b", "gemma3:4b"]
        assert paths(ollama).count("/api/show") == 3
        assert await provider.list_models() == models
        assert paths(ollama).count("/api/show") == 3
        await provider.aclose()


async def test_a_model_that_stays_broken_never_hides_the_others():
    """Also when it is the only one that is asked for again."""
    async with FakeOllama(old=True) as ollama:
        provider = OllamaProvider("ollama", host=ollama.url)
        ollama.play("err_load_failed", path="/api/show")
        first = [model.name for model in await provider.list_models()]
        ollama.play("err_load_failed", path="/api/show")
        assert [model.name for model in await provider.list_models()] == first
        await provider.aclose()


async def test_two_models_without_a_digest_are_not_mixed_up():
    async with FakeOllama(old=True) as ollama:
        entries = []
        for name, length in (("a:1", 1000), ("b:1", 2000)):
            model = ollama.add_model(name, context_length=length)
            entries.append(model.listed(new=False) | {"digest": ""})
        body = orjson.dumps({"models": entries})
        ollama.play_body(body, content_type="application/json", path="/api/tags")
        provider = OllamaProvider("ollama", host=ollama.url)
        found = {model.name: model.context_length for model in await provider.list_models()}
        assert (found["a:1"], found["b:1"]) == (1000, 2000)
        await provider.aclose()


async def test_a_server_that_shows_no_model_is_an_error():
    async with FakeOllama(old=True) as ollama:
        provider = OllamaProvider("ollama", host=ollama.url)
        ollama.play(*["err_load_failed"] * 3, path="/api/show")
        with pytest.raises(OllamaError, match="unable to allocate"):
            await provider.list_models()
        await provider.aclose()


async def test_recorded_lists_are_read(ollama, provider):
    ollama.play("tags", path="/api/tags")
    models = {model.name: model for model in await provider.list_models()}
    assert "nomic-embed-text:latest" not in models
    assert models["gpt-oss:120b-cloud"].remote_host == "https://ollama.com:443"
    assert models["qwen3:14b"].remote_host is None
    ollama.play("tags_empty", path="/api/tags")
    assert await provider.list_models() == []


async def test_a_model_without_a_tag_is_the_latest(ollama, provider):
    ollama.add_model("mine:latest", context_length=2048)
    model = await provider.show_model("mine")
    assert model.context_length == 2048
    assert await provider.show_model("mine:latest") == model
    assert paths(ollama) == ["/api/tags"]


async def test_what_is_known_of_a_model_is_asked_again_later(ollama, provider, monkeypatch):
    await provider.show_model("qwen3:14b")
    await provider.show_model("qwen3:14b")
    assert paths(ollama) == ["/api/tags"]
    monkeypatch.setattr(module, "MODEL_CACHE_SECONDS", -1)
    await provider.list_models()
    await provider.show_model("qwen3:14b")
    assert paths(ollama) == ["/api/tags"] * 3


@pytest.mark.parametrize("old", [True, False])
async def test_one_model_is_the_same_cold_and_after_the_list(old):
    async with FakeOllama(old=old) as ollama:
        cold = OllamaProvider("ollama", host=ollama.url)
        warm = OllamaProvider("ollama", host=ollama.url)
        await warm.list_models()
        found = await cold.show_model("qwen3:14b")
        assert found == QWEN == await warm.show_model("qwen3:14b")
        await cold.aclose()
        await warm.aclose()


async def test_a_list_without_context_lengths_is_completed(ollama, provider):
    """A server between two versions, or something else that speaks like one."""
    entry = ollama.models["qwen3:14b"].listed(new=True)
    del entry["details"]["context_length"]
    body = orjson.dumps({"models": [entry]})
    ollama.play_body(body, content_type="application/json", path="/api/tags")
    assert await provider.list_models() == [QWEN]


async def test_a_known_context_length_does_not_get_lost(ollama, provider):
    await provider.list_models()
    entry = ollama.models["qwen3:14b"].listed(new=True)
    del entry["details"]["context_length"]
    body = orjson.dumps({"models": [entry]})
    ollama.play_body(body, content_type="application/json", path="/api/tags")
    ollama.play("err_load_failed", path="/api/show")
    assert await provider.list_models() == [QWEN]
    assert await provider.show_model("qwen3:14b") == QWEN


async def test_a_model_that_no_list_has_is_shown(ollama, provider):
    ollama.play("tags_empty", path="/api/tags")
    model = await provider.show_model("qwen3:14b")
    assert (model.size_mb, model.context_length) == (None, 40960)


@pytest.mark.parametrize("listed", [True, False])
async def test_a_model_that_cannot_chat_is_not_found(ollama, provider, listed):
    if listed:
        await provider.list_models()
    for _ in range(2):
        with pytest.raises(ModelNotFound, match="cannot chat") as caught:
            await provider.show_model("nomic-embed-text")
        assert caught.value.details["capabilities"] == ["embedding"]


async def test_a_model_that_does_not_say_what_it_can_counts_as_able(ollama, provider):
    ollama.add_model("mine:1", capabilities=[])
    assert (await provider.show_model("mine:1")).capabilities == ["completion"]


async def test_a_missing_model_is_not_found_each_time(ollama, provider):
    for _ in range(2):
        with pytest.raises(ModelNotFound, match="model 'nope:latest' not found") as caught:
            await provider.show_model("nope")
        assert caught.value.details["model"] == "nope"
    assert paths(ollama) == ["/api/tags", "/api/show"] * 2


async def test_the_context_length_is_that_of_the_architecture(ollama, provider):
    ollama.add_model("x:1", family="qwen", architecture="qwen2moe", context_length=12345)
    assert (await provider.show_model("x:1")).context_length == 12345


async def test_a_recorded_description_is_read(ollama, provider):
    ollama.play("show", path="/api/show")
    model = await provider.show_model("any")
    assert (model.context_length, model.capabilities) == (40960, QWEN.capabilities)


@pytest.mark.parametrize("name", ["show_embedding", "show_no_model_info"])
async def test_recorded_descriptions_of_models_that_cannot_chat(ollama, provider, name):
    ollama.play(name, path="/api/show")
    with pytest.raises(ModelNotFound, match="cannot chat"):
        await provider.show_model("any")


async def test_whether_a_request_loads_its_model_is_that_of_the_server(ollama, provider):
    assert await provider.load_state("qwen3:14b") is LoadState.NONE_LOADED
    ollama.models["qwen3:14b"].loaded = 8192
    assert await provider.load_state("qwen3:14b") is LoadState.LOADED
    assert await provider.load_state("gemma3:4b") is LoadState.OTHERS_LOADED
    ollama.add_model("kimi:cloud", remote_host="https://ollama.com:443")
    assert await provider.load_state("kimi:cloud") is LoadState.LOADED


@pytest.mark.parametrize(
    ("version", "reads"),
    [("0.24.0", True), ("0.0.0", True), ("dev", True), ("0.30.0-rc1", False), ("1.0", False)],
)
async def test_servers_before_0_30_read_cancelled_prompts_to_their_end(
    ollama, provider, version, reads
):
    ollama.version = version
    assert await provider.reads_cancelled_prompts() is reads


async def test_the_loaded_window_is_that_of_the_server(ollama, provider):
    assert await provider.loaded_window("qwen3:14b") is None
    async for _ in provider.stream(ask(num_ctx=8192)):
        pass
    assert await provider.loaded_window("qwen3:14b") == 8192
    assert await provider.loaded_window("gemma3:4b") is None


async def test_another_window_reloads_the_model(ollama, provider):
    for window in (8192, 8192, 16384):
        async for _ in provider.stream(ask(num_ctx=window)):
            pass
    assert (ollama.loads, ollama.reloads) == (2, 1)


async def test_a_prompt_beyond_the_window_is_refused_not_cut(ollama, provider):
    long = [{"role": "user", "content": "word " * 10_000}]
    with pytest.raises(ContextOverflow) as caught:
        async for _ in provider.stream(ask(messages=long, num_ctx=4096)):
            pass
    assert caught.value.details["n_ctx"] == 4096


async def test_the_check_tells_whether_a_server_answers(ollama, provider):
    assert await provider.check() is True
    assert provider.describe() == ollama.url
    ollama.play("err_runner_gone", path="/api/version")
    assert await provider.check() is False
    nowhere = OllamaProvider("ollama", host="http://127.0.0.1:1")
    assert await nowhere.check() is False
    await nowhere.aclose()


async def test_the_check_does_not_wait_for_a_silent_server(ollama):
    provider = OllamaProvider("ollama", host=ollama.url, connect_timeout=0.1)
    ollama.play_raw([b"{}"], first_byte_ms=60_000, path="/api/version")
    with anyio.fail_after(30):
        assert await provider.check() is False
    await provider.aclose()


async def test_a_whole_answer_that_is_no_object_is_an_error(ollama, provider):
    for body in (b"[]", b"<html>"):
        ollama.play_body(body, content_type="text/html", path="/api/tags")
        with pytest.raises(OllamaError, match="does not answer as Ollama does"):
            await provider.list_models()


async def test_a_structured_reply_is_an_instance(ollama, provider):
    ollama.reply(['{"summary": "Hi", ', '"topics": ["x"]}'])
    request = ask(num_ctx=8192, max_tokens=100, options=ModelOptions(temperature=0.5))
    result = await provider.structured(request, Summary)
    assert result == Summary(summary="Hi", topics=["x"])
    (body,) = ollama.chats
    assert (body["think"], body["truncate"], body["stream"]) == (False, False, False)
    assert body["options"] == {"num_ctx": 8192, "num_predict": 100, "temperature": 0.5}
    assert body["format"] == Summary.model_json_schema()


async def test_a_structured_reply_has_a_second_chance(ollama, provider):
    ollama.reply(["I think"])
    result = await provider.structured(ask(), Summary)
    assert result == Summary(summary="Lorem ipsum", topics=["Lorem ipsum"])
    assert ["think" in body for body in ollama.chats] == [True, False]


async def test_two_replies_without_the_form_are_an_error(ollama, provider):
    ollama.reply(["I think"])
    ollama.reply([""])
    with pytest.raises(OllamaError, match="'qwen3:14b' does not have the form of Summary"):
        await provider.structured(ask(), Summary)
    assert len(ollama.chats) == 2


async def test_a_refusal_of_a_structured_request_is_translated_and_final(ollama, provider):
    for name, code in (
        ("err_model_missing", "MODEL_NOT_FOUND"),
        ("err_ctx_native", "CONTEXT_OVERFLOW"),
        ("err_busy", "PROVIDER_BUSY"),
        ("err_load_failed", "OLLAMA_ERROR"),
    ):
        ollama.play(name)
        with pytest.raises(MochiError) as caught:
            await provider.structured(ask(), Summary)
        assert caught.value.code == code
    assert len(ollama.chats) == 4


async def test_structured_requests_of_different_thinking_do_not_mix(ollama, provider):
    ollama.one_at_a_time = False
    await asyncio.gather(
        *(provider.structured(ask(think=think), Summary) for think in (True, False, "low"))
    )
    assert sorted(str(body["think"]) for body in ollama.chats) == ["False", "True", "low"]


async def test_embeddings_that_fail(ollama, provider):
    request = EmbeddingRequest(model="qwen3:14b", texts=["one"], dimensions=8)
    assert len((await provider.embed(request)).vectors[0]) == 8
    ollama.play_body(b'{"embeddings": []}', content_type="application/json", path="/api/embed")
    with pytest.raises(OllamaError, match="a vector for each text"):
        await provider.embed(request)
    with pytest.raises(ModelNotFound):
        await provider.embed(EmbeddingRequest(model="missing", texts=["one"]))
    long = EmbeddingRequest(model="qwen3:14b", texts=["word " * 10_000])
    with pytest.raises(ContextOverflow):
        await provider.embed(long)
