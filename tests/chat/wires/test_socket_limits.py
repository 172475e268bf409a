"""The connection of a WebSocket: who may open one, limits, slow clients, a server that stops."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import socket as sockets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.scripts import says, scripted
from tests.support.server import Server, running_server
from tests.support.sockets import SocketClient, address_of, ready_socket, socket, text_of
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
own_loop = pytest.mark.asyncio(loop_scope="function")

TOKEN = "secret/=token"
HELLO = scripted([says("Hello there.")])
PAGE = "https://app.example"
STALL = 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with a token, which soon drops who does not read."""
    settings: dict[str, Any] = {
        "environment": "test",
        "test_words_per_second": 0,
        "api_token": TOKEN,
        "cors_origins": PAGE,
        "heartbeat_seconds": STALL / 4,
    }
    folder = tmp_path_factory.mktemp("sockets")
    async with running_server(data_dir=folder, **settings) as running:
        yield running


async def status_of(address: str, **options: Any) -> int:
    """The status of a refused connection; 101 of an accepted one."""
    try:
        async with connect(address, **options):
            return 101
    except InvalidStatus as refused:
        body = refused.response.body
        assert set(json.loads(body)["error"]) == {"code", "message", "details"}
        return refused.response.status_code


async def test_the_token_comes_by_header_protocol_or_query(server: Server) -> None:
    address = address_of(server)
    header = {"additional_headers": {"Authorization": f"Bearer {TOKEN}"}}
    assert await status_of(address, **header) == 101
    assert await status_of(address_of(server, token=TOKEN)) == 101
    async with connect(address, subprotocols=["mochi", "bearer.secret%2F%3Dtoken"]) as client:
        assert client.subprotocol == "mochi"
    assert await status_of(address) == 401
    assert await status_of(address_of(server, token="wrong")) == 401
    assert await status_of(address, subprotocols=["mochi", "bearer.secret%2F%3D"]) == 401
    assert TOKEN not in server.log
    assert "token=" not in server.log


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "own"}, 101),
        ({"Origin": PAGE}, 101),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
async def test_pages_and_hosts_are_checked_as_for_requests(
    server: Server, headers: dict[str, str], status: int
) -> None:
    headers = {name: server.url if text == "own" else text for name, text in headers.items()}
    headers["Authorization"] = f"Bearer {TOKEN}"
    with contextlib.suppress(KeyError):
        headers["Host"] = headers.pop("Host")
    options: dict[str, Any] = {"headers": headers}
    async with aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(address_of(server), **options):
                found = 101
        except aiohttp.WSServerHandshakeError as refused:
            found = refused.status
    assert found == status


async def test_other_paths_are_not_found(server: Server) -> None:
    for path in ("/ws", "/ws/chat/", "/api/v1/ws/chat", "/ws/chat/x"):
        address = f"{server.url.replace('http', 'ws', 1)}{path}?token={TOKEN}"
        assert await status_of(address) == 404, path


async def test_a_frame_that_is_too_large_closes_the_socket(server: Server) -> None:
    async with ready_socket(server, token=TOKEN, model="m") as client:
        await client.send("message", {"message": "a" * 1_000_001})
        assert (await client.closed())[0] == 1009


async def test_pings_are_sent_and_answered(server: Server) -> None:
    async with ready_socket(server, token=TOKEN) as client:
        waiter = await client.connection.ping()
        with anyio.fail_after(30):
            await waiter
        await client.send("ping", id="here")
        assert await client.next() == {"event": "pong", "data": {}, "reply_to": "here"}


class RawSocket:
    """A socket without a library: it answers and reads what a test wants."""

    def __init__(self, sock: sockets.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, server: Server, *, window: int | None = None) -> RawSocket:
        host, port = server.url.removeprefix("http://").split(":")
        sock = sockets.socket()
        if window is not None:
            sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, window)
        sock.setblocking(False)
        client = cls(sock)
        await client._loop.sock_connect(sock, (host, int(port)))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET /ws/chat?token={TOKEN}&model=m HTTP/1.1".replace("=token", "%3Dtoken", 1),
            f"Host: {host}:{port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        await client.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        with anyio.fail_after(30):
            while b"system:ready" not in head:
                head += await client.read()
        assert head.startswith(b"HTTP/1.1 101 "), head
        return client

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def frame(self, opcode: int, content: bytes) -> None:
        """Send one frame of less than 64 KiB."""
        size = len(content)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        await self.write(bytes([0x80 | opcode]) + length + bytes(4) + content)

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self._sock, 2**16)

    async def rest(self) -> bytes:
        """What comes until the end; of long data only the last part."""
        last = b""
        with anyio.fail_after(60), contextlib.suppress(ConnectionError):
            while part := await self.read():
                last = (last + part)[-300:]
        return last

    def close(self) -> None:
        self._sock.close()


async def ended_runs(server: Server, text: str) -> list[str]:
    """Six new runs that have said a text."""
    message = {"message": scripted([says(text)]), "model": "m"}  # less than a context window
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for _ in range(6):
        assert (await server.post("/chat", message, headers=headers))[0] == 200
    _, listed = await server.get("/runs", headers=headers)
    return [run["run_id"] for run in listed["runs"]][:6]


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_closed(server: Server) -> None:
    """It learns why if it reads the rest in time."""
    runs = await ended_runs(server, "word " * 20_000)
    client = await RawSocket.open(server, window=4096)
    for run_id in runs * 5:  # 3 MB: more than all buffers
        await client.frame(1, json.dumps({"event": "resume", "data": {"run_id": run_id}}).encode())
    await server.saw("has not read its socket")
    await client.rest()
    client.close()


@own_loop
@pytest.mark.slow
async def test_the_run_of_a_client_that_does_not_read_goes_on_to_its_end(tmp_path: Path) -> None:
    """Also where the buffers are not full when the time for the answer to a ping is over."""
    settings = {"environment": "test", "test_words_per_second": 60, "heartbeat_seconds": 0.5}
    async with running_server(data_dir=tmp_path, api_token=TOKEN, **settings) as server:
        client = await RawSocket.open(server, window=4096)
        message = {"message": scripted([says(f"{'a' * 100} " * 360)]), "on_disconnect": "cancel"}
        await client.frame(1, json.dumps({"event": "message", "data": message}).encode())
        headers = {"Authorization": f"Bearer {TOKEN}"}

        async def ended() -> str | None:
            _, listed = await server.get("/runs", headers=headers)
            states = [run["state"] for run in listed["runs"] if run["state"] != "running"]
            return states[0] if states else None

        assert await until(ended) == "done"
        await server.saw("has not read its socket")
        await client.rest()
        client.close()


@own_loop
@pytest.mark.slow
async def test_a_client_that_reads_slowly_gets_everything(tmp_path: Path) -> None:
    """Also the pings, which stand behind what it has still to read."""
    settings = {"environment": "test", "test_words_per_second": 0, "heartbeat_seconds": 0.75}
    async with running_server(data_dir=tmp_path, api_token=TOKEN, **settings) as server:
        runs = await ended_runs(server, "word " * 20_000)
        host, port = server.url.removeprefix("http://").split(":")
        sock = sockets.socket()
        sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 16_384)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        address = address_of(server, token=TOKEN, model="m")
        options: dict[str, Any] = {"sock": sock, "max_queue": 2, "ping_interval": None}
        async with connect(address, **options) as client:
            for run_id in runs:
                await client.send(json.dumps({"event": "resume", "data": {"run_id": run_id}}))
            received = 0
            with anyio.fail_after(60):
                for _ in range(90):
                    limit = received + 6_000
                    while received < limit:
                        received += len(await client.recv())
                    await anyio.sleep(0.1)
                await client.send(json.dumps({"event": "ping", "id": "here"}))
                while json.loads(await client.recv()).get("reply_to") != "here":
                    pass


@pytest.mark.slow
async def test_a_client_that_does_not_answer_pings_is_closed(server: Server) -> None:
    client = await RawSocket.open(server)
    assert b"\x03\xf3keepalive ping timeout" in await client.rest()
    client.close()


async def test_pings_without_end_do_not_fill_the_memory(server: Server) -> None:
    """Who does not read the answers is not read any more."""
    client = await RawSocket.open(server, window=4096)
    flood = (bytes([0x89, 0x80 | 125]) + bytes(4) + bytes(125)) * 500
    sent = 0
    with anyio.move_on_after(5), contextlib.suppress(ConnectionError):
        while sent < 200e6:
            await client.write(flood)
            sent += len(flood)
    client.close()
    assert sent < 30e6


@own_loop
@pytest.mark.slow
async def test_random_frames_are_errors_and_leave_nothing(tmp_path: Path) -> None:
    settings = {
        "environment": "test",
        "test_words_per_second": 0,
        "socket_frames_per_second": 1e9,
    }
    chance = random.Random(7)
    whole = json.dumps({"event": "tool:approval", "data": {"callId": "a", "approved": True}})
    events = ["message", "stop", "resume", "session:switch", "tool:approval", "ping", "shout"]
    values = [None, 0, -1, 1e300, "", "\u0000", "a" * 1000, [], {}, [[[]]], {"a": {"b": 1}}, True]
    names = ["message", "run_id", "after", "session_id", "model", "callId", "approved", "x", ""]

    def one() -> str | bytes:
        match chance.randrange(4):
            case 0:
                return chance.randbytes(chance.randrange(60))
            case 1:
                at = chance.randrange(len(whole))
                return whole[:at] + chr(chance.randrange(1, 0xD7FF)) + whole[at + 1 :]
            case 2:
                data = {chance.choice(names): chance.choice(values) for _ in range(2)}
                return json.dumps({"event": chance.choice(events), "data": data})
            case _:
                return json.dumps({chance.choice(["event", "data", "id"]): chance.choice(values)})

    async with running_server(data_dir=tmp_path, **settings) as server:
        async with socket(server, model="m") as client:
            for sent in range(1, 3001):
                await client.connection.send(one())
                if sent % 50 == 0:
                    await until_pong(client, sent)
            assert {"error"} <= {frame["event"] for frame in client.frames}
            await client.ask("session:switch", {"model": "m"})
            assert text_of(await client.say(HELLO)) == "Hello there."
        assert "Traceback" not in server.log, server.log
        assert "ERROR" not in server.log


async def until_pong(client: SocketClient, number: int) -> None:
    """Let the frames be executed, of which only so many may wait."""
    reply = await client.ask("stop", {"run_id": f"none {number}"})
    assert reply["event"] == "error"


@own_loop
async def test_a_server_that_stops_ends_runs_and_closes_sockets(tmp_path: Path) -> None:
    settings = {"environment": "test", "test_words_per_second": 5}
    async with running_server(data_dir=tmp_path, **settings) as server:
        async with (
            ready_socket(server, model="m") as busy,
            ready_socket(server, model="m") as idle,
        ):
            await busy.send("message", {"message": scripted([says("word " * 500)])})
            await busy.until("content_delta")
            server.process.terminate()
            assert await busy.closed() == (1012, "The server is stopping.")
            assert await idle.closed() == (1012, "The server is stopping.")
            events = [(frame["event"], frame["data"].get("code")) for frame in busy.frames[-2:]]
            assert events == [("error", "SHUTTING_DOWN"), ("done", None)]
        assert await server.stop() == 0
    assert "Traceback" not in server.log, server.log


@own_loop
async def test_a_client_that_sends_too_many_frames_is_closed(tmp_path: Path) -> None:
    settings = {"environment": "test", "socket_frames_per_second": 5}
    async with (
        running_server(data_dir=tmp_path, **settings) as server,
        ready_socket(server) as client,
    ):
        for _ in range(500):
            await client.send("ping")
        assert await client.closed() == (1008, "More than 5 frames a second.")
