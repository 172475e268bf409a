"""The SDK's own MCP server over HTTP, in the loop of a test; it can be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer

from .redis import free_port

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
        with anyio.fail_after(30):
            while not server.started:  # noqa: ASYNC110 - nothing tells it
                await anyio.sleep(0.005)
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
