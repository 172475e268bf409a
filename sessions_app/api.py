"""``/sessions``: made, read, changed, listed, deleted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from mochi_project.openapi import OF_PROVIDERS, documented
from mochi_project.responses import json_response, no_content, raw_json
from mochi_project.runtime import get_runtime
from mochi_server.errors import (
    InvalidMessageIndex,
    InvalidRequest,
    MochiError,
    ModelNotFound,
    PromptNotFound,
    SessionBusy,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
    SummaryModelRequired,
)
from mochi_server.sessions.catalogue.rows import SessionFilter
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import LABELS

from . import schemas
from .changes import agents_of, apply_patch, prompt_text, tools_of
from .labels import ARCHIVED, MOST_TAGS
from .list_schemas import FOUND, SessionList
from .schemas import (
    MessageEdit,
    MessageIndex,
    MessageList,
    SessionCreate,
    SessionDetail,
    SessionHead,
    SessionPatch,
    SystemPromptSet,
)
from .search_api import search_json
from .status import STATUS, SessionStatus

router = Router()

ONE = {"session_id": "a1b2c3d4e5"}
READING = (SessionNotFound, SessionUnreadable, StorageError)
WRITING = (*READING, SessionBusy)
HEAD = tuple(name for name in SessionHead.model_fields if name not in (*LABELS, "warnings"))
OF_MODELS: tuple[type[MochiError], ...] = (ModelNotFound, *OF_PROVIDERS)


def head_of(session: ChatSession) -> dict[str, Any]:
    """A session as ``POST`` and ``PATCH`` answer it."""
    data = session.metadata.model_dump(mode="json", include=set(HEAD))
    return {**{key: data[key] for key in HEAD}, **session.metadata.labels}


async def head_with_warnings(session: ChatSession) -> dict[str, Any]:
    """The same after a change of the tools, with what the settings name and nothing has."""
    settings, agents = session.metadata.tool_settings, session.metadata.agent_settings
    warnings: list[str] = []
    if settings is not None:
        has_agents = agents is not None and bool(agents.enabled_agents)
        warnings = await get_runtime().tools.warnings(settings, agents=has_agents)
    return {**head_of(session), **({"warnings": warnings} if warnings else {})}


def detail_of(session: ChatSession) -> bytes:
    """A session with its messages, which are passed on as they are stored."""
    metadata = session.metadata
    head = orjson.dumps({**metadata.model_dump(mode="json"), **metadata.labels})
    return b"".join([head[:-1], b',"messages":', session.messages_json(), b"}"])


@router.get(
    "",
    response=SessionList,
    summary="List the sessions",
    openapi_extra=documented(
        InvalidRequest,
        StorageError,
        example=FOUND,
        parameters={"limit": 50, "archived": "all"},
    ),
)
async def list_sessions(
    request: HttpRequest,
    *,
    limit: Annotated[int | None, Query(ge=1, le=100_000)] = None,
    cursor: Annotated[
        str | None, Query(max_length=512, description="`next_cursor` of the page before.")
    ] = None,
    archived: Literal["true", "false", "all"] = "all",
    tag: Annotated[list[str], Query(max_length=MOST_TAGS, description="Such as `python`.")] = [],  # noqa: B006 - ninja copies it
    query: Annotated[
        str | None, Query(description='Such as `asyncio "event loop" -django`.')
    ] = None,
) -> HttpResponse:
    """The one changed last first; all of them, or with `limit` a page.

    `next_cursor` of a page is the `cursor` of the next one. `archived` shows only what is archived,
    or only what is not; `tag`, which may stand there several times, what has all these tags.

    With `query`, what has all its words, the best first and at most 20 unless `limit` says
    otherwise; each then has `score`, `found_in` and `snippet`.
    """
    wanted = SessionFilter(ARCHIVED[archived], tuple(tag))
    if query is not None:
        return raw_json(await search_json(get_runtime().search, query, limit, cursor, wanted))
    return raw_json(await get_runtime().sessions.list_json(limit, cursor, wanted))


@router.post(
    "",
    response={201: SessionHead},
    summary="Create a session",
    openapi_extra=documented(
        *OF_MODELS,
        PromptNotFound,
        StorageError,
        status=201,
        example=schemas.CREATED,
        body=schemas.CREATE,
    ),
)
async def create_session(request: HttpRequest, payload: SessionCreate) -> HttpResponse:
    """The model must exist. Tools and agents need not: they may appear later."""
    runtime = get_runtime()
    tools, agents = tools_of(payload.tool_settings), agents_of(payload.agent_settings)
    await runtime.providers.show_model(payload.model)
    source = payload.system_prompt_source_file
    session = await runtime.sessions.create(
        payload.model,
        system_prompt=await prompt_text(runtime.prompts, payload.system_prompt, source),
        source_file=source,
        tool_settings=tools,
        agent_settings=agents,
        labels=payload.labels(),
    )
    return json_response(await head_with_warnings(session), status=201)


@router.get(
    "/{session_id}",
    response=SessionDetail,
    summary="Read a session with its messages",
    openapi_extra=documented(*READING, example=schemas.DETAIL, parameters=ONE),
)
async def read_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """Every key of the file's metadata, and `messages`."""
    return raw_json(detail_of(await get_runtime().sessions.get(session_id)))


@router.delete(
    "/{session_id}",
    response={204: None},
    summary="Delete a session",
    openapi_extra=documented(SessionNotFound, SessionBusy, StorageError, parameters=ONE),
)
async def delete_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """Refused while a turn is running."""
    await get_runtime().sessions.delete(session_id)
    return no_content()


@router.patch(
    "/{session_id}",
    response=SessionHead,
    summary="Change a session's model or settings",
    openapi_extra=documented(
        *OF_MODELS,
        SummaryModelRequired,
        *READING,
        example=schemas.CREATED,
        body=schemas.PATCH,
        parameters=ONE,
    ),
)
async def patch_session(
    request: HttpRequest, session_id: str, payload: SessionPatch
) -> HttpResponse:
    """What is absent stays; a settings object is replaced as a whole, `null` removes it.

    Also possible while a turn is running, which goes on with what it began with.
    """
    runtime = get_runtime()
    if payload.model or payload.summary_model:
        await runtime.sessions.get(session_id)
    if payload.model:
        await runtime.providers.show_model(payload.model)
    if payload.summary_model is not None:
        await runtime.summaries.models.check(payload.summary_model)
    async with runtime.sessions.edit(session_id) as session:
        apply_patch(session.metadata, payload)
    changed_tools = "tool_settings" in payload.model_fields_set
    return json_response(await head_with_warnings(session) if changed_tools else head_of(session))


@router.get(
    "/{session_id}/messages",
    response=MessageList,
    summary="Read the messages of a session",
    openapi_extra=documented(
        *READING,
        example={**ONE, "message_count": 2, "messages": schemas.MESSAGES},
        parameters=ONE,
    ),
)
async def list_messages(request: HttpRequest, session_id: str) -> HttpResponse:
    """All of them, in order, as they are stored."""
    session = await get_runtime().sessions.get(session_id)
    head = orjson.dumps({"session_id": session_id, "message_count": len(session.messages)})
    return raw_json(b"".join([head[:-1], b',"messages":', session.messages_json(), b"}"]))


@router.put(
    "/{session_id}/messages/{message_index}",
    response=SessionDetail,
    summary="Edit a user message and drop what follows it",
    openapi_extra=documented(
        InvalidMessageIndex,
        *WRITING,
        example=schemas.DETAIL,
        body={"content": "Updated message content"},
        parameters={**ONE, "message_index": 0},
    ),
)
async def edit_message(
    request: HttpRequest, session_id: str, message_index: MessageIndex, payload: MessageEdit
) -> HttpResponse:
    """The index counts the system message. A chat request without `message` then answers anew."""
    async with get_runtime().sessions.edit(session_id, exclusive=True) as session:
        session.edit_user_message(message_index, payload.content)
    return raw_json(detail_of(session))


@router.put(
    "/{session_id}/system-prompt",
    response=SessionDetail,
    summary="Set the system prompt of a session",
    openapi_extra=documented(
        PromptNotFound,
        *WRITING,
        example={**schemas.DETAIL},
        body={"content": "You are a helpful assistant.", "source_file": "helpful.md"},
        parameters=ONE,
    ),
)
async def set_system_prompt(
    request: HttpRequest, session_id: str, payload: SystemPromptSet
) -> HttpResponse:
    """`source_file` alone loads that prompt file."""
    runtime = get_runtime()
    text = await prompt_text(runtime.prompts, payload.content, payload.source_file)
    async with runtime.sessions.edit(session_id, exclusive=True) as session:
        session.set_system_prompt(text or "", payload.source_file)
    return raw_json(detail_of(session))


@router.delete(
    "/{session_id}/system-prompt",
    response={204: None},
    summary="Remove the system prompt of a session",
    openapi_extra=documented(*WRITING, parameters=ONE),
)
async def remove_system_prompt(request: HttpRequest, session_id: str) -> HttpResponse:
    """Also where there is none."""
    async with get_runtime().sessions.edit(session_id, exclusive=True) as session:
        session.remove_system_prompt()
    return no_content()


@router.get(
    "/{session_id}/status",
    response=SessionStatus,
    summary="What the session's next turn works with",
    openapi_extra=documented(*READING, example=STATUS, parameters=ONE),
)
async def read_session_status(request: HttpRequest, session_id: str) -> HttpResponse:
    """Context window, tools, agents, system prompt, summary."""
    return json_response(await get_runtime().status.of(session_id))
