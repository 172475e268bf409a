"""What happens to MCP servers, one frame each."""

from __future__ import annotations

from mochi_server.tools.mcp.servers.feed import McpChange

from .sse import frame


def encode_mcp_changes(batch: list[tuple[int, McpChange]]) -> bytes:
    """Encode a batch in one piece."""
    return b"".join([frame(number, change.kind, change.payload()) for number, change in batch])
