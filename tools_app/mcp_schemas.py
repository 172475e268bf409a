"""Bodies and answers of ``/mcp``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import ConfigDict, Field, JsonValue

from mochi_project.schemas import FolderProblem, NextCursor, ResponseModel

ServerName = Annotated[str, Field(examples=["time"])]
State = Annotated[
    Literal["disabled", "stopped", "starting", "ready", "failed", "needs_authorization"],
    Field(
        description="In this process. `stopped`: it is started when it is used.",
        examples=["ready"],
    ),
]
Entry = Annotated[
    dict[str, Any],
    Field(
        description="As in `mcp.json`, with `…` in the place of what is or may be secret.",
        examples=[{"command": "uvx", "args": ["mcp-server-time"], "env": {"KEY": "…"}}],
    ),
]
LastError = Annotated[
    str | None, Field(description="Why it does not run, or ended last.", examples=[None])
]
AuthorizationURL = Annotated[
    str | None,
    Field(
        description="Where a person has to authorize, for a browser; null without `admin`.",
        examples=[None],
    ),
]
Transport = Annotated[Literal["stdio", "http", "sse"], Field(examples=["stdio"])]


class McpServerLine(ResponseModel):
    """An MCP server of the configuration."""

    name: ServerName
    state: State
    transport: Transport
    scope: Literal["shared", "session"]
    config: Entry
    tools: list[str] = Field(
        description="The server's own names, as far as they are known.",
        examples=[["get_current_time"]],
    )
    unusable: dict[str, str] = Field(
        description="Why a tool cannot be used, by the server's name for it.", examples=[{}]
    )
    last_error: LastError
    authorization_url: AuthorizationURL


class McpServerList(ResponseModel):
    """Every MCP server, and what could not be understood."""

    servers: dict[str, McpServerLine]
    problems: list[FolderProblem]


class McpServerHealth(ResponseModel):
    """How an MCP server is, as this process sees it."""

    name: ServerName
    state: State
    transport: Transport
    tools: int = Field(examples=[2])
    latency_ms: float | None = Field(
        description="Of the last request for its tools; null if it does not run.", examples=[4.2]
    )
    last_error: LastError
    restarts: int = Field(
        description="Starts after it had ended by itself, or was restarted.", examples=[0]
    )
    connections: int = Field(examples=[1])
    protocol_version: str | None = Field(examples=["2026-07-28"])
    server_info: dict[str, str] | None = Field(
        description="As it says itself.", examples=[{"name": "mcp-time", "version": "1.0.0"}]
    )
    authorization_url: AuthorizationURL


class McpSummary(ResponseModel):
    """Numbers of servers by their state, and of their tools."""

    total: int = Field(examples=[1])
    ready: int = Field(examples=[1])
    starting: int = Field(examples=[0])
    stopped: int = Field(examples=[0])
    failed: int = Field(examples=[0])
    needs_authorization: int = Field(examples=[0])
    disabled: int = Field(examples=[0])
    tools: int = Field(examples=[2])
    problems: int = Field(description="Entries that cannot be used, and the like.", examples=[0])


class McpHealth(ResponseModel):
    """How all MCP servers are."""

    status: Literal["ok", "degraded"] = Field(
        description="`degraded`: a server has failed, waits for a person, or cannot be understood."
    )
    summary: McpSummary
    servers: dict[str, McpServerHealth]


class McpServerLog(ResponseModel):
    """The last lines of an MCP server."""

    name: ServerName
    lines: list[str] = Field(
        description="At most 200 for each connection; notes of ours are in brackets.",
        examples=[["[started]", "listening"]],
    )


class McpResourceLine(ResponseModel):
    """A resource of an MCP server, or a template; what the server says is for people."""

    uri: str = Field(
        description="Of a template: with variables as in RFC 6570.", examples=["docs://intro"]
    )
    name: str = Field(examples=["intro"])
    title: str | None = Field(examples=["Introduction"])
    description: str = Field(examples=["How to begin."])
    media_type: str | None = Field(examples=["text/markdown"])
    size: int | None = Field(description="Bytes, if the server says it.", examples=[1204])


class McpResourceList(ResponseModel):
    """A page of the resources of an MCP server."""

    resources: list[McpResourceLine]
    templates: list[McpResourceLine] = Field(description="All of them, on the first page.")
    next_cursor: NextCursor


class _Body(Schema):
    model_config = ConfigDict(extra="forbid")


class McpServerAdd(_Body):
    """A server to add."""

    name: str = Field(
        description="At most 40 letters, digits, `-` and single `_`.", examples=["time"]
    )
    config: dict[str, JsonValue] = Field(
        description="As in `mcp.json`.",
        examples=[{"command": "uvx", "args": ["mcp-server-time"]}],
    )


class McpServerChange(_Body):
    """Changes of a server."""

    config: dict[str, JsonValue] = Field(
        description="A JSON merge patch: keys that are absent remain, null removes one.",
        examples=[{"disabled": True}],
    )
