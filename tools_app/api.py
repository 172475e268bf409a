"""``/tools``: what there is, everything about one, how they have run, load them again."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from mochi_project.openapi import documented
from mochi_project.responses import json_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import ToolNotFound
from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.tools.base import Tool
from mochi_server.tools.catalogue import Inventory
from mochi_server.tools.folder.source import FunctionTool
from mochi_server.tools.policy import needs_confirmation

from .schemas import DETAIL, LIST, STATS, ToolDetail, ToolList, ToolStats

router = Router()

ONE = {"tool_name": "add_numbers"}


def list_of(found: Inventory) -> dict[str, Any]:
    """Everything that there is, in its short form."""
    return {
        "tools": {name: short_of(tool) for name, tool in found.tools.items()},
        "groups": dict(found.groups),
        "problems": [problem.as_json() for problem in found.problems],
    }


def short_of(tool: Tool) -> dict[str, Any]:
    """A tool as the list has it."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": short_parameters(tool),
    }


def short_parameters(tool: Tool) -> dict[str, Any]:
    """``{"a": {"type": "float", "description": "…"}}``; of a schema where there is no function."""
    if isinstance(tool, FunctionTool):
        return dict(tool.details.short_parameters)
    properties = tool.parameters.get("properties")
    found = properties.items() if isinstance(properties, dict) else ()
    return {name: _short(schema if isinstance(schema, dict) else {}) for name, schema in found}


def _short(schema: dict[str, Any]) -> dict[str, str]:
    kind = schema.get("type", "any")
    return {
        "type": kind if isinstance(kind, str) else " | ".join(map(str, kind)),
        "description": str(schema.get("description", "")),
    }


def detail_of(tool: Tool, found: Inventory) -> dict[str, Any]:
    """Everything about a tool."""
    details = tool.details if isinstance(tool, FunctionTool) else None
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "tool_source": tool.source,
        "groups": [group for group, names in found.groups.items() if tool.name in names],
        "destructive": tool.destructive,
        "needs_confirmation": {
            policy.value: needs_confirmation(policy, tool) for policy in ToolExecutionPolicy
        },
        "sequential": tool.sequential,
        "timeout": tool.timeout,
        "is_async": details.is_async if details else None,
        "source": details.source if details else None,
        "source_file": details.file if details else None,
        "line": details.line if details else None,
    }


@router.get(
    "",
    response=ToolList,
    summary="List the tools and their groups",
    openapi_extra=documented(example=LIST),
)
async def list_tools(request: HttpRequest) -> HttpResponse:
    """As the files are now; a changed one is loaded again first."""
    return json_response(list_of(await get_runtime().tools.inventory()))


@router.get(
    "/stats",
    response=ToolStats,
    summary="How tools have run",
    openapi_extra=documented(example=STATS),
)
async def read_tool_stats(request: HttpRequest) -> HttpResponse:
    """In this process since its start."""
    service = get_runtime().tool_execution
    return json_response({"statistics": service.statistics(), "history": service.history()})


@router.post(
    "/reload",
    response=ToolList,
    summary="Load all tools again",
    openapi_extra=documented(example=LIST),
)
async def reload_tools(request: HttpRequest) -> HttpResponse:
    """Changed or not. Running turns go on with what they have."""
    tools = get_runtime().tools
    await tools.reload()
    return json_response(list_of(await tools.inventory()))


@router.get(
    "/{tool_name}",
    response=ToolDetail,
    summary="Read everything about one tool",
    openapi_extra=documented(ToolNotFound, example=DETAIL, parameters=ONE),
)
async def read_tool(request: HttpRequest, tool_name: str) -> HttpResponse:
    """Its schema as the model gets it, and the text of its function."""
    found = await get_runtime().tools.inventory()
    tool = found.tools.get(tool_name)
    if tool is None:
        raise ToolNotFound(tool=tool_name)
    return json_response(detail_of(tool, found))
