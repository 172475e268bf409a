"""What happens to MCP servers, for clients that are connected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ....core.feed import Feed, FeedReader
from ....errors import JSONObject
from .connection import McpConnection
from .facts import ServerFacts
from .registry import McpServers
from .server import State

LOOK_SECONDS = 0.5
"""Pause between two looks at the configuration and at the servers of this process."""

ChangeKind = Literal["mcp_added", "mcp_removed", "mcp_state", "tools_changed"]


@dataclass(frozen=True, slots=True)
class McpChange:
    """Something that has happened to a server."""

    kind: ChangeKind
    server: str
    state: State | None
    """Its state in this process; None: it was removed."""
    last_error: str | None = None

    def payload(self) -> JSONObject:
        return {"server": self.server, "state": self.state, "last_error": self.last_error}


@dataclass(frozen=True, slots=True)
class _Seen:
    state: State
    last_error: str | None
    facts: ServerFacts | None
    connection: McpConnection | None
    """Another one: it was started anew between two looks, though its state is the same."""

    @property
    def particulars(self) -> tuple[object, ...]:
        return self.state, self.last_error, self.connection

    def has_same_tools(self, other: _Seen) -> bool:
        if self.facts is None or other.facts is None:
            return self.facts is other.facts
        return self.facts is other.facts or self.facts.tools == other.facts.tools


class McpFeed(Feed[McpChange]):
    """Opens readers of what happens to MCP servers from now on.

    The configuration is the same for all processes; states are those of this process.
    """

    def __init__(self, servers: McpServers) -> None:
        super().__init__()
        self._servers = servers

    async def reader(self) -> FeedReader[McpChange]:
        """Return a new reader; call its ``leave()`` when done."""
        before = await self._look()
        reader = FeedReader(self._readers)
        reader.task = self._tasks.spawn(self._follow(reader, before), name="a feed of MCP servers")
        if self._closed:
            reader.end()
        return reader

    async def _follow(self, reader: FeedReader[McpChange], before: Mapping[str, _Seen]) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                now = await self._look()
                if not all(map(reader.add, _changes(before, now))):
                    return
                before = now
        finally:
            reader.end()

    async def _look(self) -> dict[str, _Seen]:
        statuses = await self._servers.status()
        seen = {}
        for status in statuses:
            server = self._servers.get(status.name)
            facts, connection = (
                (None, None) if server is None else (server.facts, server.connection)
            )
            seen[status.name] = _Seen(status.state, status.last_error, facts, connection)
        return seen


def _changes(before: Mapping[str, _Seen], now: Mapping[str, _Seen]) -> Iterator[McpChange]:
    for name in before:
        if name not in now:
            yield McpChange("mcp_removed", name, None)
    for name, seen in now.items():
        earlier = before.get(name)
        if earlier is None:
            yield McpChange("mcp_added", name, seen.state, seen.last_error)
        elif earlier.particulars != seen.particulars:
            yield McpChange("mcp_state", name, seen.state, seen.last_error)
        if earlier is not None and not seen.has_same_tools(earlier):
            yield McpChange("tools_changed", name, seen.state, seen.last_error)
