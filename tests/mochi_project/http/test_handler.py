"""How much of what clients send is in memory, and for how long."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
import pytest_asyncio
from anyio.lowlevel import checkpoint

import mochi_project.urls  # noqa: F401 - knows the paths of vendors
from chat.streaming import EventStreamResponse
from mochi_project.http.body_limits import BodyLimits
from mochi_project.http.handler import DisconnectWatch, RequestBodies
from mochi_server.chat.runs.log import RunLog
from mochi_server.errors import PayloadTooLarge, RequestTimeout, ServerBusy
from mochi_server.testing import instructions, text
from tests.support.server import Server, running_server

MB = 1_000_000
HEAD = (
    "POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)


def resident(server: Server) -> int:
    """Bytes of memory that the process has."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * 4096


@asynccontextmanager
async def connected(
    server: Server, length: int, sent: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose request has a body of that length, of which this has been sent."""
    parts = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(HEAD.format(length).encode() + sent)
    try:
        await writer.drain()
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer_of(reader: asyncio.StreamReader) -> tuple[str, dict[str, object]]:
    """The head and the error of an answer."""
    with anyio.fail_after(60):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split("\r\n")[0])
        return head, json.loads(await reader.readexactly(length))["error"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with running_server(data_dir=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"unknown": "%s"}', "VALIDATION_ERROR"),
        (b'{"message": "%s", "model": 7}', "VALIDATION_ERROR"),
        (b'{"message": "%s"', "INVALID_JSON"),
        (b'{"message": "%s", "session_id": "0123456789"}', "SESSION_NOT_FOUND"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_refused_bodies_are_not_kept(server: Server, body: bytes, code: str) -> None:
    body = body % (b"a" * (4 * MB))
    for number in range(40):
        async with connected(server, len(body), body) as (reader, _):
            assert (await answer_of(reader))[1]["code"] == code
        if number == 4:
            before = resident(server)
    assert resident(server) - before < 40 * MB


async def test_all_bodies_together_have_a_limit_and_small_ones_always_pass(tmp_path: Path) -> None:
    part = b'{"message": "' + b"a" * (900_000)
    async with running_server(data_dir=tmp_path, max_body_mb=1) as server:
        async with AsyncExitStack() as stack:
            held = [await stack.enter_async_context(connected(server, MB, part)) for _ in range(12)]
            answers = [asyncio.ensure_future(answer_of(reader)) for reader, _ in held]
            refused, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            for answer in refused:
                head, error = answer.result()
                assert error["code"] == "SERVER_BUSY"
                assert " 503 " in head
                assert "retry-after: 1\r\n" in head
            assert (await server.post("/sessions", {"model": 7}))[0] == 422
            for answer in waiting:
                answer.cancel()
            await asyncio.wait(answers)
        with anyio.fail_after(30):
            while True:
                async with connected(server, 950_000, b" " * 950_000) as (reader, _):
                    if (await answer_of(reader))[1]["code"] == "INVALID_JSON":
                        break


def receive_from(*parts: bytes, more: bool = False):
    """An ASGI ``receive`` that gives these parts, and then either the end or nothing for ever."""
    left = list(parts)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": more or bool(left)}

    return receive


async def test_a_body_comes_in_one_part_or_in_many() -> None:
    bodies = RequestBodies(BodyLimits(usual=MB))
    for parts in ([b"abc"], [b"", b"abc"], [b"a", b"b", b"c"]):
        with bodies.one() as body:
            assert await body.read(receive_from(*parts)) == b"abc"


@pytest.mark.parametrize("parts", [[b"a" * 101], [b"a" * 100, b"b"]])
async def test_a_body_over_the_limit_is_refused(parts: list[bytes]) -> None:
    with RequestBodies(BodyLimits(usual=100)).one() as body, pytest.raises(PayloadTooLarge):
        await body.read(receive_from(*parts, more=True))


@pytest.mark.parametrize("path", ["/v1/messages", "/ollama/api/chat", "/api/v1/agui"])
async def test_a_body_with_a_whole_history_may_be_larger(path: str) -> None:
    bodies = RequestBodies(BodyLimits(usual=100, wire=200))
    with bodies.one(path) as body:
        assert await body.read(receive_from(b"a" * 100, b"b" * 100)) == b"a" * 100 + b"b" * 100
    with bodies.one(path) as body, pytest.raises(PayloadTooLarge):
        await body.read(receive_from(b"a" * 201, more=True))


@pytest.mark.slow
async def test_the_first_request_may_have_a_whole_history_with_any_asgi_server(
    tmp_path: Path,
) -> None:
    command = ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0")
    runs = re.compile(r"running on (http://\S+)")
    settings = {"command": command, "ready": runs, "max_body_mb": 0.01, "test_words_per_second": 0}
    async with running_server(data_dir=tmp_path, **settings) as server:
        message = {"role": "user", "content": "Hello. " * 2000 + instructions(text("Hi."))}
        body = {"model": "test/any", "max_tokens": 9, "messages": [message]}
        async with server.http.post(f"{server.url}/v1/messages", json=body) as response:
            assert response.status == 200, await response.text()


async def test_a_file_to_import_is_written_to_the_disk() -> None:
    bodies = RequestBodies(BodyLimits(usual=100, upload=MB))
    part = b"x" * 50_000
    room = bodies.room
    with bodies.one("/api/v1/sessions/import") as body:
        file = await body.read_to_file(receive_from(*[part] * 20))
        assert file is not None
        assert (len(file.read()), bodies.room) == (MB, room)
    assert file.closed
    with bodies.one("/api/v1/sessions/import") as body, pytest.raises(PayloadTooLarge):
        await body.read_to_file(receive_from(*[part] * 21, more=True))


async def test_what_is_read_no_longer_makes_room() -> None:
    bodies = RequestBodies(BodyLimits(usual=MB))
    for _ in range(30):
        with bodies.one() as body:
            await body.read(receive_from(b"a" * MB))
    held = [bodies.one() for _ in range(11)]
    for body in held[:10]:
        await body.read(receive_from(b"a" * MB))
    with pytest.raises(ServerBusy):
        await held[10].read(receive_from(b"a" * MB))
    held[0].release()
    assert await held[10].read(receive_from(b"a" * MB)) == b"a" * MB


@pytest.mark.parametrize("parts", [[], [b"a"]])
async def test_a_body_that_does_not_arrive_is_given_up(parts: list[bytes]) -> None:
    with (
        anyio.fail_after(30),
        RequestBodies(BodyLimits(usual=MB), seconds=0.05).one() as body,
        pytest.raises(RequestTimeout),
    ):
        await body.read(receive_from(*parts, more=True))


async def test_a_body_that_arrives_slowly_gives_way_to_others() -> None:
    bodies = RequestBodies(BodyLimits(usual=MB), patience=0.05)

    async def arrive(*parts: bytes, more: bool = False) -> bytes | None:
        with bodies.one() as body:
            return await body.read(receive_from(*parts, more=more))

    with anyio.fail_after(30):
        slow = [asyncio.ensure_future(arrive(b"a" * MB, more=True)) for _ in range(10)]
        while bodies.room:
            await checkpoint()
        answer = None
        while answer is None:
            with suppress(ServerBusy):
                answer = await arrive(b"a" * MB)
            await checkpoint()
        with pytest.raises(ServerBusy):
            await slow[0]
        assert not any(task.done() for task in slow[1:])
        for task in slow[1:]:
            task.cancel()
        await asyncio.wait(slow[1:])
    assert bodies.room == 10 * MB


async def test_bodies_that_are_read_already_do_not_give_way() -> None:
    bodies = RequestBodies(BodyLimits(usual=MB), patience=0)
    held = [bodies.one() for _ in range(11)]
    for body in held[:10]:
        await body.read(receive_from(b"a" * MB))
    with pytest.raises(ServerBusy):
        await held[10].read(receive_from(b"a" * MB))


async def test_a_stream_that_has_ended_needs_no_garbage_collection() -> None:
    response = EventStreamResponse(RunLog().reader())
    memory = weakref.ref(response)
    gc.disable()
    try:
        watch = DisconnectWatch(receive_from())
        watch.follow(response)
        await checkpoint()
        watch.stop()
        response.close()
        del watch, response
        await checkpoint()
        await checkpoint()
        assert memory() is None
    finally:
        gc.enable()
