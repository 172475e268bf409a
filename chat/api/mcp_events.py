"""``/mcp/events``: what happens to MCP servers while a client is connected."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime

from ..streaming import EventStreamResponse
from ..wires.sse import encode_changes
from .events import mcp_stream

router = Router()


@router.get(
    "/events",
    response={200: None},
    summary="Follow what happens to MCP servers, as server-sent events",
    openapi_extra=documented(stream=mcp_stream),
)
async def follow_mcp_servers(request: HttpRequest) -> EventStreamResponse:
    """The stream has what happens from now on: open it first, then list the servers.

    Servers that are added or removed at any process, also by an editor; states of this process.
    """
    return EventStreamResponse(await get_runtime().mcp_feed.reader(), encode_changes)
