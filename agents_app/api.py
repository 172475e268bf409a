"""``/agents``: who is there, load them again, and their conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from mochi_project.openapi import documented
from mochi_project.responses import json_response, raw_json
from mochi_project.runtime import get_runtime
from mochi_server.agents import AgentDefinition, AgentDiscoveryService
from mochi_server.errors import (
    AgentInvalid,
    AgentNotFound,
    InvalidRequest,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
)
from mochi_server.tools.base import Tool

from .schemas import CHAT, CHATS, DETAIL, LIST, AgentChat, AgentChatList, AgentDetail, AgentList

router = Router()


def list_of(found: Mapping[str, AgentDefinition], discovery: AgentDiscoveryService) -> HttpResponse:
    """The answer with everybody."""
    return json_response(
        {
            "agents": {name: line_of(agent) for name, agent in found.items()},
            "problems": [problem.as_json() for problem in discovery.problems()],
        }
    )


def line_of(agent: AgentDefinition) -> dict[str, Any]:
    """An agent as the list has it."""
    return {
        "name": agent.name,
        "description": agent.description,
        "model": agent.model,
        "valid": agent.valid,
        "tool_count": len(agent.tools),
        "tools": list(agent.tools),
        "error_message": agent.error_message,
    }


def detail_of(agent: AgentDefinition) -> dict[str, Any]:
    """Everything about an agent."""
    allowed = agent.allowed_tools
    return {
        **line_of(agent),
        "system_prompt": agent.system_prompt,
        "agents": list(agent.agents),
        "license": agent.license,
        "compatibility": agent.compatibility,
        "metadata": dict(agent.metadata),
        "allowed_tools": list(allowed) if allowed is not None else None,
        "path": str(agent.path),
        "tool_details": {name: tool_of(tool) for name, tool in agent.tools.items()},
        "problems": [problem.as_json() for problem in agent.problems],
    }


def tool_of(tool: Tool) -> dict[str, Any]:
    """One tool of an agent."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "destructive": tool.destructive,
        "sequential": tool.sequential,
        "timeout": tool.timeout,
    }


@router.get(
    "",
    response=AgentList,
    summary="List the agents",
    openapi_extra=documented(example=LIST),
)
async def list_agents(request: HttpRequest) -> HttpResponse:
    """As the files are now, with those that cannot be used and the reason."""
    discovery = get_runtime().agents
    return list_of(await discovery.agents(), discovery)


@router.post(
    "/reload",
    response=AgentList,
    summary="Load all agents again",
    openapi_extra=documented(example=LIST),
)
async def reload_agents(request: HttpRequest) -> HttpResponse:
    """Changed or not. Running turns go on with what they have."""
    discovery = get_runtime().agents
    await discovery.reload()
    return list_of(await discovery.agents(), discovery)


@router.get(
    "/chats",
    response=AgentChatList,
    summary="List the conversations of agents",
    openapi_extra=documented(
        InvalidRequest,
        StorageError,
        example=CHATS,
        parameters={"limit": 50},
    ),
)
async def list_agent_chats(
    request: HttpRequest,
    limit: Annotated[int | None, Query(ge=1, le=100_000)] = None,
    cursor: Annotated[
        str | None, Query(max_length=512, description="`next_cursor` of the page before.")
    ] = None,
) -> HttpResponse:
    """The one changed last first; all of them, or with `limit` a page, as in `/sessions`."""
    return raw_json(await get_runtime().agent_sessions.list_json(limit, cursor))


@router.get(
    "/chats/{session_id}",
    response=AgentChat,
    summary="Read a conversation of an agent",
    openapi_extra=documented(
        SessionNotFound,
        SessionUnreadable,
        StorageError,
        example=CHAT,
        parameters={"session_id": "b80fa657b0"},
    ),
)
async def read_agent_chat(request: HttpRequest, session_id: str) -> HttpResponse:
    """Every key of the file's metadata, and `messages` as they are stored."""
    session = await get_runtime().agent_sessions.get(session_id)
    head = orjson.dumps(session.metadata.model_dump(mode="json"))
    return raw_json(b"".join([head[:-1], b',"messages":', session.messages_json(), b"}"]))


@router.get(
    "/{agent_name}",
    response=AgentDetail,
    summary="Read everything about one agent",
    openapi_extra=documented(
        AgentNotFound, AgentInvalid, example=DETAIL, parameters={"agent_name": "coder"}
    ),
)
async def read_agent(request: HttpRequest, agent_name: str) -> HttpResponse:
    """Its prompt and its tools; of one that cannot be used the reason, as an error."""
    return json_response(detail_of(await get_runtime().agents.get(agent_name)))
