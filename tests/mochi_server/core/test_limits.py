"""Limits on JSON, on what is read of a model server's responses, and on how much callers have."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mochi_server.core.limits import (
    MAX_RESPONSE,
    complete_json,
    has_more_values,
    httpx_limits,
    is_too_deep,
    may_be_too_deep,
)
from mochi_server.core.slots import Slots
from mochi_server.errors import MochiError, ServerBusy
from mochi_server.ollama import AsyncOllamaClient, OllamaClient
from mochi_server.protocol.completions import ModelRequest
from mochi_server.providers.base import Provider
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.providers.openai import OpenAICompatibleProvider
from tests.support.exact_vendors import VENDORS


def nested(levels: int, pair: str = "[]") -> object:
    inner = '{"a":' if pair == "{}" else pair[0]
    return json.loads(inner * levels + "1" + pair[1] * levels)


@pytest.mark.parametrize("pair", ["[]", "{}"])
@pytest.mark.parametrize(("levels", "deep"), [(0, False), (64, False), (65, True), (900, True)])
def test_levels_are_counted_of_objects_and_lists_alike(pair, levels, deep):
    value = nested(levels, pair)
    assert is_too_deep(value, 64) is deep
    assert may_be_too_deep(json.dumps(value).encode(), 64) is deep


def test_width_is_no_depth():
    wide = [{"a": []}] * 1000
    assert may_be_too_deep(json.dumps(wide).encode(), 64)
    assert not is_too_deep(wide, 3)
    assert is_too_deep(wide, 2)


TEXTS = st.text(alphabet='ab,[{}]:"\\ \n')
JSON = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def count(value: object) -> int:
    """Members and elements, and one for each empty list or object."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(len(value), 1) + sum(map(count, inner))


@given(JSON, st.booleans())
def test_values_are_counted_outside_of_texts(value, spaces):
    encoded = json.dumps(value, indent=1 if spaces else None).encode()
    assert not has_more_values(encoded, count(value))
    if count(value):
        assert has_more_values(encoded, count(value) - 1)


@pytest.mark.parametrize("text", ["a, b", '\\"', "\\\\", "[{,", 'say \\"[1,2]\\", '])
def test_a_long_text_is_one_value(text):
    assert not has_more_values(json.dumps({"message": text * 10_000}).encode(), 1)


@pytest.mark.parametrize("one", [b"1,", b"[],", b'"",', b'"a\\\\",', b'"\\",",'])
def test_many_short_values_are_many(one):
    assert has_more_values(b"[" + one * 5000 + b"1]", 5000)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"a": ["x"], "b": "é."\n\n \n', '{"a": ["x"], "b": "é."}'),
        ('{"a": ["x", "y', '{"a": ["x"]}'),
        ('{"b": "x", "a', '{"b": "x"}'),
        ('{"b": "x', "{}"),
        ('{"b": "x ', "{}"),
        ('{"a": ["x"], "b": "é.\n\n \n', '{"a": ["x"], "b": "é."}'),
        ('{"a": ["x"], "b": "é.    ', '{"a": ["x"], "b": "é."}'),
        ('{"b": "x", "a  ', '{"b": "x"}'),
        ('{"a":  1}', '{"a":  1}'),
        ("I think", "I think"),
        ("", ""),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_a_cut_document_ends_after_its_last_whole_value(text, whole):
    assert complete_json(text) == whole


MEGABYTE = 2**20
ENDLESS = 200
"""Megabytes that a server would send; it is left long before."""
HELLO = [{"role": "user", "content": "Hello"}]
SSE, NDJSON, JSON = "text/event-stream", "application/x-ndjson", "application/json"


class Flood:
    """A server that sends as much as it is let."""

    def __init__(self) -> None:
        self.url = ""
        self.sent = 0
        """Megabytes of the answer that went out."""
        self.head = ""
        self.begin = b""
        self.piece = b"x" * MEGABYTE
        self.paths: list[str] = []

    def answer(
        self,
        kind: str,
        begin: bytes = b"",
        piece: bytes = b"x" * MEGABYTE,
        *,
        status: str = "200 OK",
        headers: str = "",
    ) -> None:
        self.begin, self.piece = begin, piece
        self.head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}Connection: close\r\n\r\n"
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            self.paths.append(request.split(b" ")[1].decode())
            writer.write(self.head.encode() + self.begin)
            for _ in range(ENDLESS):
                writer.write(self.piece)
                await writer.drain()
                self.sent += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def flood():
    made = Flood()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


class Shape(BaseModel):
    text: str


def ask(model: str = "m") -> ModelRequest:
    return ModelRequest(model=model, messages=HELLO)


async def say(provider: Provider) -> None:
    async for _ in provider.stream(ask()):
        pass


def ollama(url: str) -> Provider:
    return OllamaProvider("it", host=url)


def vendor(kind: Any) -> Callable[[str], Provider]:
    def make(url: str) -> Provider:
        made: Provider = kind("it", api_key="k", base_url=url)
        return made

    return make


MAKERS = {
    "ollama": ollama,
    **{name: vendor(each.made) for name, each in VENDORS.items()},
}
CALLS: dict[str, Callable[[Provider], Awaitable[object]]] = {
    "list": lambda provider: provider.list_models(),
    "stream": say,
    "structured": lambda provider: provider.structured(ask(), Shape),
}


@asynccontextmanager
async def failing(provider: Provider) -> AsyncIterator[pytest.ExceptionInfo[MochiError]]:
    try:
        with anyio.fail_after(60), pytest.raises(MochiError) as caught:
            yield caught
    finally:
        await provider.aclose()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_no_answer_is_read_whole_whatever_its_size(flood, name, call, status):
    """A list of models, an error, a reply, a stream of which no event ends."""
    is_reply = call != "list" and status == "200 OK"
    flood.answer(SSE if is_reply and name != "ollama" else JSON, b'{"a":"', status=status)
    provider = MAKERS[name](flood.url)
    async with failing(provider) as caught:
        await CALLS[call](provider)
    assert flood.sent < 40
    assert len(caught.value.message) < 2000


@pytest.fixture(scope="module")
def packed() -> bytes:
    """Two hundred megabytes of one letter, which are two hundred kilobytes on the wire."""
    packer = zlib.compressobj(wbits=31)
    return b"".join([packer.compress(b"x" * MEGABYTE) for _ in range(ENDLESS)]) + packer.flush()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("call", ["list", "stream"])
async def test_what_a_small_answer_inflates_to_is_bounded(flood, packed, name, call):
    kind = SSE if call == "stream" and name != "ollama" else JSON
    flood.answer(kind, packed, b"", headers="Content-Encoding: gzip\r\n")
    provider = MAKERS[name](flood.url)
    await provider.prepare()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak_memory()
    async with failing(provider):
        await CALLS[call](provider)
    assert peak_memory() - before < 60 * MEGABYTE


def peak_memory() -> int:
    """The most memory that this process has had since its peak was reset, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("name", VENDORS)
async def test_an_encoding_that_was_not_asked_for_is_refused(flood, name):
    flood.answer(JSON, b"?", b"", headers="Content-Encoding: br\r\n")
    provider = MAKERS[name](flood.url)
    async with failing(provider) as caught:
        await provider.list_models()
    assert "compresses its answers with 'br'" in caught.value.message


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("call", CALLS)
async def test_no_redirect_is_followed(flood, name, call):
    """The words of another service, which only this machine reaches, must not come back."""
    flood.answer(
        JSON, b"", b"", status="302 Found", headers="Location: /secret\r\nContent-Length: 0\r\n"
    )
    provider = MAKERS[name](flood.url)
    async with failing(provider) as caught:
        await CALLS[call](provider)
    assert "redirects" in caught.value.message
    assert not any("secret" in path for path in flood.paths)


async def test_the_clients_of_the_library_have_the_same_limits(flood):
    def in_thread(method: str, *arguments: Any) -> None:
        with OllamaClient(flood.url) as client:
            getattr(client, method)(*arguments)

    client = AsyncOllamaClient(flood.url)
    for method, arguments in (("list_models", ()), ("chat", ("m", HELLO))):
        for status, headers in (("200 OK", ""), ("302 Found", "Location: /secret\r\n")):
            flood.answer(JSON, b'{"a":"', status=status, headers=headers)
            for call in (
                getattr(client, method)(*arguments),
                asyncio.to_thread(in_thread, method, *arguments),
            ):
                flood.sent = 0
                with pytest.raises(MochiError):
                    await call
                assert flood.sent < 40
    await client.aclose()
    assert not any("secret" in path for path in flood.paths)


@pytest.mark.parametrize("name", VENDORS)
async def test_an_error_that_is_too_large_says_so(flood, name):
    flood.answer(JSON, b'{"data":"')
    provider = MAKERS[name](flood.url)
    async with failing(provider) as caught:
        await provider.list_models()
    assert "sent more than 4 MB at once" in caught.value.message
    assert MAX_RESPONSE == 4 * MEGABYTE


async def test_a_large_list_of_models_is_still_read(flood):
    names = [f"vendor/model-{number}-{'x' * 200}" for number in range(10_000)]
    body = json.dumps({"data": [{"id": name} for name in names]}).encode()
    flood.answer(JSON, body, b"", headers=f"Content-Length: {len(body)}\r\n")
    provider = OpenAICompatibleProvider("it", base_url=flood.url)
    assert len(await provider.list_models()) == 10_000
    await provider.aclose()


async def test_the_end_of_an_event_may_come_in_pieces():
    """Some servers send the empty line after an event by itself."""

    async def events() -> AsyncIterator[bytes]:
        for _ in range(8):
            for piece in (b"data: ", b"x" * MEGABYTE, b"\n", b"\n"):
                yield piece

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=events())

    made = httpx.AsyncClient(**httpx_limits(), transport=httpx.MockTransport(answer))
    async with made as client, client.stream("GET", "http://model.example") as response:
        assert sum([len(data) async for data in response.aiter_bytes()]) > 2 * MAX_RESPONSE


@pytest.mark.parametrize("size", [1_000, 65_536])
async def test_an_event_of_many_values_is_not_handed_on(size):
    """An SDK would make an object of each; those within a text do not count."""

    def client(*events: bytes) -> httpx.AsyncClient:
        async def pieces() -> AsyncIterator[bytes]:
            body = b"".join(b"data: %s\n\n" % event for event in events)
            for begin in range(0, len(body), size):
                yield body[begin : begin + size]

        def answer(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=pieces())

        return httpx.AsyncClient(**httpx_limits(), transport=httpx.MockTransport(answer))

    small, text = b'{"choices": [{}]}', json.dumps({"text": "{}," * 20_000}).encode()
    many = json.dumps({"choices": [{}] * 20_000}).encode()

    async def read(client: httpx.AsyncClient) -> tuple[bytes, str]:
        received, error = bytearray(), ""
        async with client, client.stream("GET", "http://model.example") as response:
            try:
                async for data in response.aiter_bytes():
                    received += data
            except MochiError as problem:
                error = problem.message
        return bytes(received), error

    received, error = await read(client(small, text, many, small))
    assert "more than 12,000 values at once" in error
    assert text in received
    assert many not in received
    received, error = await read(client(*[small] * 10_000, text))
    assert (text in received, error) == (True, "")


# How much callers may have of something


def test_all_callers_together_have_the_slots_and_one_its_share():
    slots = Slots("runs", 4, share=0.5)
    with ExitStack() as held:
        for caller in ("one", "one", "two", ""):
            held.enter_context(slots.slot(caller))
        for caller in ("one", "two", "three", ""):
            with pytest.raises(ServerBusy) as refused:
                slots.check(caller)
            assert refused.value.retry_after == 1
    slots.check("one")


def test_one_caller_is_refused_while_others_are_not():
    slots = Slots("runs", 4, share=0.5)
    with slots.slot("one"), slots.slot("one"):
        with pytest.raises(ServerBusy) as refused, slots.slot("one"):
            pass
        assert refused.value.details["limit"] == 2
        slots.check("two")
        slots.check("")


def test_the_smallest_share_is_one_slot():
    slots = Slots("runs", 3, share=0.1)
    with slots.slot("one"), pytest.raises(ServerBusy):
        slots.check("one")
    slots.check("one")


def test_the_process_itself_has_no_share():
    slots = Slots("runs", 2, share=0.5)
    with slots.slot(""), slots.slot(""), pytest.raises(ServerBusy):
        slots.check("")
