"""What all vendors' adapters make of refusals, of keys and of addresses."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import partial
from typing import Any

import anyio
import httpx2
import orjson
import pytest

from mochi_server.core.logs import logging_config
from mochi_server.errors import (
    ContextOverflow,
    JSONObject,
    MochiError,
    ProviderBusy,
    ProviderError,
    ProviderNotConfigured,
    ProviderUnreachable,
)
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import JsonSchemaFormat
from mochi_server.providers.base import ContentDelta, ModelRequest, Provider
from mochi_server.providers.openai import OpenAICompatibleProvider
from tests.support.exact_vendors import PROVIDERS, chunks_of
from tests.support.fake_openai import FakeOpenAI, delta, error, finished, running_fake, stream
from tests.support.redis import free_port

reply = partial(chunks_of, model="m")
KEY = "sk-very-secret-key"


async def failure_of(provider: Provider) -> MochiError:
    with pytest.raises(MochiError) as caught:
        await reply(provider)
    await provider.aclose()
    return caught.value


async def failing(*answers: Any, attempts: int = 1) -> tuple[MochiError, FakeOpenAI]:
    """The error of a server that answers so."""
    async with running_fake() as fake:
        fake.answers = list(answers)
        url = fake.base_url
        provider = OpenAICompatibleProvider("it", base_url=url, api_key=KEY)
        provider.attempts = attempts
        return await failure_of(provider), fake


BOTH = {"n_ctx": 4096, "n_prompt_tokens": 5000}
# Where a reply of 1096 tokens has no room beside the prompt: vLLM now and before, OpenRouter
PASSED = (
    "You passed 5000 input tokens and requested 1096 output tokens. However, the model's context "
    "length is only 5192 tokens, resulting in a maximum input length of 4096 tokens."
)
CONTAINS = (
    "maximum context length is 5192 tokens. However, you requested 1096 output tokens and your "
    "prompt contains at least 5000 input tokens, for a total of at least 6096 tokens."
)
TOO_LARGE = (
    "'max_tokens' or 'max_completion_tokens' is too large: 1096. This model's maximum context "
    "length is 5192 tokens and your request has 5000 input tokens (1096 > 5192 - 5000)."
)
TOGETHER = (
    "maximum context length is 5192 tokens. However, you requested 6096 tokens (5000 in the "
    "messages, 1096 in the completion). Please reduce the length of the messages"
)
OF_PARTS = (
    "maximum context length is 5192 tokens. However, you requested about 6096 tokens (4000 of "
    "text input, 1000 of tool input, 1096 in the output). Please reduce the length of either one"
)
DECODER = "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
TOO_LONG: list[tuple[str, dict[str, int]]] = [
    # OpenAI, vLLM
    (
        "maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
        BOTH,
    ),
    ("maximum context length is 4096 tokens. However, you requested 5000 tokens (4979 in", BOTH),
    # llama.cpp now and once, SGLang
    ("request (5000 tokens) exceeds the available context size (4096 tokens), try", BOTH),
    ("the request exceeds the available context size. try increasing the context size", {}),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", BOTH),
    # LM Studio, Mistral
    ("Trying to keep the first 4215 tokens when context the overflows. However, the model", {}),
    ("40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", {}),
    *((words, BOTH) for words in (PASSED, CONTAINS, TOO_LARGE, TOGETHER, OF_PARTS, DECODER)),
    # Copilot, Kimi, MiniMax, Qwen, Groq, Bedrock
    ("prompt token count of 5000 exceeds the limit of 4096", BOTH),
    ("Invalid request: Your request exceeded model token limit: 4096 (requested: 5000)", BOTH),
    ("Invalid request: Your request exceeded model token limit: 4096", {"n_ctx": 4096}),
    ("invalid params, context window exceeds limit (2013)", {}),
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 4096]", {}),
    ("Please reduce the length of the messages or completion.", {}),
    ("Input is too long for requested model.", {}),
]


@pytest.mark.parametrize(("words", "counts"), TOO_LONG)
async def test_a_prompt_that_is_too_long_is_known_by_the_servers_words(words, counts):
    found, _ = await failing(error(400, message=words, type="BadRequestError", code=400))
    assert type(found) is ContextOverflow
    assert found.details["upstream"] == words
    assert counts.items() <= found.details.items()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(413, message="Request too large"), ContextOverflow),
        (error(400, message="'max_tokens' is too large: 9000. This model's maximum context length "
                            "is 8192 tokens"), ProviderError),
        (error(400, message="'max_tokens' or 'max_completion_tokens' is too large: 9000. This "
                            "model's maximum context length is 8192 tokens and your request has 12 "
                            "input tokens (9000 > 8192 - 12)."), ProviderError),
        (error(400, message="max_tokens is too large: 100000. This model supports at most 16384 "
                            "completion tokens, whereas you provided 100000."), ProviderError),
        (error(400, message="max_tokens exceeds the limit of 8192"), ProviderError),
        (error(429, message="tokens per minute: maximum context length"), ProviderBusy),
        (error(429, message="You exceeded your current quota", code="insufficient_quota"),
         ProviderError),
        (error(400, message="The length of the context field is odd"), ProviderError),
    ],
)  # fmt: skip
async def test_refusals_that_look_alike_are_told_apart(answer, kind):
    found, fake = await failing(answer, answer)
    assert type(found) is kind
    assert len(fake.paths) == 1


async def test_retry_after_may_name_the_instant():
    until = datetime.now(timezone.utc) + timedelta(seconds=30)
    header = {"Retry-After": format_datetime(until, usegmt=True)}
    found, fake = await failing(error(429, headers=header, message="slow"), attempts=3)
    assert isinstance(found, ProviderBusy)
    assert found.retry_after is not None
    assert 25 <= found.retry_after <= 31
    assert len(fake.paths) == 1
    past = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    odd = [{"Retry-After": words} for words in ("soon", "Wed, 21 Oct 99999999999 07:28:00 GMT")]
    async with running_fake() as server:
        provider = OpenAICompatibleProvider("it", base_url=server.base_url)
        provider.attempts = 4
        busy = [error(503, headers=each, message="slow") for each in (past, *odd)]
        server.answers = [*busy, stream(delta(content="a"), finished())]
        assert (await reply(provider))[0] == ContentDelta("a")
        await provider.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        error(429, headers={"Retry-After": "9" * 30}, message="slow"),
        error(400, message=f"prompt is too long: {'9' * 30} tokens > 200 maximum"),
        error(400, code="context_length_exceeded", message="long", n_ctx=2**70),
    ],
)
async def test_numbers_beyond_all_sense_can_be_sent_on(answer):
    found, _ = await failing(answer)
    assert orjson.dumps(found.as_json())


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("key", ["sk-very-secret\nkey", "sk-very-secret-ключ", "sk-very\x00secret"])
async def test_a_key_that_no_header_may_carry_is_named_and_not_shown(vendor, key):
    found = await failure_of(vendor("it", api_key=key, base_url="http://127.0.0.1:9"))
    assert type(found) is ProviderNotConfigured
    assert "_API_KEY" in found.message
    assert "very" not in str(found.as_json())


async def test_a_key_that_the_service_repeats_is_not_shown():
    found, _ = await failing(error(401, message=f"Incorrect key: {KEY}.", code=KEY))
    assert "Incorrect key: …." in found.message
    assert KEY not in str(found.as_json())
    found, _ = await failing(stream({"error": {"message": f"Bad {KEY}"}}))
    assert KEY not in str(found.as_json())


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_no_key_is_not_configured(vendor):
    provider = vendor("it")
    assert not provider.configured
    with pytest.raises(ProviderNotConfigured, match=vendor.variable.partition(",")[0]):
        await reply(provider)
    assert await provider.check() is False


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_blanks_are_no_key_and_no_address(vendor):
    assert vendor("it", api_key=f" {KEY}\n", base_url=" ").configured
    assert not vendor("it", api_key=" ", base_url="").configured
    assert "127" not in vendor("it", api_key=KEY, base_url="").describe()


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_a_login_in_the_address_is_not_shown(vendor):
    where = f"127.0.0.1:{free_port()}/v1"
    url = f"http://me:pass-word@{where}?token=tok-en"
    found = await failure_of(vendor("it", api_key=KEY, base_url=url))
    assert type(found) is ProviderUnreachable
    assert f"http://{where}" in found.message
    assert "pass-word" not in str(found.as_json())
    assert "tok-en" not in str(found.as_json())


@asynccontextmanager
async def repeating(words: str = "") -> AsyncIterator[int]:
    """The port of a service that refuses a request with its whole head, and says more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            body = json.dumps({"error": {"message": f"{words} {head}", "code": 400}}).encode()
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"HTTP/1.1 400 X\r\n{length}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_a_login_that_the_service_repeats_is_not_shown(vendor):
    told = "Basic login, m@e:päss word, or m%40e:p%C3%A4ss%20word"
    async with repeating(told) as port:
        address = f"http://m%40e:p%C3%A4ss%20word@127.0.0.1:{port}/v1?token=to%20ken"
        provider = vendor("it", api_key=KEY, base_url=address)
        errors = [await failure_of(provider)]
        with pytest.raises(MochiError) as caught, anyio.fail_after(60):
            await provider.list_models()
        await provider.aclose()
    for found in (*errors, caught.value):
        shown = str(found.as_json())
        assert "Basic login, m@e:…, or m%40e:…" in shown
        basic = base64.b64encode("m@e:päss word".encode()).decode()
        for secret in ("ss word", "ss%20word", basic, basic.rstrip("="), "to%20ken", "to ken", KEY):
            assert secret not in shown


@pytest.mark.parametrize(
    ("key", "login", "told", "shown"),
    [
        ("x", "", "maximum context length is exceeded: x", "maximum context length is exceeded: …"),
        (KEY, "me:pw@", "pwd is not pw, me", "pwd is not …, me"),
        (KEY, "me:@", "some of me", "some of …"),
        (KEY, "tok-en@", "a bad tok-en", "a bad …"),
        (KEY, f"me:{KEY}-too@", f"a bad {KEY}-too", "a bad …"),
    ],
)
async def test_what_is_hidden_leaves_other_words_as_they_are(key, login, told, shown):
    async with repeating(told) as port:
        address = f"http://{login}127.0.0.1:{port}/v1?v=1&api-version=2"
        found = await failure_of(OpenAICompatibleProvider("it", base_url=address, api_key=key))
    assert shown in str(found.as_json())


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:port/v1", "localhost:9/v1", "nonsense"]
)
async def test_an_address_that_is_none_is_an_error_with_a_name(vendor, url):
    found = await failure_of(vendor("it", api_key=KEY, base_url=url))
    assert isinstance(found, (ProviderUnreachable, ProviderNotConfigured, ProviderError))


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "odd://127.0.0.1:9"])
async def test_a_proxy_that_cannot_be_used_is_an_error_with_a_name(vendor, proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    found = await failure_of(vendor("it", api_key=KEY, base_url="http://127.0.0.1:9"))
    assert isinstance(found, (ProviderUnreachable, ProviderNotConfigured))
    del found
    gc.collect()  # a client that was made by half must not complain when it goes


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (None, "max_completion_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1/", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://openrouter.ai/api/v1", "max_tokens"),
        ("http://openai.com.example/v1", "max_tokens"),
    ],
)
async def test_the_limit_has_the_name_that_the_server_knows(url, name, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "")  # which the SDK would take for an address
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(400, json={"error": {"message": "enough"}})

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    provider = OpenAICompatibleProvider("it", base_url=url, api_key=KEY)
    provider._http = lambda: client
    with pytest.raises(ProviderError, match="enough"):
        await reply(provider, max_tokens=9)
    assert json.loads(asked[0].content)[name] == 9
    assert str(asked[0].url).startswith((url or "https://api.openai.com/v1").rstrip("/"))
    with pytest.raises(ProviderError, match="enough"):
        await reply(provider, max_tokens=9, response_format=JsonSchemaFormat.of({"type": "object"}))
    assert (name in json.loads(asked[1].content)) is (name == "max_tokens")
    with pytest.raises(ProviderError, match="enough"):
        await reply(
            provider,
            max_tokens=9,
            options=ModelOptions(max_tokens=9),
            response_format=JsonSchemaFormat.of({"type": "object"}),
        )
    assert json.loads(asked[2].content)[name] == 9
    await provider.aclose()


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_the_log_has_no_key_and_no_login_at_any_level(vendor, caplog):
    caplog.set_level("DEBUG")
    for name, config in logging_config("DEBUG")["loggers"].items():
        if "level" in config:
            caplog.set_level(config["level"], logger=name)
    async with running_fake() as fake:
        fake.answers = [error(500, message=f"Bad {KEY}")] * 3
        url = fake.base_url.replace("http://", "http://me:pass-word@")
        await failure_of(vendor("it", api_key=KEY, base_url=url))
        assert fake.paths
    for secret in (KEY, "pass-word"):
        assert secret not in caplog.text


class Mistaken(OpenAICompatibleProvider):
    """One with a mistake in it."""

    def extra_body(self, request: ModelRequest) -> JSONObject:
        raise TypeError(f"a mistake of ours, with {KEY}")


async def test_what_may_be_a_mistake_of_ours_is_logged_with_its_place_and_without_secrets(caplog):
    caplog.set_level("INFO", logger="mochi_server")
    async with running_fake() as fake:
        found = await failure_of(Mistaken("it", api_key=KEY, base_url=fake.base_url))
        assert type(found) is ProviderError
        (record,) = [one for one in caplog.records if one.name.startswith("mochi_server")]
        assert record.levelname == "WARNING"
        assert "in extra_body" in caplog.text
        assert "TypeError: a mistake of ours, with …" in caplog.text
        assert KEY not in caplog.text
        caplog.clear()
        fake.answers = [error(500, message="theirs"), stream({"error": {"message": "theirs"}})]
        for _ in range(2):
            await failure_of(OpenAICompatibleProvider("it", base_url=fake.base_url))
        assert not [one for one in caplog.records if one.name.startswith("mochi_server")]
