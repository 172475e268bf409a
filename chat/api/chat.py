"""``/chat/{session_id}``: one turn of a session, in one piece or as a stream of events."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from ninja import Router

from chat.schemas.chat import ChatReply, ChatRequest
from chat.schemas.events import stream
from chat.streaming import EventStreamResponse
from mochi_project.openapi import MODEL_ERRORS, ErrorTypes, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionId
from mochi_server.errors import EmptyHistory, JSONObject, ThinkingNotSupported, ToolsNotSupported

router = Router()

ERRORS: ErrorTypes = (
    EmptyHistory,
    ThinkingNotSupported,
    ToolsNotSupported,
    *MODEL_ERRORS,
)


@router.post(
    "/{session_id}",
    response=ChatReply,
    exclude_unset=True,
    summary="Send a message and wait for the whole reply",
    openapi_extra=documented(*ERRORS),
)
async def chat(
    request: HttpRequest, session_id: SessionId, payload: ChatRequest | None = None
) -> JSONObject:
    """Without `message`, the last user message is answered again."""
    payload = payload or ChatRequest()
    return await get_runtime().chat.complete(
        session_id,
        message=payload.message,
        think=payload.think,
        wait=payload.confirmations == "wait",
    )


@router.post(
    "/{session_id}/stream",
    response={200: None},
    summary="Send a message and get the reply as server-sent events",
    openapi_extra=documented(*ERRORS, stream=stream),
)
async def stream_chat(
    request: HttpRequest, session_id: SessionId, payload: ChatRequest | None = None
) -> EventStreamResponse:
    """What can fail before the first byte is answered as JSON with its status.

    Later an `error` event carries the same code. Closing the connection stops the turn; what was
    said so far is kept.
    """
    payload = payload or ChatRequest()
    service = get_runtime().chat
    turn = await service.open_turn(
        session_id,
        message=payload.message,
        think=payload.think,
        wait=payload.confirmations != "deny",
    )
    return EventStreamResponse(
        service.start(turn),
        heartbeat=settings.MOCHI.heartbeat_seconds,
        stall=settings.MOCHI.client_stall_seconds,
    )
