"""``/chat`` and ``/chat/stream``: one message to a session that may not exist yet.

The session's id is in the body, and the tools are chosen for each message. Both routes read the
same turns as the routes of ``/chat/{session_id}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from mochi_project.openapi import MODEL_ERRORS, NAME_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel
from mochi_server import errors
from mochi_server.chat import StoredMessages
from mochi_server.chat.runs.registry import log_failure
from mochi_server.chat.service import events_of, whole_reply
from mochi_server.core.aio import run_to_completion
from mochi_server.core.ids import new_run_id, new_uuid
from mochi_server.errors import MochiError, ProviderError, SessionNotFound
from mochi_server.runtime import Runtime
from mochi_server.sessions.storage.base import SESSION_ID
from sessions_app.schemas import ModelName, Names

from ..streaming import RUN_ID, Encode, EventStreamResponse
from ..wires.chunks import BATCH, BatchMetadata, Chunks, Iterations
from .attachments import ATTACHMENT_ERRORS, Attachments, read_attachments
from .chat import (
    AnswerFormat,
    IgnoredOptions,
    OnDisconnect,
    TurnOptions,
    WhenBusyField,
    continues,
)
from .events import MODEL, SESSION, simple_stream

router = Router()

AnySessionId = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": f"^{SESSION_ID.pattern}$"})
]
"""Not checked here: an id that no session can have is not found, as on every route."""


class SimpleChatRequest(BaseModel):
    """A message to a session that may not be there yet."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"message": "What is 2 + 3?", "session_id": SESSION, "model": MODEL}
        },
    )

    message: str = Field(pattern=r"\S", description="What the person says.")
    session_id: AnySessionId | None = Field(
        default=None,
        description="A UUID, or any id. One that is not there is created; absent: a new one.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model of a new session, which needs one; of an old one for this message.",
    )
    selected_tools: Names | None = Field(
        default=None,
        description="Names of the tools of this message, in the place of the session's. Absent, "
        "null or empty: none. In one piece there are none.",
    )
    attachments: Attachments = []
    options: TurnOptions = None
    response_format: AnswerFormat = None
    on_disconnect: OnDisconnect = None
    when_busy: WhenBusyField = "refuse"


class SimpleChatReply(ResponseModel):
    """The answer in one piece."""

    response: str = Field(examples=["2 + 3 is 5."])
    session_id: str = Field(examples=[SESSION])
    model: str = Field(examples=[MODEL])
    metadata: BatchMetadata = Field(examples=[BATCH])
    ignored_options: IgnoredOptions = Field(default=[])


@asynccontextmanager
async def _session(runtime: Runtime, payload: SimpleChatRequest) -> AsyncIterator[str]:
    """Yield the id of the session, which is created if it does not exist.

    If the turn is then refused, a new session is deleted again. If it cannot be deleted, because
    somebody uses it already, the error names it: the client has not seen its id yet.

    Raises:
        SessionNotFound: it must be created and there is no model, or no session can have this id.
        ModelNotFound, ProviderNotConfigured, ProviderError: the model is not there.
        SessionUnreadable, StorageError.
    """
    session_id = new_uuid() if payload.session_id is None else payload.session_id
    is_new = await _create_if_absent(runtime, session_id, payload)
    try:
        yield session_id
    except errors.SessionBusy:  # another first message uses it
        raise
    except MochiError as error:
        if is_new and not await _delete_if_empty(runtime, session_id):
            error.details.setdefault("session_id", session_id)
        raise
    except asyncio.CancelledError:  # the client has left
        if is_new:
            await run_to_completion(_delete_if_empty(runtime, session_id))
        raise


async def _delete_if_empty(runtime: Runtime, session_id: str) -> bool:
    """Delete a session without messages, and return whether it was deleted."""
    with suppress(MochiError):  # somebody else uses it already
        return await runtime.sessions.delete(session_id, only_if=lambda one: not one.messages)
    return False


async def _create_if_absent(runtime: Runtime, session_id: str, payload: SimpleChatRequest) -> bool:
    """Create the session if it does not exist, and return whether it was created."""
    if SESSION_ID.fullmatch(session_id) is None:
        raise SessionNotFound(
            "No session can have this id: one is 1 to 64 letters, digits, '_' and '-'.",
            details={"session_id": session_id},
        )
    with suppress(SessionNotFound):
        await runtime.sessions.check_exists(session_id)
        return False
    if payload.model is None:
        raise SessionNotFound(
            "There is no such session, and a new one needs a model.",
            details={"session_id": payload.session_id},
        )
    try:
        await runtime.models.show_model(payload.model)
    except ProviderError as error:
        log_failure(session_id, new_run_id(), payload.model, error)
        raise
    created = []

    async def create(model: str) -> None:
        created.append(await runtime.sessions.create(model, session_id=session_id))

    try:
        await run_to_completion(create(payload.model))
    except errors.SessionExists:  # two first messages at once: the other one creates it just now
        async with runtime.sessions.edit(session_id):
            return False
    except asyncio.CancelledError:  # the client has left meanwhile
        if created:
            await run_to_completion(_delete_if_empty(runtime, session_id))
        raise
    return True


@router.post(
    "",
    response=SimpleChatReply,
    exclude_unset=True,
    summary="Send a message to a session by its id in the body, without tools",
    openapi_extra=documented(
        errors.ResponseFormatInvalid,
        *ATTACHMENT_ERRORS,
        *NAME_ERRORS,
        *MODEL_ERRORS,
        errors.ResponseFormatNotMet,
        errors.RunStopped,
    ),
)
async def simple_chat(
    request: HttpRequest, response: HttpResponse, payload: SimpleChatRequest
) -> SimpleChatReply:
    """The whole reply in one piece. `selected_tools` changes nothing here: there are no tools."""
    runtime = get_runtime()
    async with _session(runtime, payload) as session_id:
        started = await runtime.run_control.start(
            session_id,
            when_busy=payload.when_busy,
            message=payload.message,
            attachments=await read_attachments(session_id, payload.attachments),
            options=payload.options,
            response_format=payload.response_format,
            model=payload.model,
            selected=(),
            wait=False,
            continues=continues(payload.on_disconnect),
        )
        response[RUN_ID] = started.run_id
        async with aclosing(events_of(started.reader)) as events:
            reply = await whole_reply(session_id, events)
    message: Any = reply["message"]
    answer = SimpleChatReply(
        response=message["content"], session_id=session_id, model=message["model"], metadata=BATCH
    )
    if ignored := reply.get("ignored_options"):
        answer = answer.model_copy(update={"ignored_options": ignored})
    return answer


@router.post(
    "/stream",
    response={200: None},
    summary="The same as server-sent events, with tools as well",
    openapi_extra=documented(
        errors.ResponseFormatInvalid,
        *ATTACHMENT_ERRORS,
        *NAME_ERRORS,
        *MODEL_ERRORS,
        errors.ToolNotFound,
        errors.ToolsNotSupported,
        stream=simple_stream,
    ),
)
async def stream_simple_chat(
    request: HttpRequest, payload: SimpleChatRequest
) -> EventStreamResponse:
    """Without tools pieces of text (`chunk`), with `selected_tools` whole messages (`message`).

    What can fail before the first byte is answered as JSON with its status, later as an `error`
    event. Closing the connection stops the turn; what was said so far is kept.
    """
    runtime = get_runtime()
    tools = payload.selected_tools or []
    stored_messages = StoredMessages() if tools else None
    async with _session(runtime, payload) as session_id:
        started = await runtime.run_control.start(
            session_id,
            when_busy=payload.when_busy,
            message=payload.message,
            attachments=await read_attachments(session_id, payload.attachments),
            options=payload.options,
            response_format=payload.response_format,
            model=payload.model,
            selected=tools,
            stored_messages=stored_messages,
            continues=continues(payload.on_disconnect),
        )
    encode: Encode = Chunks(session_id)
    if stored_messages is not None:
        encode = Iterations(session_id, started.model, stored_messages)
    return EventStreamResponse(started.reader, encode, run_id=started.run_id)
