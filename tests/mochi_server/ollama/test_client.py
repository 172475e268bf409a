"""The clients over the library, which work without a mochi-server."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from contextlib import aclosing

import pytest
from pydantic import BaseModel

import mochi_server.ollama
from mochi_server.errors import MochiError, ModelNotFound, OllamaError, OllamaUnreachable
from mochi_server.ollama import AsyncInstructorOllamaClient, AsyncOllamaClient, OllamaClient
from mochi_server.ollama.transport import TimeLimits, address_of
from mochi_server.protocol.completions import ModelRequest
from mochi_server.providers.ollama.provider import OllamaProvider
from tests.support.fake_ollama import FakeOllama

MESSAGES = [{"role": "user", "content": "hi", "message_id": "1"}]
MODEL = "qwen3:14b"


class InThread:
    """The synchronous client with asynchronous methods, so that one test serves both."""

    def __init__(self, host, *, limits=None):
        self._client = OllamaClient(host, limits=limits)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)

    async def chat_stream(self, *args, **kwargs):
        found = []

        def run():
            try:
                found.extend(self._client.chat_stream(*args, **kwargs))
            except MochiError as error:
                return error
            return None

        error = await asyncio.to_thread(run)
        for chunk in found:
            yield chunk
        if error:
            raise error

    async def aclose(self):
        self._client.close()


@pytest.fixture(params=[InThread, AsyncOllamaClient])
async def make(request):
    made = []

    def make(host, **options):
        made.append(request.param(host, **options))
        return made[-1]

    yield make
    for client in made:
        await client.aclose()


async def test_the_models_that_can_chat_are_those_of_the_provider(ollama, make):
    provider = OllamaProvider("ollama", host=ollama.url)
    assert await make(ollama.url).list_models() == await provider.list_models()
    await provider.aclose()


async def test_a_broken_model_is_left_out_of_the_list(ollama, make):
    ollama.play("err_load_failed", path="/api/show")
    assert len(await make(ollama.url).list_models()) in (1, 2)


async def test_one_model_in_ollamas_terms_and_in_ours(ollama, make):
    client = make(ollama.url)
    shown = await client.show_model_details(MODEL)
    assert shown.modelinfo["qwen3.context_length"] == 40960
    info = await client.get_model_info(MODEL)
    assert (info.name, info.context_length) == (MODEL, 40960)
    with pytest.raises(ModelNotFound):
        await client.get_model_info("nope")


async def test_a_whole_reply(ollama, make):
    response = await make(ollama.url).chat(MODEL, MESSAGES, context_window=8192, think=True)
    assert response.message.content == "You said: hi"
    (body,) = ollama.chats
    assert (body["think"], body["options"]) == (True, {"num_ctx": 8192})
    assert body["messages"] == [{"role": "user", "content": "hi"}]


async def test_a_streamed_reply(ollama, make):
    chunks = [chunk async for chunk in make(ollama.url).chat_stream(MODEL, MESSAGES)]
    assert [chunk.message.content for chunk in chunks] == ["You", " said:", " hi", ""]
    assert chunks[-1].done
    assert ollama.chats[0]["think"] is False


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("err_model_missing", "MODEL_NOT_FOUND", "model 'nope' not found"),
        ("err_no_thinking", "THINKING_NOT_SUPPORTED", "does not support thinking"),
        ("err_ctx_native", "CONTEXT_OVERFLOW", "request (7905 tokens)"),
        ("err_busy", "PROVIDER_BUSY", "server busy"),
        ("err_no_route", "OLLAMA_ERROR", "404 page not found"),
        ("err_forbidden_host", "OLLAMA_UNREACHABLE", "host name (403)"),
        ("mid_error", "OLLAMA_ERROR", "The log of Ollama says why"),
        ("drop_mid_line", "OLLAMA_ERROR", "the connection was lost"),
        ("invalid_json_line", "OLLAMA_ERROR", "does not answer as Ollama does"),
        ("non_object_line", "OLLAMA_ERROR", "does not answer as Ollama does"),
    ],
)
async def test_errors_of_the_library_become_ours(ollama, make, name, code, words):
    ollama.play(name)
    with pytest.raises(MochiError) as caught:
        async for _ in make(ollama.url).chat_stream(MODEL, MESSAGES):
            pass
    assert caught.value.code == code
    assert words in caught.value.message


async def test_a_reply_without_end_is_an_error(ollama, make):
    ollama.play_raw([b'{"message":{"role":"assistant","content":"The"},"done":false}\n'])
    with pytest.raises(OllamaError, match="ended without finishing"):
        async for _ in make(ollama.url).chat_stream(MODEL, MESSAGES):
            pass


async def test_no_server_is_unreachable(make):
    client = make("http://127.0.0.1:1")
    assert await client.check_connection() is False
    with pytest.raises(OllamaUnreachable, match=r"http://127\.0\.0\.1:1"):
        await client.list_models()
    with pytest.raises(OllamaUnreachable):
        async for _ in client.chat_stream(MODEL, MESSAGES):
            pass


async def test_a_silent_server_is_unreachable(ollama, make):
    client = make(ollama.url, limits=TimeLimits(first_byte=0.1))
    assert await make(ollama.url).check_connection() is True
    ollama.reply(["never"], gate=asyncio.Event())
    with pytest.raises(OllamaUnreachable, match="did not answer in time"):
        await client.chat(MODEL, MESSAGES)


async def test_closing_a_stream_stops_the_model(ollama):
    client = AsyncOllamaClient(ollama.url)
    ollama.play("endless")
    async with aclosing(client.chat_stream(MODEL, MESSAGES)) as chunks:
        async for _ in chunks:
            break
    await ollama.disconnected()
    await client.aclose()


def test_the_synchronous_client_closes_itself():
    with OllamaClient("http://127.0.0.1:1") as client:
        assert client.check_connection() is False


def test_an_asynchronous_client_serves_one_loop_after_the_other():
    async def talk(host):
        client = AsyncOllamaClient(host)
        try:
            return (await client.chat(MODEL, MESSAGES)).message.content
        finally:
            await client.aclose()

    async def main():
        async with FakeOllama() as ollama:
            return await talk(ollama.url)

    assert asyncio.run(main()) == asyncio.run(main()) == "You said: hi"


class Answer(BaseModel):
    word: str


async def test_a_structured_response_has_valid_content(ollama):
    client = AsyncInstructorOllamaClient(ollama.url, keep_alive="300")
    response = await client.structured_response(MODEL, MESSAGES, Answer)
    assert response.message.content == '{"word": "Lorem ipsum"}'
    assert Answer.model_validate_json(response.message.content) == Answer(word="Lorem ipsum")
    assert ollama.chats[0]["keep_alive"] == 300
    await client.aclose()


def test_a_server_starts_without_the_libraries():
    code = (
        "import sys, mochi_project.asgi, mochi_server.ollama, mochi_server.providers.ollama;"
        "print([n for n in ('ollama', 'ollama_instructor', 'httpx') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        mochi_server.ollama.Nope  # noqa: B018


SECRET = "s3cret/x"
USERINFO = f"me:{SECRET.replace('/', '%2F')}@"
BASIC = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


def with_password(url):
    return url.replace("//", f"//{USERINFO}")


async def test_a_password_in_the_address_is_sent_with_every_request(ollama, make):
    client = make(with_password(ollama.url))
    await client.list_models()
    await client.chat(MODEL, MESSAGES)
    instructor = AsyncInstructorOllamaClient(with_password(ollama.url))
    await instructor.structured_response(MODEL, MESSAGES, Answer)
    await instructor.aclose()
    provider = OllamaProvider("ollama", host=with_password(ollama.url))
    await provider.list_models()
    request = ModelRequest(model=MODEL, messages=MESSAGES)
    async for _ in provider.stream(request):
        pass
    await provider.structured(request, Answer)
    await provider.aclose()
    assert len(ollama.requests) >= 8
    assert {request.headers.get("authorization") for request in ollama.requests} == {BASIC}


async def test_a_password_in_the_address_is_never_shown(ollama, make):
    provider = OllamaProvider("ollama", host=with_password("http://127.0.0.1:1"))
    here = OllamaProvider("ollama", host=with_password(ollama.url))
    ollama.play_body(b"<html>", content_type="text/html", path="/api/tags")
    ollama.play_body(b"<html>", status=500, content_type="text/html")
    request = ModelRequest(model=MODEL, messages=MESSAGES)
    errors = []
    for wait in (
        make(with_password("http://127.0.0.1:1")).list_models(),
        provider.list_models(),
        anext(provider.stream(request)),
        provider.structured(request, Answer),
        here.list_models(),
        anext(here.stream(request)),
    ):
        with pytest.raises(MochiError) as caught:
            await wait
        errors.append(str(caught.value.as_json()))
    assert all("127.0.0.1" in error for error in errors), errors
    shown = [*errors, provider.describe(), here.describe(), AsyncOllamaClient("me:p@c").host]
    for text in shown:
        assert not any(part in text for part in (SECRET, "s3cret", "me:", "@")), text
    await provider.aclose()
    await here.aclose()


@pytest.mark.parametrize(
    ("host", "url", "login"),
    [
        ("http://localhost:11434/", "http://localhost:11434", None),
        ("http://token@h/ollama", "http://h/ollama", "token:"),
        ("u:p@h:1", "h:1", "u:p"),
        ("https://u:p%40x@[::1]:1", "https://[::1]:1", "u:p@x"),
    ],
)
def test_an_address_is_split_into_what_is_shown_and_what_is_sent(host, url, login):
    address = address_of(host)
    assert address.url == url
    expected = {}
    if login is not None:
        expected = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    assert address.headers == expected
