"""``/agents``: who is there, load them again, and their conversations."""

from __future__ import annotations

from typing import Any

import orjson
from django.http import HttpRequest
from ninja import Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import Cursor, Limit, SessionId
from mochi_server.agents import AgentDefinition
from mochi_server.errors import (
    AgentInvalid,
    AgentNotFound,
    InvalidRequest,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
)

from .schemas import AgentChat, AgentDetail, AgentList, AgentName, EncodedAgentChatList

router = Router()


async def _all_agents() -> dict[str, Any]:
    discovery = get_runtime().agents
    return {"agents": await discovery.agents(), "problems": discovery.problems()}


@router.get("", response=AgentList, summary="List the agents")
async def list_agents(request: HttpRequest) -> dict[str, Any]:
    """As the files are now, with those that cannot be used and the reason."""
    return await _all_agents()


@router.post("/reload", response=AgentList, summary="Load all agents again")
async def reload_agents(request: HttpRequest) -> dict[str, Any]:
    """Changed or not. Running turns go on with what they have."""
    await get_runtime().agents.reload()
    return await _all_agents()


@router.get(
    "/chats",
    response=EncodedAgentChatList,
    summary="List the conversations of agents",
    openapi_extra=documented(InvalidRequest, StorageError),
)
async def list_agent_chats(
    request: HttpRequest, limit: Limit = None, cursor: Cursor = None
) -> bytes:
    """The one changed last first; all of them, or with `limit` a page, as in `/sessions`."""
    return await get_runtime().agent_sessions.list_json(limit, cursor)


@router.get(
    "/chats/{session_id}",
    response=AgentChat,
    summary="Read a conversation of an agent",
    openapi_extra=documented(SessionNotFound, SessionUnreadable, StorageError),
)
async def read_agent_chat(request: HttpRequest, session_id: SessionId) -> AgentChat:
    """Every key of the file's metadata, and `messages` as they are stored."""
    session = await get_runtime().agent_sessions.get(session_id)
    messages = orjson.Fragment(session.messages_json())
    return AgentChat(**dict(session.metadata), messages=messages)


@router.get(
    "/{agent_name}",
    response=AgentDetail,
    summary="Read everything about one agent",
    openapi_extra=documented(AgentNotFound, AgentInvalid),
)
async def read_agent(request: HttpRequest, agent_name: AgentName) -> AgentDefinition:
    """Its prompt and its tools; of one that cannot be used the reason, as an error."""
    return await get_runtime().agents.get(agent_name)
