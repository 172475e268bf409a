"""``/sessions``: create, read, change, list, search, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from django.http import HttpRequest
from ninja import Query, Router

from mochi_project.openapi import NAME_ERRORS, PROVIDER_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import Cursor, Limit, SessionId
from mochi_server.core.caller import require
from mochi_server.errors import (
    AttachmentNotFound,
    InvalidMessageIndex,
    InvalidRequest,
    JSONObject,
    McpServerFailed,
    MessageNotFound,
    MochiError,
    PromptArgumentsInvalid,
    PromptInvalid,
    PromptNotFound,
    SessionBusy,
    SessionNotFound,
    SessionUnreadable,
    SpaceUsedUp,
    StorageError,
    SummaryModelRequired,
)
from mochi_server.services.models.resolver import ModelSetup
from mochi_server.sessions import fork
from mochi_server.sessions.catalogue.listing import SessionFilter
from mochi_server.sessions.catalogue.search import PAGE
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import MAX_TAGS, SessionMetadata

from .answers import EncodedSessionList, MessageList, SessionDetail, SessionHead, SessionStatus
from .changes import CALLS, agents_of, apply_patch, prompt_text, tools_of
from .schemas import (
    ARCHIVED,
    Archived,
    ForkRequest,
    MessageEdit,
    MessageIndex,
    SessionCreate,
    SessionPatch,
    SystemPromptSet,
    Turns,
)

router = Router()

READ_ERRORS = (SessionNotFound, SessionUnreadable, StorageError)
WRITE_ERRORS = (*READ_ERRORS, SessionBusy)
PROMPT_ERRORS = (PromptNotFound, PromptInvalid, PromptArgumentsInvalid, McpServerFailed)

_HEAD = SessionHead.model_fields.keys() & SessionMetadata.model_fields.keys()


def head_of(session: ChatSession) -> dict[str, Any]:
    """Return the metadata and labels of a session, as ``SessionHead`` has them."""
    # With all keys of the settings: the routes send only keys that are set.
    metadata = session.metadata
    optional = {"options": metadata.options.as_stored() or None, "compaction": metadata.compaction}
    return {
        **metadata.model_dump(include=set(_HEAD)),
        **metadata.labels,
        **{key: value for key, value in optional.items() if value is not None},
    }


async def head_with_warnings(session: ChatSession) -> dict[str, Any]:
    """Return the same after a change of the tools, with the names that nothing has."""
    settings, agents = session.metadata.tool_settings, session.metadata.agent_settings
    warnings: list[str] = []
    if settings is not None:
        has_agents = agents is not None and bool(agents.enabled_agents)
        warnings = await get_runtime().tools.warnings(settings, agents=has_agents)
    return {**head_of(session), **({"warnings": warnings} if warnings else {})}


def detail_of(session: ChatSession, turns: int | None = None) -> SessionDetail:
    """Return a session with its messages, or its last turns, encoded as they are stored."""
    metadata = session.metadata
    messages = orjson.Fragment(session.messages_json(turns))
    return SessionDetail.model_validate({**dict(metadata), **metadata.labels, "messages": messages})


@router.get(
    "",
    response=EncodedSessionList,
    summary="List the sessions",
    openapi_extra=documented(InvalidRequest, StorageError),
)
async def list_sessions(
    request: HttpRequest,
    *,
    limit: Limit = None,
    cursor: Cursor = None,
    archived: Archived = "all",
    tag: Annotated[list[str], Query(max_length=MAX_TAGS, description="Such as `python`.")] = [],  # noqa: B006 - ninja copies it
    query: Annotated[
        str | None, Query(description='Such as `asyncio "event loop" -django`.')
    ] = None,
) -> bytes:
    """List the sessions, the latest change first; all of them, or with `limit` a page.

    `next_cursor` of a page is the `cursor` of the next one. `archived` selects sessions that are
    archived, or that are not; `tag` may be repeated and selects sessions that have all these tags.

    With `query`, only sessions that contain all its words, the best match first, 20 unless `limit`
    is given; each then has `score`, `found_in` and `snippet`.
    """
    runtime = get_runtime()
    session_filter = SessionFilter(archived=ARCHIVED[archived], tags=tuple(tag))
    if query is None:
        return await runtime.sessions.list_json(limit, cursor, session_filter)
    page = await runtime.search.search(
        query, limit=limit or PAGE, cursor=cursor, session_filter=session_filter
    )
    return orjson.dumps(page.as_json())


@router.post(
    "",
    response={201: SessionHead},
    exclude_unset=True,
    summary="Create a session",
    openapi_extra=documented(
        *NAME_ERRORS, *PROVIDER_ERRORS, *PROMPT_ERRORS, SpaceUsedUp, StorageError
    ),
)
async def create_session(request: HttpRequest, payload: SessionCreate) -> dict[str, Any]:
    """The model must exist. Tools and agents need not: they may appear later."""
    runtime = get_runtime()
    tools, agents = tools_of(payload.tool_settings), agents_of(payload.agent_settings)
    ModelSetup(model="").with_calls(tools, agents).require_right_to_tools()
    await runtime.models.show_model(payload.model)
    setup = await runtime.models.resolve(payload.model)
    setup.with_calls(tools, agents).require_right_to_tools()
    source = payload.system_prompt_source_file

    def prepare(session: ChatSession) -> None:
        session.metadata.compaction = payload.compaction

    session = await runtime.sessions.create(
        payload.model,
        system_prompt=await prompt_text(
            runtime.prompts, payload.system_prompt, source, payload.system_prompt_arguments
        ),
        source_file=source,
        tool_settings=tools,
        agent_settings=agents,
        labels=payload.labels(),
        options=payload.options,
        prepare=prepare,
    )
    return await head_with_warnings(session)


@router.get(
    "/{session_id}",
    response=SessionDetail,
    summary="Read a session with its messages",
    openapi_extra=documented(InvalidRequest, *READ_ERRORS),
)
async def read_session(
    request: HttpRequest, session_id: SessionId, turns: Turns = None
) -> SessionDetail:
    """Every key of the file's metadata, and `messages`, or those of the last `turns` alone."""
    return detail_of(await get_runtime().sessions.get(session_id), turns)


@router.delete(
    "/{session_id}",
    response={204: None},
    summary="Delete a session",
    openapi_extra=documented(SessionNotFound, SessionBusy, StorageError),
)
async def delete_session(request: HttpRequest, session_id: SessionId) -> None:
    """Refused while a turn is running."""
    await get_runtime().sessions.delete(session_id)


@router.patch(
    "/{session_id}",
    response=SessionHead,
    exclude_unset=True,
    summary="Change a session's model or settings",
    openapi_extra=documented(*NAME_ERRORS, *PROVIDER_ERRORS, SummaryModelRequired, *READ_ERRORS),
)
async def patch_session(
    request: HttpRequest, session_id: SessionId, payload: SessionPatch
) -> dict[str, Any]:
    """What is absent stays; a settings object is replaced as a whole, `null` removes it.

    Also possible while a turn is running, which goes on with what it began with.
    """
    runtime = get_runtime()
    await runtime.sessions.get(session_id)  # so that it is known, and changed without its lock
    if payload.model:
        await runtime.models.show_model(payload.model)
    if payload.summary_model is not None:
        await runtime.summaries.models.check(payload.summary_model)
    may_change_calls = bool(CALLS & payload.model_fields_set)
    setups = await _setups(session_id, payload.model) if may_change_calls else {}
    has_other_calls = False
    after = None

    def change(session: ChatSession) -> None:
        nonlocal has_other_calls, after
        before = _setup_of(session, setups)
        apply_patch(session.metadata, payload)
        after = _setup_of(session, setups)
        # Nothing is known of a model that cannot be used now, or that another request has set.
        is_same = before is not None and after is not None and after.has_same_calls_as(before)
        if has_other_calls := may_change_calls and not is_same:
            require("tools")

    session = await runtime.sessions.update(session_id, change)
    if has_other_calls:
        settings = session.metadata.tool_settings if after is None else after.tool_settings
        policy = None if settings is None else settings.model_dump(mode="json")["execution_policy"]
        await runtime.audit.record(
            "change tools of session", session_id=session_id, execution_policy=policy
        )
    changed_tools = "tool_settings" in payload.model_fields_set
    return await head_with_warnings(session) if changed_tools else head_of(session)


async def _setups(session_id: str, model: str | None) -> dict[str, ModelSetup]:
    """Return what the model of a session, and the one that it gets, stand for, by their names.

    Without one that stays and cannot be used now: nobody knows what it will have.
    """
    runtime = get_runtime()
    stored = (await runtime.sessions.get(session_id)).metadata.model
    setups = {}
    for name in {stored, model or stored}:
        try:
            setups[name] = await runtime.models.resolve(name)
        except MochiError:  # noqa: PERF203 - there are two
            if name != (model or stored):  # it is left, and no turn could have it
                setups[name] = ModelSetup(model=name)
    return setups


def _setup_of(session: ChatSession, setups: Mapping[str, ModelSetup]) -> ModelSetup | None:
    setup = setups.get(session.metadata.model)
    return None if setup is None else setup.within(session.metadata)


@router.post(
    "/{session_id}/fork",
    response={201: SessionHead},
    exclude_unset=True,
    summary="Begin another session with the messages of this one",
    openapi_extra=documented(MessageNotFound, SpaceUsedUp, *READ_ERRORS),
)
async def fork_session(
    request: HttpRequest, session_id: SessionId, payload: ForkRequest | None = None
) -> dict[str, Any]:
    """Up to `message_id`, and the results of its calls. The settings are the same."""
    runtime = get_runtime()
    message_id = None if payload is None else payload.message_id
    return head_of(
        await fork.fork_session(runtime.sessions, runtime.attachments, session_id, message_id)
    )


@router.get(
    "/{session_id}/messages",
    response=MessageList,
    summary="Read the messages of a session",
    openapi_extra=documented(InvalidRequest, *READ_ERRORS),
)
async def list_messages(
    request: HttpRequest, session_id: SessionId, turns: Turns = None
) -> MessageList:
    """All of them, or those of the last `turns`, in order, as they are stored."""
    session = await get_runtime().sessions.get(session_id)
    return MessageList(
        session_id=session_id,
        message_count=len(session.messages),
        messages=orjson.Fragment(session.messages_json(turns)),
    )


@router.put(
    "/{session_id}/messages/{message_index}",
    response=SessionDetail,
    summary="Edit a user message and remove what follows it",
    openapi_extra=documented(InvalidMessageIndex, AttachmentNotFound, *WRITE_ERRORS),
)
async def edit_message(
    request: HttpRequest, session_id: SessionId, message_index: MessageIndex, payload: MessageEdit
) -> SessionDetail:
    """The index counts the system message. A chat request without `message` then answers anew.

    What was there before is a variant until that answer is complete.
    """
    async with get_runtime().sessions.edit(session_id, exclusive=True) as session:
        session.edit_user_message(message_index, payload.content, payload.attachments)
    return detail_of(session)


@router.put(
    "/{session_id}/system-prompt",
    response=SessionDetail,
    summary="Set the system prompt of a session",
    openapi_extra=documented(*PROMPT_ERRORS, *WRITE_ERRORS),
)
async def set_system_prompt(
    request: HttpRequest, session_id: SessionId, payload: SystemPromptSet
) -> SessionDetail:
    """`source_file` alone loads that prompt file, or that prompt of an MCP server."""
    runtime = get_runtime()
    text = await prompt_text(
        runtime.prompts, payload.content, payload.source_file, payload.arguments
    )
    async with runtime.sessions.edit(session_id, exclusive=True) as session:
        session.set_system_prompt(text or "", payload.source_file)
    return detail_of(session)


@router.delete(
    "/{session_id}/system-prompt",
    response={204: None},
    summary="Remove the system prompt of a session",
    openapi_extra=documented(*WRITE_ERRORS),
)
async def remove_system_prompt(request: HttpRequest, session_id: SessionId) -> None:
    """Also where there is none."""
    async with get_runtime().sessions.edit(session_id, exclusive=True) as session:
        session.remove_system_prompt()


@router.get(
    "/{session_id}/status",
    response=SessionStatus,
    summary="What the session's next turn works with",
    openapi_extra=documented(*READ_ERRORS),
)
async def read_session_status(request: HttpRequest, session_id: SessionId) -> JSONObject:
    """Context window, tools, agents, system prompt, summary."""
    return await get_runtime().status.of(session_id)
