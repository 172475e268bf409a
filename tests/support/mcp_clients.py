"""MCP clients of our own server: the SDK's, with a person who answers its questions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client

from mochi_server.core.aio import BackgroundTasks
from mochi_server.mcp_server.server import build_server
from mochi_server.runtime import Runtime

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = (LEGACY, MODERN)
"""Of the protocol: with a handshake, and with all that is known in each request."""


@dataclass
class Person:
    """Who sits at a client."""

    action: Literal["accept", "decline", "cancel"] = "accept"
    questions: list[str] = field(default_factory=list)
    asked: anyio.Event = field(default_factory=anyio.Event)
    content: dict[str, Any] | None = None
    """What is filled into the form of each question."""
    forms: list[dict[str, Any]] = field(default_factory=list)
    gate: anyio.Event | None = None
    """What the person waits for before the answer."""

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        self.forms.append(params.requested_schema)
        return types.ElicitResult(action=self.action, content=self.content)


@asynccontextmanager
async def client_of(
    runtime: Runtime, era: str = MODERN, *, person: Person | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client that is connected in memory."""
    tasks = BackgroundTasks()
    server = await build_server(runtime, tasks, version="1")
    with anyio.fail_after(60):
        async with Client(server, mode=era, elicitation_callback=person, **options) as client:
            yield client
        await tasks.drain(10)


def text_of(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text
