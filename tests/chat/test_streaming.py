"""Clients that leave, clients that do not read, and servers that stop: over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.sessions import JSONFileStorage
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.raw import RawClient, dropped, events_of
from tests.support.server import NOBODY, Server, running_server
from tests.support.site import Site, running_site
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
own_loop = pytest.mark.asyncio(loop_scope="function")

UVICORN = ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0")
RUNS = re.compile(r"running on (http://\S+)")
NOT_READ = "has not read its stream"
MEGABYTES = ["word " * 400] * 4800
"""9.6 MB: more than all socket buffers together, and less than the longest reply."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def usual(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("clients")
    async with running_site(folder, one_at_a_time=False) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def site(usual: Site) -> AsyncIterator[Site]:
    """A server as it is by default."""
    async with usual.lent():
        yield usual


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("strict")
    limits = {"heartbeat_seconds": 0.75}
    async with running_site(folder, **limits) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def impatient(strict: Site) -> AsyncIterator[Site]:
    """A server that soon drops who does not read."""
    async with strict.lent():
        yield strict


def stored(folder: Path, session: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(
        (folder / "chat_sessions" / f"{session}.json").read_bytes()
    )["messages"]
    return messages


async def until_stored(folder: Path, session: str, count: int) -> list[dict[str, Any]]:
    """The messages, once there are so many."""
    return await until(lambda: stored(folder, session), lambda messages: len(messages) >= count)


def paused(ollama: FakeOllama) -> Reply:
    return ollama.reply(["Once", " upon", " a time"], gate=asyncio.Event(), pause_after=2)


async def begun(server: Server, session: str, **options: Any) -> tuple[RawClient, bytes]:
    """A stream that has said "upon"."""
    client = await RawClient.post(
        server.url, f"/chat/{session}/stream", {"message": "Tell!"}, **options
    )
    got = b""
    with anyio.fail_after(30):
        while b"upon" not in got:
            got += await client.reader.read(1000)
    return client, got


async def next_turn_works(server: Server, session: str) -> None:
    """The claim is free again, soon."""
    status, answer = await until(
        lambda: server.post(f"/chat/{session}", {"message": "Again."}),
        lambda answer: answer[0] != 409,
    )
    assert status == 200, answer


async def test_a_client_that_hangs_up_stops_the_model_and_keeps_the_partial(site: Site) -> None:
    """In mid-stream, before the first token, and on the plain route; each at once."""
    server, ollama = site.server, site.ollama
    session = await server.new_session()
    paused(ollama)
    client, _ = await begun(server, session)
    client.hang_up()
    with anyio.fail_after(30):
        await ollama.disconnected(1)
    partial = (await until_stored(site.folder, session, 2))[-1]
    assert (partial["content"], partial["interrupted"]) == ("Once upon", True)
    await next_turn_works(server, session)

    for number, route in enumerate(("/stream", ""), start=2):
        session = await server.new_session()
        ollama.reply(["Late."], gate=asyncio.Event())
        before = len(ollama.chats)
        path = f"/chat/{session}{route}"
        client = await RawClient.post(server.url, path, {"message": "Hi"})
        await ollama.requested(before + 1, path="/api/chat")
        client.hang_up()
        with anyio.fail_after(30):
            await ollama.disconnected(number)
        assert [m["role"] for m in stored(site.folder, session)] == ["user"]
        await next_turn_works(server, session)


async def test_a_client_that_half_closes_still_gets_its_answer_or_counts_as_gone(
    site: Site,
) -> None:
    """Closing only the sending side must not leave a turn running for nobody."""
    server, ollama = site.server, site.ollama
    session = await server.new_session()
    reply = paused(ollama)
    client, got = await begun(server, session)
    client.writer.write_eof()
    with anyio.move_on_after(2):
        await ollama.disconnected()
    assert reply.gate is not None
    reply.gate.set()
    got += await client.rest()
    message = (await until_stored(site.folder, session, 2))[-1]
    if "interrupted" in message:
        assert b"event: done" not in got
        assert message["content"].startswith("Once upon")
    else:
        assert got.index(b"event: message_complete") < got.index(b"event: done")
        assert b"event: error" not in got
        assert message["content"] == "Once upon a time"
    await next_turn_works(server, session)


async def test_a_client_that_never_reads_loses_its_stream_and_holds_up_nobody(
    impatient: Site,
) -> None:
    """The upstream is read to its end at full speed, the whole reply is stored, others are served,
    and the slow client's stream ends without ``done``."""
    server, ollama = impatient.server, impatient.ollama
    lines_before = server.log.count(NOT_READ)
    session = await server.new_session()
    ollama.reply(MEGABYTES)
    client = await RawClient.post(
        server.url, f"/chat/{session}/stream", {"message": "All of it."}, window=4096
    )
    messages = await until_stored(impatient.folder, session, 2)
    assert messages[-1]["content"] == "".join(MEGABYTES)
    assert "interrupted" not in messages[-1]
    assert ollama.disconnects == 0
    await next_turn_works(server, session)
    await server.saw(NOT_READ, lines_before + 1)
    await dropped(client.port)
    assert b"event: done" not in await client.rest()


async def test_a_client_that_stalls_in_mid_reply_loses_its_stream_but_not_its_turn(
    impatient: Site,
) -> None:
    """The model goes on to its end, the whole reply is stored, then the session is free."""
    server, ollama = impatient.server, impatient.ollama
    session = await server.new_session()
    gate = asyncio.Event()
    ollama.reply(MEGABYTES, gate=gate, pause_after=len(MEGABYTES) - 1)
    client = await RawClient.post(
        server.url, f"/chat/{session}/stream", {"message": "All of it."}, window=4096
    )
    await dropped(client.port)
    gate.set()
    reply = (await until_stored(impatient.folder, session, 2))[-1]
    assert "interrupted" not in reply
    assert reply["content"] == "".join(MEGABYTES)
    assert ollama.disconnects == 0
    await next_turn_works(server, session)
    client.hang_up()


async def test_a_client_that_reads_a_byte_a_second_loses_its_stream_and_holds_up_nobody(
    impatient: Site,
) -> None:
    """TCP passes on so little only when there is room for much more: to us nothing moves."""
    server, ollama = impatient.server, impatient.ollama
    session, other = await server.new_session(), await server.new_session()
    ollama.reply(MEGABYTES, match="All of it.")
    client = await RawClient.post(
        server.url, f"/chat/{session}/stream", {"message": "All of it."}, window=4096
    )

    async def read_slowly() -> None:
        while await client.reader.read(1):  # noqa: ASYNC110 - that is what it does
            await anyio.sleep(1)

    reading = asyncio.ensure_future(read_slowly())
    await next_turn_works(server, other)
    await dropped(client.port)
    reading.cancel()
    client.hang_up()
    reply = (await until_stored(impatient.folder, session, 2))[-1]
    assert reply["content"] == "".join(MEGABYTES)
    await next_turn_works(server, session)


@pytest.mark.slow
async def test_a_slow_client_that_does_read_gets_everything(impatient: Site) -> None:
    """Slow is not stalled, also where the server's own buffer has no room for a long time."""
    server, ollama = impatient.server, impatient.ollama
    session = await server.new_session()
    ollama.reply(MEGABYTES)
    client = await RawClient.post(
        server.url,
        f"/chat/{session}/stream",
        {"message": "Slowly."},
        window=16_384,
        Connection="close",
    )
    with anyio.fail_after(60):
        for _ in range(80):
            assert await client.reader.read(16_384)
            await anyio.sleep(0.1)
    assert b"event: done" in (await client.rest())[-400:]


@own_loop
async def test_sigterm_in_mid_stream_says_so_keeps_the_partial_and_ends_in_order(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Error and done are delivered, also on the plain route as a status; exit code 0."""
    ollama.one_at_a_time = False
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session, plain = await server.new_session(), await server.new_session()
        paused(ollama)
        client, got = await begun(server, session)
        paused(ollama)
        request = asyncio.ensure_future(server.post(f"/chat/{plain}", {"message": "Hi"}))
        await ollama.requested(2, path="/api/chat")
        with anyio.fail_after(30):
            ended = asyncio.ensure_future(server.stop(signal.SIGTERM))
            got += await client.rest()
            text = got.partition(b"\r\n\r\n")[2]
            assert await ended == 0
        body = re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", text).removesuffix(b"\r\n").decode()
        events = events_of(body)
        assert [event.event for event in events][-2:] == ["error", "done"]
        assert events[-2].data["code"] == "SHUTTING_DOWN"
        status, answer = await request
        assert (status, answer["error"]["code"]) == (503, "SHUTTING_DOWN")
        partial = stored(tmp_path, session)[-1]
        assert (partial["content"], partial["interrupted"]) == ("Once upon", True)
        assert stored(tmp_path, plain)[0]["role"] == "user"
        await ollama.disconnected(2)
        assert "Traceback" not in server.log, server.log


@own_loop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_with_clients_that_do_not_read_still_stops(
    tmp_path: Path, ollama: FakeOllama, number: signal.Signals
) -> None:
    """One bad client must not keep a server alive: the bound is the shutdown time."""
    async with running_server(data_dir=tmp_path, ollama=ollama, shutdown_seconds=1) as server:
        session = await server.new_session()
        ollama.reply(MEGABYTES)
        client = await RawClient.post(
            server.url, f"/chat/{session}/stream", {"message": "All of it."}, window=4096
        )
        await until_stored(tmp_path, session, 2)
        with anyio.fail_after(30):
            assert await server.stop(number) == 0
        client.hang_up()
        assert stored(tmp_path, session)[-1]["content"] == "".join(MEGABYTES)


@own_loop
async def test_plain_uvicorn_is_not_kept_alive_by_a_client_that_does_not_read(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """It waits for open connections without a limit; a stalled one must be dropped, not closed."""
    async with running_server(
        data_dir=tmp_path, ollama=ollama, command=UVICORN, ready=RUNS, heartbeat_seconds=0.125
    ) as server:
        session = await server.new_session()
        ollama.reply(MEGABYTES)
        client = await RawClient.post(
            server.url, f"/chat/{session}/stream", {"message": "All of it."}, window=4096
        )
        await until_stored(tmp_path, session, 2)
        server.process.send_signal(signal.SIGTERM)
        with anyio.fail_after(30):
            await server.process.wait()
        client.hang_up()


@own_loop
async def test_plain_uvicorn_serves_streams_and_stops_by_itself(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """``uvicorn mochi_project.asgi:application`` has no time limit of its own for open streams."""
    async with running_server(
        data_dir=tmp_path, ollama=ollama, command=UVICORN, ready=RUNS
    ) as server:
        session = await server.new_session()
        events = [
            event.event
            async for event in server.stream(f"/chat/{session}/stream", {"message": "Hi there"})
        ]
        assert events == ["run_start"] + ["content_delta"] * 4 + ["message_complete", "done"]
        paused(ollama)
        client, got = await begun(server, session)
        with anyio.fail_after(30):
            ended = asyncio.ensure_future(server.stop(signal.SIGTERM))
            got += await client.rest()
            await ended
        assert b"SHUTTING_DOWN" in got
        assert b"event: done" in got
        assert stored(tmp_path, session)[-1]["interrupted"] is True


async def test_many_clients_that_come_and_go_leave_nothing_open(site: Site) -> None:
    """Sockets, claims and turns are given back however a client leaves."""
    server, ollama = site.server, site.ollama
    ollama.default_reply = Reply([f"{n} " for n in range(200)], delay=0.005)
    sessions = await asyncio.gather(*(server.new_session() for _ in range(30)))

    async def flee(session: str, patience: float) -> int:
        client = await RawClient.post(server.url, f"/chat/{session}/stream", {"message": "Bye"})
        await anyio.sleep(patience)
        client.hang_up()
        return client.port

    ports = await asyncio.gather(*(flee(s, n * 0.005) for n, s in enumerate(sessions)))
    ollama.default_reply = None
    for session in sessions:
        await next_turn_works(server, session)
    await dropped(*ports)
    storage = JSONFileStorage(site.folder / "chat_sessions")
    for session in sessions:
        async with storage.claim(session):  # from another process: nobody has it
            pass


async def test_a_body_that_never_comes_holds_no_session(site: Site) -> None:
    """A client that leaves in the middle of its request has asked for nothing."""
    server = site.server
    session = await server.new_session()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        head = f"POST /api/v1/chat/{session}/stream HTTP/1.1\r\nHost: {host}:{port}\r\n"
        sock.sendall(f'{head}Content-Length: 100\r\n\r\n{{"message": "Hal'.encode())
    await next_turn_works(server, session)
    assert site.stored(session)[0]["content"] == "Again."


async def test_who_hangs_up_stops_the_summary(site: Site) -> None:
    """And leaves none."""
    server, ollama = site.server, site.ollama
    ollama.reply(["I am fine."])
    ollama.reply(['{"summary": "They greeted each other.", "topics": ["greeting"]}'], delay=60)
    session = await server.new_session()
    await server.post(f"/chat/{session}", {"message": "Hello, how are you this morning?"})
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(server.post, f"/sessions/{session}/summarize")
            await ollama.requested(2)
            group.cancel_scope.cancel()
    await ollama.disconnected()
    none = {"summary": None, "topics": None, "model_used": None}
    assert (await server.get(f"/sessions/{session}/summary"))[1] == none


@own_loop
async def test_without_ollama_streams_are_refused_with_its_address(tmp_path: Path) -> None:
    """An error before the first byte is a status, not a stream."""
    async with running_server(data_dir=tmp_path) as server:
        path = tmp_path / "chat_sessions" / "abcdef0123.json"
        path.parent.mkdir(exist_ok=True)
        metadata = {"session_id": "abcdef0123", "model": "qwen3:14b", "format_version": "1.3"}
        metadata |= {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}
        path.write_text(json.dumps({"metadata": metadata, "messages": []}))
        before = path.read_bytes()
        status, answer = await server.post("/chat/abcdef0123/stream", {"message": "Hi"})
        assert (status, answer["error"]["code"]) == (502, "OLLAMA_UNREACHABLE")
        assert NOBODY in answer["error"]["message"]
        assert path.read_bytes() == before
