"""Bodies and answers of ``/chat/{session_id}``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from mochi_project.schemas import ResponseModel, SessionId
from mochi_server.protocol.messages import AssistantMessage


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
