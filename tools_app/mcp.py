"""``/mcp``: the servers of others whose tools are used."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Annotated, Any, get_args

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from mochi_project.http.local import check_may_start_programs
from mochi_project.openapi import NOT_FRAMED, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import Cursor
from mochi_server.core.audit import Outcome, add_details
from mochi_server.core.caller import current_caller
from mochi_server.core.shown_text import shown_text
from mochi_server.errors import (
    InvalidRequest,
    McpChangeNotAllowed,
    McpConfigUnavailable,
    McpServerExists,
    McpServerFailed,
    McpServerInvalid,
    McpServerNotFound,
)
from mochi_server.tools.mcp.resources import McpResource
from mochi_server.tools.mcp.servers.registry import McpServers
from mochi_server.tools.mcp.servers.server import McpServerStatus, State

from .mcp_schemas import (
    McpHealth,
    McpResourceList,
    McpServerAdd,
    McpServerChange,
    McpServerLine,
    McpServerList,
    McpServerLog,
    ServerName,
)

router = Router()

PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>mochi-server</title>
<p>mochi-server has got the answer, and connects to the MCP server. You may close this page.</p>
</html>
"""
PARAMETER = Query(max_length=4096)  # type: ignore[type-arg]


async def _statuses() -> list[McpServerStatus]:
    """Return the status of every server as the caller may see it.

    Who opens the page of an authorization binds the server, which all use, to an account: its
    address, with the ``state`` that completes it, is for ``admin`` alone.
    """
    statuses = await get_runtime().mcp.status()
    if "admin" in current_caller().rights:
        return statuses
    return [replace(status, authorization_url=None) for status in statuses]


def _line(servers: McpServers, status: McpServerStatus) -> dict[str, Any]:
    fields = {
        name: getattr(status, name) for name in McpServerLine.model_fields if name != "config"
    }
    return {**fields, "config": servers.configs[status.name].shown()}


async def _line_of(name: str) -> dict[str, Any]:
    servers = get_runtime().mcp
    for status in await _statuses():
        if status.name == name:
            return _line(servers, status)
    raise McpServerNotFound(server=name)


@router.get("/servers", response=McpServerList, summary="List the MCP servers")
async def list_mcp_servers(request: HttpRequest) -> dict[str, Any]:
    """As the file is now; none is started."""
    servers = get_runtime().mcp
    lines = {status.name: _line(servers, status) for status in await _statuses()}
    return {"servers": lines, "problems": servers.problems}


@router.get("/health", response=McpHealth, summary="How the MCP servers are")
async def read_mcp_health(request: HttpRequest) -> dict[str, Any]:
    """As this process sees them; none is started or asked. `/api/mcp/health` is the same."""
    servers = get_runtime().mcp
    statuses = await _statuses()
    states = Counter[str](status.state for status in statuses)
    summary = {state: states[state] for state in get_args(State)}
    problems = len(servers.problems)
    is_degraded = states["failed"] or states["needs_authorization"] or problems
    return {
        "status": "degraded" if is_degraded else "ok",
        "summary": {
            **summary,
            "total": len(statuses),
            "tools": sum(len(status.tools) for status in statuses),
            "problems": problems,
        },
        "servers": {
            status.name: {
                **{name: getattr(status, name) for name in status.__slots__},
                "tools": len(status.tools),
                "latency_ms": None if status.latency is None else round(status.latency * 1000, 1),
            }
            for status in statuses
        },
    }


@router.post(
    "/add",
    response={201: McpServerLine},
    summary="Add an MCP server",
    openapi_extra=documented(
        McpServerInvalid, McpServerExists, McpChangeNotAllowed, McpConfigUnavailable
    ),
)
async def add_mcp_server(request: HttpRequest, payload: McpServerAdd) -> dict[str, Any]:
    """It can be used at once. `/api/mcp/add` is the same."""
    check_may_start_programs(request)
    add_details(name=payload.name)
    await get_runtime().mcp.add(payload.name, payload.config)
    return await _line_of(payload.name)


@router.patch(
    "/{name}",
    response=McpServerLine,
    summary="Change an MCP server",
    openapi_extra=documented(
        McpServerNotFound, McpServerInvalid, McpChangeNotAllowed, McpConfigUnavailable
    ),
)
async def update_mcp_server(
    request: HttpRequest, name: ServerName, payload: McpServerChange
) -> dict[str, Any]:
    """What is sent back as it was shown, with its `…`, remains as it is."""
    check_may_start_programs(request)
    await get_runtime().mcp.change(name, payload.config)
    return await _line_of(name)


@router.delete(
    "/{name}",
    response={204: None},
    summary="Remove an MCP server",
    openapi_extra=documented(McpServerNotFound, McpChangeNotAllowed, McpConfigUnavailable),
)
async def delete_mcp_server(request: HttpRequest, name: ServerName) -> None:
    """Its process ends when no turn uses it any more; its tokens are forgotten."""
    check_may_start_programs(request, has_body=False)
    await get_runtime().mcp.remove(name)


@router.post(
    "/{name}/restart",
    response=McpServerLine,
    summary="Restart an MCP server",
    openapi_extra=documented(McpServerNotFound, McpServerInvalid, McpChangeNotAllowed),
)
async def restart_mcp_server(request: HttpRequest, name: ServerName) -> dict[str, Any]:
    """Begins to start it; running calls fail. Also asks for an authorization again."""
    check_may_start_programs(request, has_body=False)
    servers = get_runtime().mcp
    if (await _line_of(name))["state"] == "disabled":
        raise McpServerInvalid(server=name, reason="it is disabled")
    await servers.restart(name)
    return await _line_of(name)


@router.get(
    "/{name}/log",
    response=McpServerLog,
    summary="Read the last lines of an MCP server",
    openapi_extra=documented(McpServerNotFound),
)
async def read_mcp_log(request: HttpRequest, name: ServerName) -> dict[str, Any]:
    """What it has written to stderr since this process uses it."""
    line = await _line_of(name)
    lines = [] if line["state"] == "disabled" else get_runtime().mcp.log_of(name)
    return {"name": name, "lines": lines}


@router.get(
    "/{name}/resources",
    response=McpResourceList,
    summary="List the resources of an MCP server",
    openapi_extra=documented(McpServerNotFound, McpServerFailed, InvalidRequest),
)
async def list_mcp_resources(
    request: HttpRequest, name: ServerName, cursor: Cursor = None
) -> dict[str, Any]:
    """A page, as the server divides them; the server is started if it does not run."""
    page = await get_runtime().mcp_resources.list(name, cursor)
    return {
        "resources": [_resource(each) for each in page.resources],
        "templates": [_resource(each) for each in page.templates],
        "next_cursor": page.next_cursor,
    }


def _resource(resource: McpResource) -> dict[str, Any]:
    """Return a resource as ``McpResourceLine`` has it."""
    title = None if resource.title is None else shown_text(resource.title)
    return {
        **asdict(resource),
        "name": shown_text(resource.name),
        "title": title,
        "description": shown_text(resource.description),
    }


@router.get("/oauth/callback", include_in_schema=False)
async def complete_authorization(
    request: HttpRequest,
    state: Annotated[str | None, PARAMETER] = None,
    code: Annotated[str | None, PARAMETER] = None,
    iss: Annotated[str | None, PARAMETER] = None,
    error: Annotated[str | None, PARAMETER] = None,
) -> HttpResponse:
    """Take what a person's browser brings back; the random ``state`` is the proof that it may."""
    given = {"code": code, "iss": iss, "error": error}
    answer = {name: value for name, value in given.items() if value is not None}
    if "error" not in answer and "code" not in answer:
        answer["error"] = "there is no code"
    runtime = get_runtime()
    name = await runtime.mcp.complete_authorization(state or "", {**answer})
    outcome: Outcome = "refused" if "error" in answer else "done"
    await runtime.audit.record("authorize MCP server", outcome, name=name)
    headers = {**NOT_FRAMED, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return HttpResponse(PAGE, headers=headers)
