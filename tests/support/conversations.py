"""Conversations with a server over its streams, and what they said."""

from __future__ import annotations

from typing import Any

import anyio

from .server import Server
from .sse import ServerEvent


async def turn(server: Server, session: str, message: str, **fields: Any) -> list[ServerEvent]:
    with anyio.fail_after(60):
        path = f"/chat/{session}/stream"
        return [event async for event in server.stream(path, {"message": message, **fields})]


async def said(server: Server, message: str, **session: Any) -> tuple[list[ServerEvent], Any]:
    """The events of one turn in a new session, and the session's messages after it."""
    session_id = await server.new_session(**{"model": "any", **session})
    events = await turn(server, session_id, message)
    _, found = await server.get(f"/sessions/{session_id}")
    return events, [entry for entry in found["messages"] if entry["role"] != "system"]


def named(events: list[ServerEvent], kind: str) -> list[Any]:
    return [event.data for event in events if event.event == kind]


def words_of(events: list[ServerEvent], kind: str = "content_delta") -> str:
    return "".join(data["content"] for data in named(events, kind))
