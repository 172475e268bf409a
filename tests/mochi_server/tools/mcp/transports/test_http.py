"""Servers over HTTP, by the SDK itself: they restart, forget sessions, and answer too much."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer

from mochi_server.tools.base import ToolFailed
from mochi_server.tools.mcp.transports.http import LimitedClient
from mochi_server.tools.mcp.transports.limits import TOO_LARGE, shortened
from tests.support.mcp import SECONDS, mcp_source, write_config
from tests.support.redis import free_port
from tests.support.waiting import until

Kind = Literal["modern", "sessions", "sse"]
"""Streamable HTTP of 2026; the same with a handshake and sessions, as before; SSE of 2024."""
DISCOVER = b'"server/discover"'


class HttpServer:
    """A server with the tools ``echo`` and ``large``."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.port = free_port()
        self.calls = 0
        self._running: tuple[uvicorn.Server, asyncio.Task[None]] | None = None

    @property
    def entry(self) -> dict[str, Any]:
        is_sse = self.kind == "sse"
        url = f"http://127.0.0.1:{self.port}/{'sse' if is_sse else 'mcp'}"
        return {"type": "sse" if is_sse else "http", "url": url}

    async def start(self) -> None:
        mcp = MCPServer("of a test")

        @mcp.tool()
        def echo(text: str) -> str:
            """Return the text."""
            self.calls += 1
            return text

        @mcp.tool()
        def large(size: int) -> str:
            """Return a long text."""
            return "x" * size

        app: Any = mcp.sse_app() if self.kind == "sse" else mcp.streamable_http_app()
        if self.kind == "sessions":
            app = _without_discovery(app)
        config = uvicorn.Config(app, port=self.port, log_level="error", ws="none")
        server = uvicorn.Server(config)
        task = asyncio.get_running_loop().create_task(server.serve())
        await until(lambda: server.started)
        self._running = server, task

    async def stop(self) -> None:
        if self._running is not None:
            server, task = self._running
            self._running = None
            server.should_exit = server.force_exit = True
            for connection in [*server.server_state.connections]:  # Python 3.12 waits for them
                connection.transport.abort()
            with anyio.fail_after(30):
                await task


def _without_discovery(app: Any) -> Any:
    """Answer what an older server does not know as such a server does."""

    async def older(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        message = await receive()
        if DISCOVER in message["body"].replace(b" ", b""):
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": b"Bad Request"})
            return
        rest = [message]
        await app(scope, lambda: _first(rest, receive), send)

    return older


async def _first(rest: list[Any], receive: Any) -> Any:
    return rest.pop() if rest else await receive()


@asynccontextmanager
async def http_server(kind: Kind) -> AsyncIterator[HttpServer]:
    server = HttpServer(kind)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.parametrize("kind", ["modern", "sessions", "sse"])
async def test_a_server_may_restart_and_answer_too_much(kind: Kind, tmp_path: Path) -> None:
    async with http_server(kind) as server, mcp_source(tmp_path) as source:
        write_config(tmp_path, a=server.entry)
        assert await source.call("a__echo", text="one") == "one"
        with pytest.raises(ToolFailed, match=r"more than 1 MiB|larger than 10 MiB|exceeded"):
            await source.call("a__large", size=11 * 2**20)
        assert await source.call("a__echo", text="two") == "two"
        await server.stop()
        with pytest.raises(ToolFailed, match="The MCP server 'a' "):
            await source.call("a__echo", text="nobody is there")
        await server.start()
        await until(lambda: not source.servers.servers["a"].is_waiting)
        assert await source.call("a__echo", text="three") == "three"
        [status] = await source.servers.status()
        assert (status.state, status.last_error) == ("ready", None)
        assert server.calls == 3


@pytest.mark.parametrize("kind", ["modern", "sessions"])
async def test_a_server_that_has_forgotten_the_session_is_called_in_another(
    kind: Kind, tmp_path: Path
) -> None:
    async with http_server(kind) as server, mcp_source(tmp_path) as source:
        write_config(tmp_path, a=server.entry)
        assert await source.call("a__echo", text="one") == "one"
        await server.stop()
        await server.start()
        assert await source.call("a__echo", text="two") == "two"
        assert server.calls == 2


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from tests.support.mcp import mcp_source

async def main():
    async with mcp_source(Path(sys.argv[1])) as source:
        await source.tool("a__echo")
        texts = [f"{sys.argv[2]} {number}" for number in range(20)]
        print(json.dumps(await asyncio.gather(*(source.call("a__echo", text=t) for t in texts))))

asyncio.run(main())
"""


async def test_several_processes_use_one_server(tmp_path: Path) -> None:
    async with http_server("sessions") as server:
        write_config(tmp_path, a={**server.entry, "mochi": {"scope": "shared"}})
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, str(tmp_path), name), stdout=subprocess.PIPE
            )
            for name in ("one", "two")
        ]
        with anyio.fail_after(SECONDS):
            outputs = [(await each.communicate())[0] for each in processes]
        for name, output in zip(("one", "two"), outputs, strict=True):
            assert json.loads(output) == [f"{name} {number}" for number in range(20)]
        assert server.calls == 40


# Messages that are long, before the SDK makes objects of what is in them


TEXT = {"type": "text", "text": "é"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


def message(*blocks: Any) -> bytes:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": blocks}}
    return json.dumps(answer, ensure_ascii=False).encode()


def content(message: bytes) -> Any:
    return json.loads(message)["result"]["content"]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("size", [7, 100_000, 10_000_000])
async def test_the_sdk_gets_few_blocks_of_many_however_they_come(kind: str, size: int) -> None:
    is_stream = kind == "text/event-stream"
    whole = message(*[TEXT] * 20_000, LINK, *[TEXT] * 10_000)
    body = b"event: message\r\ndata: " + whole + b"\r\n\r\n" if is_stream else whole

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": kind}, content=pieces())

    async with LimitedClient({}, transport=httpx2.MockTransport(answer)) as client:
        received = await (await client.get("http://server/")).aread()
    if is_stream:
        event, data, *rest = received.split(b"\n")
        assert (event, rest) == (b"event: message\r", [b"\r", b""])
        received = data.removeprefix(b"data:")
    first, link, last = content(received)
    assert (first["text"], link) == ("\n".join("é" * 20_000), LINK)
    assert last["text"] == "\n".join("é" * 10_000)


async def test_a_message_that_is_short_or_no_result_stays_as_it_is() -> None:
    assert await shortened(message(TEXT, TEXT)) == message(TEXT, TEXT)
    for long in (
        b'{"a": ' + b" " * 100_000,
        b'{"params":"' + b"x" * 100_000 + b'"}',
        b"[" * 99_999,
    ):
        assert await shortened(long) == long


async def test_a_message_of_too_many_values_is_an_error_of_its_request() -> None:
    answer = json.loads(await shortened(message(*[[0] * 10] * 20_000)))
    assert (answer["id"], answer["error"]["message"]) == (1, TOO_LARGE)
