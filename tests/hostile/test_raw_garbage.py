"""More than a thousand hostile requests on raw sockets, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
import pytest_asyncio

from mochi_project.http.gate import OPEN_PATHS
from tests.hostile import garbage
from tests.hostile.aftermath import everything_below, is_unharmed, strangers
from tests.hostile.raw_http import Hostile, attack, exchange, request, statuses_of
from tests.hostile.targets import ONE, ROUTES, WITH_BODY
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.waiting import until

KINDS: dict[str, Callable[[], list[Hostile]]] = {
    "names in paths": garbage.traversals,
    "names in bodies": garbage.names_in_bodies,
    "methods": garbage.methods,
    "bodies": garbage.bodies,
    "queries": garbage.queries,
    "headers": garbage.heads,
    "broken HTTP": garbage.broken_http,
    "noise": garbage.random_bytes,
    "wrong bytes": garbage.mutations,
}
pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "not for anybody"
BODY_MB = 0.3


def furnish(folder: Path) -> Path:
    """A data folder with a session and a prompt, and secrets outside of both."""
    data = folder / "data"
    (data / "chat_sessions").mkdir(parents=True)
    (data / "system_prompts").mkdir()
    message = {"role": "user", "content": "Hello"}
    session = {"metadata": {"session_id": ONE, "model": "qwen3:14b"}, "messages": [message]}
    (data / "chat_sessions" / f"{ONE}.json").write_text(json.dumps(session))
    (data / "system_prompts" / "helpful.md").write_text("Be brief.")
    (folder / "secret.md").write_text(SECRET)
    (folder / "secret.json").write_text(json.dumps({**session, "secret": SECRET}))
    return data


def outside(folder: Path) -> dict[Path, str | None]:
    """Everything beside the data folder, with the text of the files."""
    data = folder / "data"
    found = {p for p in everything_below(folder) if p != data and data not in p.parents}
    return {path: path.read_text() if path.is_file() else None for path in found}


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Server]:
    """A server with a furnished data folder in this one."""
    async with (
        FakeOllama() as ollama,
        running_server(
            data_dir=furnish(folder),
            ollama=ollama,
            max_body_mb=BODY_MB,
            **settings,
        ) as server,
    ):
        yield server


@asynccontextmanager
async def unharmed(server: Server, folder: Path) -> AsyncIterator[None]:
    """The server must be alive and clean when the block ends."""
    before = outside(folder)
    yield
    await is_unharmed(server)
    assert outside(folder) == before
    await until(lambda: not strangers(folder / "data"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def common(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Server, Path]]:
    """The server of all tests that need no settings of their own, and its folder."""
    folder = tmp_path_factory.mktemp("common")
    async with serving(folder) as server:
        yield server, folder


@pytest_asyncio.fixture(loop_scope="module")
async def server(common: tuple[Server, Path]) -> AsyncIterator[Server]:
    """A server that must be alive and clean when the test ends."""
    async with unharmed(*common):
        yield common[0]


async def test_there_are_more_than_a_thousand_requests_the_same_each_time():
    counts = {name: len(make()) for name, make in KINDS.items()}
    assert sum(counts.values()) >= 1000, counts
    assert all(make() == make() for make in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_hostile_gets_through(server, kind):
    answers = await attack(server, KINDS[kind]())
    assert not any(SECRET.encode() in answer.raw for answer in answers)
    assert not any(b"\nX-Evil" in answer.raw for answer in answers)


@pytest.mark.parametrize("told", [True, False])
async def test_a_body_over_the_limit_is_refused_before_it_is_whole(server, told):
    hostiles = []
    for method, path in WITH_BODY:
        size = int(BODY_MB * (100 if path == "/sessions/import" else 1) * 1_000_000)
        start = request(method, path, headers=[] if told else [b"Transfer-Encoding: chunked"])
        if told:
            start = start.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % (size + 1))
            body = b'{"message": "'  # and no more: the length says enough
        else:
            body = (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * (size // 0x8000 + 2)
        hostiles.append(Hostile(start + body, statuses=frozenset({413})))
    for hostile in hostiles:  # one by one: together they may be more than the server reads at once
        [answer] = await attack(server, [hostile])
        assert answer.json["error"]["code"] == "PAYLOAD_TOO_LARGE"


async def test_nothing_but_health_and_the_documentation_is_reached_without_the_token(tmp_path):
    token = "a-long-token"
    wrong = [b"", b"Bearer", b"Bearer \xff", b"Basic a-long-token", b"Bearer a-long-toke"]
    places = ["/../v1/sessions", "/health/../sessions", "/health/%2e%2e/sessions", "/health%00"]
    places += ["/health;/sessions", "//sessions", "/health/", "/sessions?token=a-long-token"]
    places += [path for path in ROUTES if f"/api/v1{path}" not in OPEN_PATHS]
    hostiles = [
        Hostile(request(method, place, headers=[b"Authorization: " + given]))
        for place in places
        for method in ("GET", "POST", "DELETE", "OPTIONS", "HEAD")
        for given in wrong
    ]
    async with serving(tmp_path, api_token=token) as server, unharmed(server, tmp_path):
        answers = await attack(server, hostiles)
        assert {answer.status for answer in answers} == {401}


async def test_a_client_may_ask_before_it_sends_a_body(server):
    body = b'{"model": "qwen3:14b"}'
    data = request("POST", "/sessions", body, headers=[b"Expect: 100-continue"])
    answer = await exchange(server, Hostile(data))
    assert answer.heads == [100, 201]


async def test_requests_in_a_row_are_answered_in_order(server):
    lines = [request("GET", path) for path in ("/health", "/nowhere", "/models", "/sessions/x")]
    keep = [line.replace(b"Connection: close\r\n", b"") for line in lines[:-1]]
    answer = await exchange(server, Hostile(b"".join([*keep, lines[-1]])))
    assert answer.heads == [200, 404, 200, 404]


async def test_websockets_are_accepted_at_one_path_and_refused_politely_elsewhere(server):
    key = [b"Upgrade: websocket", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    asked = [*key, b"Sec-WebSocket-Version: 13"]
    for path in ("/health", f"/chat/{ONE}/stream", "/../../ws/chat", "/ws"):
        for headers in (asked, key, [*asked, b"Origin: http://evil.example"]):
            data = request("GET", path, headers=headers)
            data = data.replace(b"Connection: close", b"Connection: Upgrade")
            assert await status_of(server, data) in {400, 403, 404, 426}, data
    for headers, status in ((asked, 101), (key, 400), ([*asked, b"Origin: http://e.example"], 403)):
        data = request("GET", "/CHAT", headers=headers).replace(b"/api/v1/CHAT", b"/ws/chat")
        data = data.replace(b"Connection: close", b"Connection: Upgrade")
        assert await status_of(server, data) == status, data


async def status_of(server: Server, data: bytes) -> int:
    """Of the first answer, however long it takes; the connection may stay open behind it."""
    parts = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(data)
    with anyio.fail_after(30):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    return statuses_of(head)[0]


async def test_clients_that_send_a_byte_at_a_time_hold_up_nobody(server):
    parts = urlsplit(server.url)
    slow = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(50)]
    body = b'{"model": "qwen3:14b"}'
    data = request("POST", "/sessions", body)
    for start in range(0, len(data) - 1, 8):
        for _, writer in slow:
            writer.write(data[start : start + 8][: len(data) - 1 - start])
            await writer.drain()
        with anyio.fail_after(30):
            assert (await server.get("/sessions"))[0] == 200
    for reader, writer in slow:
        writer.write(data[-1:])
        with anyio.fail_after(30):
            assert statuses_of(await reader.read()) == [201]
        writer.transport.abort()


async def test_connections_that_never_finish_do_not_keep_the_server_from_stopping(tmp_path):
    async with (
        serving(tmp_path, shutdown_seconds=1) as server,
        unharmed(server, tmp_path),
    ):
        parts = urlsplit(server.url)
        data = request("POST", "/sessions", b"{}")
        halves = [b"", data[:1], data[:40], data[:-1]]
        held = [await asyncio.open_connection(parts.hostname, parts.port) for _ in halves]
        for half, (_, writer) in zip(halves, held, strict=True):
            writer.write(half)
            await writer.drain()
    for _, writer in held:
        writer.transport.abort()
    assert server.process.returncode == 0
