"""``/chat``: one turn of a session, in one piece or as a stream of events."""

from __future__ import annotations

from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat.schemas import ASK, EVENTS, REPLY, ChatReply, ChatRequest
from chat.streaming import EventStreamResponse
from mochi_project.openapi import documented
from mochi_project.responses import json_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import (
    ContextOverflow,
    EmptyHistory,
    MochiError,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    ProviderBusy,
    ProviderError,
    ProviderNotConfigured,
    ProviderUnreachable,
    SessionBusy,
    SessionNotFound,
    SessionUnreadable,
    ShuttingDown,
    StorageError,
    ThinkingNotSupported,
    ToolsNotSupported,
)

router = Router()

ONE = {"session_id": "a1b2c3d4e5"}

ERRORS: tuple[type[MochiError], ...] = (
    EmptyHistory,
    ThinkingNotSupported,
    ToolsNotSupported,
    SessionNotFound,
    ModelNotFound,
    SessionBusy,
    ContextOverflow,
    ProviderNotConfigured,
    SessionUnreadable,
    OllamaUnreachable,
    OllamaError,
    ProviderUnreachable,
    ProviderError,
    ProviderBusy,
    ShuttingDown,
    StorageError,
)


def _frames(*names: str) -> str:
    """Some events, as they are on the wire."""
    lines = ["retry: 3000", ""]
    for number, name in enumerate(names, start=1):
        data = orjson.dumps(EVENTS[name]).decode()
        lines += [f"id: {number}", f"event: {name}", f"data: {data}", ""]
    return "\n".join(lines) + "\n"


def _event_schema(name: str) -> dict[str, Any]:
    """One kind of event; all fields of its example are always there."""
    data = {"type": "object", "required": list(EVENTS[name])}
    return {
        "title": name,
        "properties": {
            "event": {"const": name},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": data,
            },
        },
    }


STREAM: dict[str, Any] = {
    "text/event-stream": {
        # Of each event: so are streams described before OpenAPI 3.2.
        "schema": {
            "type": "object",
            "description": "One of the server-sent events. Exactly one `done`, always last, also "
            "after `error`. Comments (`: ping`) in silence.",
            "required": ["id", "event", "data"],
            "properties": {"id": {"type": "string", "description": "Grows within the stream."}},
            "oneOf": [_event_schema(name) for name in EVENTS],
        },
        "examples": {
            "reply": {"value": _frames("content_delta", "message_complete", "done")},
            "thinking": {
                "value": _frames("thinking_delta", "content_delta", "message_complete", "done")
            },
            "tools": {
                "value": _frames(
                    "tool_call",
                    "tool_result",
                    "tool_continuation_start",
                    "content_delta",
                    "message_complete",
                    "done",
                )
            },
            "confirmation": {
                "value": _frames(
                    "tool_call_confirmation_required",
                    "tool_call_confirmation_decided",
                    "tool_result",
                    "tool_continuation_start",
                    "content_delta",
                    "message_complete",
                    "done",
                )
            },
            "agents": {
                "value": _frames(
                    "tool_call",
                    "agent_start",
                    "agent_planning",
                    "agent_tool_call",
                    "agent_tool_result",
                    "agent_execution",
                    "agent_complete",
                    "tool_result",
                    "tool_continuation_start",
                    "content_delta",
                    "message_complete",
                    "done",
                )
            },
            "failure": {"value": _frames("content_delta", "error", "done")},
        },
    }
}


@router.post(
    "/{session_id}",
    response=ChatReply,
    summary="Send a message and wait for the whole reply",
    openapi_extra=documented(*ERRORS, example=REPLY, body=ASK, parameters=ONE),
)
async def chat(
    request: HttpRequest, session_id: str, payload: ChatRequest | None = None
) -> HttpResponse:
    """Without `message`, the last user message is answered again."""
    payload = payload or ChatRequest()
    reply = await get_runtime().chat.complete(
        session_id,
        message=payload.message,
        think=payload.think,
        wait=payload.confirmations == "wait",
    )
    return json_response(reply)


@router.post(
    "/{session_id}/stream",
    response={200: None},
    summary="Send a message and get the reply as server-sent events",
    openapi_extra=documented(*ERRORS, content=STREAM, body=ASK, parameters=ONE),
)
async def stream_chat(
    request: HttpRequest, session_id: str, payload: ChatRequest | None = None
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
