"""``/tools``: what there is, everything about one, how they have run, load them again."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ToolName
from mochi_server.core.shown_text import shown_text
from mochi_server.errors import ToolNotFound
from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.tools.catalogue import Inventory
from mochi_server.tools.config import needs_confirmation
from mochi_server.tools.folder.source import FunctionTool
from mochi_server.tools.mcp.source import McpTool

from .schemas import McpToolDetail, ToolDetail, ToolList, ToolStats

router = Router()


@router.get("", response=ToolList, exclude_unset=True, summary="List the tools and their groups")
async def list_tools(request: HttpRequest) -> Inventory:
    """As the files are now; a changed one is loaded again first."""
    return await get_runtime().tools.inventory()


@router.get("/stats", response=ToolStats, summary="How tools have run")
async def read_tool_stats(request: HttpRequest) -> dict[str, Any]:
    """In this process since its start."""
    service = get_runtime().tool_execution
    return {"statistics": service.statistics(), "history": service.history()}


@router.post("/reload", response=ToolList, exclude_unset=True, summary="Load all tools again")
async def reload_tools(request: HttpRequest) -> Inventory:
    """Changed or not. Running turns go on with what they have."""
    tools = get_runtime().tools
    await tools.reload()
    return await tools.inventory()


@router.get(
    "/{tool_name}",
    response=ToolDetail,
    summary="Read everything about one tool",
    openapi_extra=documented(ToolNotFound),
)
async def read_tool(request: HttpRequest, tool_name: ToolName) -> ToolDetail:
    """Its schema as the model gets it, and the text of its function."""
    inventory = await get_runtime().tools.inventory()
    tool = inventory.tools.get(tool_name)
    if tool is None:
        raise ToolNotFound(tool=tool_name)
    function = tool.details if isinstance(tool, FunctionTool) else None
    return ToolDetail(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        shown_description=shown_text(tool.description),
        tool_source=tool.source,
        mcp=None
        if not isinstance(tool, McpTool)
        else McpToolDetail(
            server=tool.server_name,
            name=tool.described.name,
            title=tool.described.title,
            annotations=dict(tool.described.annotations),
            trusted=tool.is_trusted,
            approval=tool.approval,
        ),
        groups=[group for group, names in inventory.groups.items() if tool.name in names],
        destructive=tool.destructive,
        needs_confirmation={
            policy.value: needs_confirmation(policy, tool) for policy in ToolExecutionPolicy
        },
        sequential=tool.sequential,
        timeout=tool.timeout,
        is_async=function and function.is_async,
        source=function and function.source,
        source_file=function and function.file,
        line=function and function.line,
    )
