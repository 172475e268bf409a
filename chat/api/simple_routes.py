"""``/chat`` and ``/chat/stream``: one message to a session that may not exist yet.

The session's id is in the body, and the tools are chosen for each message. Both routes read the
same turns as the routes of ``/chat/{session_id}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict, Field

from mochi_project.openapi import MODEL_ERRORS, NAME_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel
from mochi_server import errors
from mochi_server.chat.service import events_of, whole_reply
from mochi_server.protocol.options import NO_OPTIONS
from mochi_server.protocol.turn_request import TurnRequest
from sessions_app.schemas import ModelName, Names

from ..new_sessions import AnySessionId, session_of_message
from ..streaming import RUN_ID, Encode, EventStreamResponse
from ..wires.chunks import BATCH, BatchMetadata, Chunks, Iterations
from .attachments import ATTACHMENT_ERRORS, Attachments, read_attachments
from .chat import continues
from .chat_bodies import AnswerFormat, IgnoredOptions, OnDisconnect, OptionsOfTurn, WhenBusyField
from .events import simple_stream
from .examples import MODEL, SESSION

router = Router()


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
    options: OptionsOfTurn = None
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
    async with session_of_message(payload.session_id, payload.model) as session_id:
        started = await runtime.run_control.start(
            session_id,
            await _read(payload, session_id, selected=(), wait=False),
            when_busy=payload.when_busy,
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
    async with session_of_message(payload.session_id, payload.model) as session_id:
        started = await runtime.run_control.start(
            session_id,
            await _read(payload, session_id, selected=tools, wait=True),
            when_busy=payload.when_busy,
            whole_messages=bool(tools),
        )
    encode: Encode = Chunks(session_id)
    if started.reader.messages is not None:
        encode = Iterations(session_id, started.model, started.reader.messages)
    return EventStreamResponse(started.reader, encode, run_id=started.run_id)


async def _read(
    payload: SimpleChatRequest, session_id: str, *, selected: Sequence[str], wait: bool
) -> TurnRequest:
    return TurnRequest(
        message=payload.message,
        attachments=await read_attachments(session_id, payload.attachments),
        options=payload.options or NO_OPTIONS,
        response_format=payload.response_format,
        model=payload.model,
        selected=selected,
        wait=wait,
        continues=continues(payload.on_disconnect),
    )
