"""Tells sockets of MCP servers that are added, by whatever process or editor."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import anyio

from mochi_project.runtime import get_runtime
from mochi_server.core.aio import BackgroundTasks
from mochi_server.core.caller import SERVER, serving
from mochi_server.tools.mcp.servers.feed import McpChange

if TYPE_CHECKING:
    from .consumer import ChatConsumer

LOOK_SECONDS = 10.0
"""Pause between two looks whether there is a socket still."""


class NewServers:
    """Reads what happens to MCP servers, once for all sockets, while there is any."""

    def __init__(self, sockets: AbstractSet[ChatConsumer], tasks: BackgroundTasks) -> None:
        self._sockets = sockets
        self._tasks = tasks
        self._reading: asyncio.Task[None] | None = None
        self._has_begun: asyncio.Event

    async def watch(self) -> None:
        """Begin to read; there is a socket, which is told of all that comes from now on."""
        if self._reading is None:
            self._has_begun = asyncio.Event()
            self._reading = self._tasks.spawn(self._read(), name="MCP servers for sockets")
        await self._has_begun.wait()

    def stop(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            with serving(SERVER):  # whoever opened the first socket
                reader = await get_runtime().mcp_feed.reader()
            self._has_begun.set()
            try:
                while self._sockets:
                    with anyio.move_on_after(LOOK_SECONDS):
                        if (changes := await reader.next()) is None:
                            return
                        self._tell([change for _, change in changes])
            finally:
                reader.leave()
        finally:
            self._reading = None
            self._has_begun.set()

    def _tell(self, changes: list[McpChange]) -> None:
        for change in changes:
            if change.kind == "mcp_added":
                for socket in self._sockets:
                    telling = socket.tell("mcpAdded", change.payload())
                    self._tasks.spawn(telling, name="a new MCP server for a socket")
