"""``/chat/{session_id}``: one turn, in one piece or as a stream, and confirming its calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from mochi_project.openapi import MODEL_ERRORS, ErrorTypes, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId, Timestamp, ToolName
from mochi_server import errors
from mochi_server.errors import JSONObject
from mochi_server.protocol.messages import AssistantMessage

from ..streaming import EventStreamResponse
from .events import stream

router = Router()


class ChatRequest(BaseModel):
    """One user message, or none to answer the last one anew."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"message": "What is the capital of France?", "think": False}
        },
    )

    message: str | None = Field(
        default=None,
        pattern=r"\S",
        description="Not only white space. Absent: what follows the last user message is dropped, "
        "and that one is answered again.",
    )
    think: StrictBool | Literal["low", "medium", "high", "max"] = Field(
        default=False, description="Let the model think first; false by default."
    )
    confirmations: Literal["wait", "deny"] | None = Field(
        default=None,
        description="Whether calls that a person must confirm are waited for, or denied at once. "
        "Absent: a stream waits, a reply in one piece denies.",
    )


class UsedWindow(ResponseModel):
    """The context window that an answer was made with."""

    current_window: int | None = Field(
        description="Tokens; null when it is not known.", examples=[8192]
    )
    usage_tokens: int = Field(description="Tokens of prompt and reply together.", examples=[165])
    reason: str = Field(description="Why it is so large.", examples=["initial_setup"])
    dropped_messages: int = Field(
        description="Messages that did not fit and were not sent.", examples=[0]
    )


class ExecutedToolCall(ResponseModel):
    """A call of the turn, and what became of it."""

    tool_name: str
    arguments: dict[str, Any] = Field(description="What ran: as the model or a person has them.")
    call_index: int = Field(description="Position in the model's reply, from 0.")
    tool_call_id: str
    success: bool
    result: str | None
    error_message: str | None
    code: str | None = Field(default=None, description="Only where the failure has a name.")
    confirmation_id: str | None = Field(default=None, description="Only if a person was asked.")
    approved: bool | None = Field(default=None, description="Only if a person was asked.")
    edited: bool | None = Field(default=None, description="Only if a person was asked.")
    agent_events: list[dict[str, Any]] = Field(
        default=[], description="Only of the tool `agent`: what it did, a `ChatEvent` each."
    )


class ChatReply(ResponseModel):
    """The whole answer."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "session_id": "a1b2c3d4e5",
                "message": {
                    "role": "assistant",
                    "content": "The capital of France is Paris.",
                    "model": "qwen3:14b",
                    "message_id": "f1e2d3c4b5",
                    "timestamp": "2026-01-15T10:35:00.000000Z",
                    "eval_count": 45,
                    "prompt_eval_count": 120,
                },
                "tool_calls_executed": [],
                "context_window": {
                    "current_window": 8192,
                    "usage_tokens": 165,
                    "reason": "initial_setup",
                    "dropped_messages": 0,
                },
                "finish_reason": "stop",
            }
        }
    )

    session_id: SessionId
    message: AssistantMessage
    tool_calls_executed: list[ExecutedToolCall]
    context_window: UsedWindow
    finish_reason: str | None = Field(description="`stop`, `length`, … as the provider says it.")
    tool_rounds_exhausted: bool = Field(
        default=False, description="Only when true: the limit of tool rounds forced this answer."
    )


ConfirmationId = Annotated[str, Field(examples=["conf_0123456789abcdef"])]


class ConfirmRequest(BaseModel):
    """A decision about a call."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"confirmation_id": "conf_0123456789abcdef", "approved": True}
        },
    )

    confirmation_id: str = Field(description="As the event, or the list, has it.")
    approved: StrictBool
    reason: str | None = Field(
        default=None,
        max_length=10_000,
        description="Told to the model when the call is denied.",
    )
    arguments: dict[str, Any] | None = Field(
        default=None,
        description="With `approved` true: what the tool gets instead of the model's arguments, "
        "all of them.",
    )


class Confirmed(ResponseModel):
    """The decision counts."""

    confirmation_id: ConfirmationId
    approved: bool = Field(examples=[True])


class OpenConfirmation(ResponseModel):
    """A call that waits for a decision."""

    confirmation_id: ConfirmationId
    session_id: SessionId
    tool_name: ToolName
    tool_source: str = Field(
        description="Where the tool comes from: `directory`, `agents`, ….", examples=["directory"]
    )
    arguments: dict[str, Any] = Field(examples=[{"a": 2, "b": 3}])
    call_index: int = Field(examples=[0])
    tool_call_id: str = Field(examples=["call_1"])
    queue_position: int = Field(
        description="From 1, among the calls that are asked about.", examples=[1]
    )
    queue_total: int = Field(examples=[1])
    asked_at: Timestamp
    expires_at: Timestamp
    agent_name: str | None = Field(
        default=None, description="Whose call it is; absent where the session's own model calls."
    )
    agent_call_id: str | None = Field(
        default=None, description="Which run of the agent, as in its events; absent likewise."
    )


class ConfirmationList(ResponseModel):
    """Every call of the session that waits for a decision, oldest first."""

    confirmations: list[OpenConfirmation]


ERRORS: ErrorTypes = (
    errors.EmptyHistory,
    errors.ThinkingNotSupported,
    errors.ToolsNotSupported,
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
    return EventStreamResponse(service.start(turn))


@router.post(
    "/{session_id}/confirm-tool",
    response=Confirmed,
    summary="Allow or deny a tool call",
    openapi_extra=documented(
        errors.ConfirmationNotFound,
        errors.ToolConfirmationTimeout,
        errors.ConfirmationUnavailable,
    ),
)
async def confirm_tool(
    request: HttpRequest, session_id: SessionId, payload: ConfirmRequest
) -> JSONObject:
    """The first decision counts, at whichever process it arrives.

    Arguments that do not fit the tool are refused with 422, and the confirmation stays open.
    """
    return await get_runtime().chat.confirm(
        session_id,
        payload.confirmation_id,
        approved=payload.approved,
        reason=payload.reason,
        arguments=payload.arguments,
    )


@router.get(
    "/{session_id}/confirmations",
    response=ConfirmationList,
    exclude_unset=True,
    summary="List the tool calls that wait for a decision",
    openapi_extra=documented(
        errors.SessionNotFound, errors.ConfirmationUnavailable, errors.StorageError
    ),
)
async def list_confirmations(request: HttpRequest, session_id: SessionId) -> dict[str, Any]:
    """Oldest first; whichever process runs the turn that asks."""
    runtime = get_runtime()
    # A session that is not there is an error; one without confirmations is not.
    await runtime.sessions.check_exists(session_id)
    return {"confirmations": await runtime.chat.confirmations(session_id)}
