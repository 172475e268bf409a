"""The MCP server of a workspace, over standard input and output."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from .tools import WorkspaceTools

INSTRUCTIONS = """\
A folder of files to work in, which is kept for the whole conversation. Paths are relative to it, \
and nothing outside of it can be reached. People see its files and can add some."""


def build_server(tools: WorkspaceTools) -> Server[Any]:
    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=tools.definitions())

    async def call_tool(
        _context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        if params.name not in tools:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name!r}.")
        return await tools.call(params.name, params.arguments or {})

    return Server(
        "mochi-workspace",
        version=version("mochi-server"),
        title="Workspace",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(tools: WorkspaceTools) -> None:
    """Answer until standard input ends."""
    server = build_server(tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
