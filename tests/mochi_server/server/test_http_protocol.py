"""Limits on heads and connections that uvicorn does not have.

Seen with uvicorn 0.54.0 and httptools 0.9.0: where the first test fails, uvicorn has a limit of its
own, and ours may go.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mochi_server.server.http_protocol import LimitedProtocol, limited_address
from tests.support.waiting import until

REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n%b\r\nhi"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body, after `?wait` seconds; at `/early` before the body.

    At `/stream` the answer has two parts and no length.
    """
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part, more in ((b"one ", True), (b"", True), (b"two", True), (b"", False)):
            await send({"type": "http.response.body", "body": part, "more_body": more})
        return
    length, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        length, more = length + len(message["body"]), message["more_body"]
    await anyio.sleep(float(scope["query_string"] or 0))
    text = str(length).encode()
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def serving(protocol: Any = None, **limits: Any) -> AsyncIterator[int]:
    """The port of a server in this process."""
    http = protocol or partial(LimitedProtocol, **{"per_address": 2, "head_seconds": 20, **limits})
    config = uvicorn.Config(application, http=http, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as sock, anyio.fail_after(30):
        task = asyncio.ensure_future(server.serve(sockets=[sock]))
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return int(head.split(b" ")[1]), await self.reader.readexactly(length)

    async def refusal(self) -> tuple[int, str]:
        """The status and the code of the next answer, after which the connection ends."""
        status, body = await self.answer()
        assert await self.reader.read() == b""
        return status, json.loads(body)["error"]["code"]


@asynccontextmanager
async def connected(port: int, sent: bytes = b"") -> AsyncIterator[Client]:
    """A connection; what is sent at once is there before the server accepts it."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(sent)
    client = Client(*await asyncio.open_connection(sock=sock))
    try:
        yield client
    finally:
        client.writer.transport.abort()


@pytest.mark.parametrize(
    ("protocol", "statuses"), [(HttpToolsProtocol, (200, 200)), (None, (431, 431))]
)
async def test_headers_without_end_are_refused_by_us_and_not_by_uvicorn(
    protocol: Any, statuses: tuple[int, int]
) -> None:
    one = b"X-Big: %b\r\n" % (b"a" * 60_000)
    many = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 500) for number in range(60))
    found = []
    async with serving(protocol) as port:
        for headers in (one, many):
            async with connected(port) as client:
                await client.send(REQUEST % headers)
                found.append((await client.answer())[0])
    assert tuple(found) == statuses


async def test_a_head_of_16_kib_is_read() -> None:
    async with serving() as port, connected(port) as client:
        await client.send(REQUEST % (b"X-Big: %b\r\n" % (b"a" * 16_000)))
        assert await client.answer() == (200, b"2")
        await client.send(REQUEST % (b"X-Big: %b\r\n" % (b"a" * 16_400)))
        assert await client.refusal() == (431, "HEADERS_TOO_LARGE")


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX-Big: "])
async def test_a_head_that_does_not_end_is_refused_before_it_does(start: bytes) -> None:
    async with serving() as port, connected(port) as client:
        await client.send(start)
        for _ in range(17):
            await client.send(b"a" * 1024)
        assert await client.refusal() == (431, "HEADERS_TOO_LARGE")


@pytest.mark.parametrize("behind", [b"0\r\nX-Big: ", b"2;name=", b"0" * 9])
async def test_what_is_no_body_in_a_chunked_body_is_limited(behind: bytes) -> None:
    async with serving() as port, connected(port) as client:
        await client.send(CHUNKED + b"2\r\nhi\r\n" + behind)
        with suppress(ConnectionError):  # what came last was not read
            for _ in range(512):
                await client.send(b"a" * 1024)
            assert await client.reader.read() == b""


@pytest.mark.parametrize(
    ("path", "version", "kept", "body"),
    [
        ("/stream", "1.0", b"", b"one two"),
        ("/stream", "1.0", b"Connection: keep-alive\r\n", b"one two"),
        ("/stream", "1.1", b"Connection: close\r\n", b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"),
        ("/", "1.0", b"", b"0"),
    ],
)
async def test_a_client_of_http_1_0_gets_no_chunks(
    path: str, version: str, kept: bytes, body: bytes
) -> None:
    async with serving() as port, connected(port) as client:
        await client.send(f"GET {path} HTTP/{version}\r\nHost: x\r\n".encode() + kept + b"\r\n")
        head, _, received = (await client.reader.read()).partition(b"\r\n\r\n")
    assert received == body
    assert (b"transfer-encoding" in head) == (version == "1.1")


async def test_a_chunked_body_has_trailers_and_any_length() -> None:
    async with serving() as port, connected(port) as client:
        for _ in range(2):
            await client.send(CHUNKED)
            for _ in range(1000):
                await client.send(b"1f;name=value\r\n%b\r\n" % (b"a" * 31))
            await client.send(b"0\r\nX-Sum: %b\r\n\r\n" % (b"a" * 15_000))
            assert await client.answer() == (200, b"31000")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
        b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n",
        b"POST /early HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n6;",
    ],
)
async def test_a_body_that_nobody_waits_for_is_given_up(head: bytes) -> None:
    async with serving(head_seconds=0.3) as port, connected(port, head) as client:
        assert await client.answer() == (200, b"0")
        with suppress(ConnectionResetError):  # where it comes later than 0.3 s
            await client.send(b"hi")
            assert await client.reader.read() == b""


async def test_a_connection_is_kept_when_the_rest_of_an_answered_request_comes() -> None:
    async with serving() as port, connected(port) as client:
        for _ in range(3):
            await client.send(REQUEST.replace(b"POST / ", b"POST /early ")[:-2] % b"")
            assert await client.answer() == (200, b"0")
            await client.send(b"hi")


async def test_a_body_before_a_websocket_is_given_up() -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    async with serving(head_seconds=0.3) as port, connected(port, REQUEST[:-2] % upgrade) as client:
        assert await client.reader.read() == b""


async def test_bodies_and_requests_in_a_row_are_not_taken_for_heads() -> None:
    async with serving() as port, connected(port) as client:
        big = REQUEST.replace(b": 2", b": 100000")[:-2] % b"" + b"a" * 100_000
        for kinds in ([big, REQUEST % b"", big], [big], [REQUEST % b"", big]):
            await client.send(b"".join(kinds))
            for kind in kinds:
                assert await client.answer() == (200, b"100000" if kind is big else b"2")


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\nHost: loc", b"\r\n"])
async def test_a_head_that_comes_slowly_is_given_up(data: bytes) -> None:
    async with serving(head_seconds=0.3) as port, connected(port, data) as client:
        assert await client.refusal() == (408, "REQUEST_TIMEOUT")


async def test_a_second_head_that_comes_slowly_is_given_up() -> None:
    heads = REQUEST % b"" + b"GET / HT"
    async with serving(head_seconds=0.3) as port, connected(port, heads) as client:
        assert await client.answer() == (200, b"2")
        assert await client.refusal() == (408, "REQUEST_TIMEOUT")


async def test_a_connection_without_a_word_is_closed_without_one() -> None:
    async with serving(head_seconds=0.3) as port, connected(port) as client:
        assert await client.reader.read() == b""


@pytest.mark.parametrize("behind", [b"\r\n", b"GET / HT"])
async def test_what_comes_behind_a_request_does_not_end_its_answer(behind: bytes) -> None:
    request = REQUEST.replace(b"POST / ", b"POST /?1 ") % b""
    async with serving(head_seconds=0.1) as port, connected(port, request) as client:
        await client.send(behind)
        assert await client.answer() == (200, b"2")


async def test_what_is_no_http_is_a_named_error() -> None:
    async with serving() as port, connected(port) as client:
        await client.send(b"BREW / HTTP/1.1\r\n\r\n")
        assert await client.refusal() == (400, "INVALID_HTTP")


async def test_an_address_has_so_many_connections_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mochi_server.server.http_protocol.limited_address", str)
    caplog.set_level(logging.WARNING, "mochi_server.server.http_protocol")
    async with serving() as port, connected(port) as first, connected(port):
        await first.send(REQUEST % b"")
        assert await first.answer() == (200, b"2")
        for _ in range(3):
            async with connected(port) as third:
                assert await third.refusal() == (503, "SERVER_BUSY")
        await first.send(REQUEST % b"")
        assert await first.answer() == (200, b"2")
        first.writer.transport.abort()

        async def status() -> int:
            async with connected(port) as third:
                await third.send(REQUEST % b"")
                return (await third.answer())[0]

        assert await until(status, lambda status: status != 503) == 200
    assert "127.0.0.1 has 2 connections; more are refused" in caplog.text
    assert not LimitedProtocol.connected


async def test_connections_of_this_machine_are_not_counted() -> None:
    async with serving(per_address=1) as port, connected(port) as first, connected(port) as second:
        for client in (first, second):
            await client.send(REQUEST % b"")
            assert await client.answer() == (200, b"2")


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("192.168.1.5", "192.168.1.5"),
        ("::ffff:192.168.1.5", "192.168.1.5"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_is_counted_under_one_name(host: str, counted: str | None) -> None:
    assert limited_address(host) == counted
