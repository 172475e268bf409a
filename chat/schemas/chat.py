"""Bodies and answers of ``/chat`` and ``/models``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from mochi_server.errors import JSONObject
from mochi_server.protocol.events import (
    AgentComplete,
    AgentExecution,
    AgentPlanning,
    AgentStart,
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ThinkingDelta,
    ToolCallStarted,
    ToolCallWaiting,
    ToolContinuationStart,
    ToolResultReady,
)
from mochi_server.protocol.messages import AssistantMessage

ASK: JSONObject = {"message": "What is the capital of France?", "think": False}
WINDOW: JSONObject = {
    "current_window": 8192,
    "usage_tokens": 165,
    "reason": "initial_setup",
    "dropped_messages": 0,
}
REPLY: JSONObject = {
    "session_id": "a1b2c3d4e5",
    "message": {
        "role": "assistant",
        "content": "The capital of France is Paris.",
        "model": "qwen3:14b",
        "message_id": "f1e2d3c4b5",
        "timestamp": "2025-01-15T10:35:00.000000Z",
        "eval_count": 45,
        "prompt_eval_count": 120,
    },
    "tool_calls_executed": [],
    "context_window": WINDOW,
    "finish_reason": "stop",
}
MODEL: JSONObject = {
    "name": "qwen3:14b",
    "size_mb": 9048.2,
    "format": "gguf",
    "family": "qwen3",
    "parameter_size": "14.8B",
    "quantization_level": "Q4_K_M",
    "capabilities": ["completion", "tools"],
    "context_length": 40960,
    "provider": "ollama",
    "remote_host": None,
}
PROBLEM: JSONObject = {
    "provider": "ollama",
    "code": "OLLAMA_UNREACHABLE",
    "message": "Cannot connect to Ollama at http://localhost:11434.",
}


class ChatRequest(BaseModel):
    """One user message, or none to answer the last one anew."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": ASK})

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


class UsedWindow(BaseModel):
    """The context window that an answer was made with."""

    current_window: int | None = Field(description="Tokens; null when it is not known.")
    usage_tokens: int = Field(description="Tokens of prompt and reply together.")
    reason: str = Field(description="Why it is so large.")
    dropped_messages: int = Field(description="Messages that did not fit and were not sent.")


class ExecutedToolCall(BaseModel):
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


class ChatReply(BaseModel):
    """The whole answer."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": REPLY})

    session_id: str
    message: AssistantMessage
    tool_calls_executed: list[ExecutedToolCall]
    context_window: UsedWindow
    finish_reason: str | None = Field(description="`stop`, `length`, … as the provider says it.")
    tool_rounds_exhausted: bool = Field(
        default=False, description="Only when true: the limit of tool rounds forced this answer."
    )


class Model(BaseModel):
    """One model."""

    model_config = ConfigDict(json_schema_extra={"example": MODEL})

    name: str = Field(description="What to write as `model` elsewhere.")
    size_mb: float | None = Field(description="Size of the weights in 10**6 bytes.")
    format: str | None
    family: str | None
    parameter_size: str | None
    quantization_level: str | None
    capabilities: list[str]
    context_length: int | None = Field(description="Longest context in tokens.")
    provider: str
    remote_host: str | None = Field(description="Where the text goes, if it leaves the machine.")


class ProviderProblem(BaseModel):
    """A provider that did not answer."""

    model_config = ConfigDict(json_schema_extra={"example": PROBLEM})

    provider: str
    code: str
    message: str


class ModelList(BaseModel):
    """Every model of every provider that answers."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"models": [MODEL], "problems": [PROBLEM]}}
    )

    models: list[Model]
    problems: list[ProviderProblem]


_EXAMPLES: tuple[Event, ...] = (
    ContentDelta("The capital"),
    ThinkingDelta("The user asks"),
    ToolCallStarted(
        tool_name="add", arguments={"a": 2, "b": 3}, call_index=0, tool_call_id="call_1"
    ),
    ToolCallWaiting(tool_name="add", tool_call_id="call_1"),
    ConfirmationRequired(
        tool_name="delete_file",
        arguments={"path": "old.txt"},
        call_index=0,
        tool_call_id="call_1",
        confirmation_id="conf_8f14e45fceea167a",
        queue_position=1,
        queue_total=1,
        timeout_seconds=300,
    ),
    ConfirmationDecided(
        confirmation_id="conf_8f14e45fceea167a",
        tool_name="delete_file",
        call_index=0,
        tool_call_id="call_1",
        approved=False,
        arguments={"path": "old.txt"},
        edited=False,
        reason="I still need it.",
    ),
    ToolResultReady(
        tool_name="add",
        success=True,
        result="5",
        error_message=None,
        call_index=0,
        tool_call_id="call_1",
    ),
    AgentStart(
        agent_name="coder",
        instruction="Say what main.py does.",
        session_id="b80fa657b0",
        model="qwen3:14b",
        agent_call_id="call_2",
        parent_call_id=None,
    ),
    AgentPlanning("I read the file", "coder", "call_2"),
    AgentExecution("It prints", "coder", "call_2"),
    ToolCallStarted(
        agent_name="coder",
        tool_name="read_file",
        arguments={"path": "main.py"},
        call_index=0,
        tool_call_id="call_3",
        agent_call_id="call_2",
    ),
    ToolResultReady(
        agent_name="coder",
        tool_name="read_file",
        success=True,
        result="print(1)",
        error_message=None,
        call_index=0,
        tool_call_id="call_3",
        agent_call_id="call_2",
    ),
    AgentComplete(
        agent_name="coder",
        session_id="b80fa657b0",
        output="Session ID: b80fa657b0\n\nIt prints a 1.",
        success=True,
        error_message=None,
        agent_call_id="call_2",
    ),
    ToolContinuationStart(),
    MessageComplete(
        message_id="f1e2d3c4b5",
        model="qwen3:14b",
        eval_count=45,
        prompt_eval_count=120,
        context_window=WINDOW,
        finish_reason="stop",
        message={},
    ),
    ErrorEvent(
        code="OLLAMA_UNREACHABLE",
        message="Cannot connect to Ollama at http://localhost:11434.",
        details={"host": "http://localhost:11434"},
    ),
    Done(session_id="a1b2c3d4e5"),
)

EXAMPLES: dict[str, Event] = {event.type: event for event in _EXAMPLES}
EVENTS: dict[str, JSONObject] = {event.type: event.payload() for event in _EXAMPLES}
"""The data of one example for each event; docs/reference/events.md has their fields."""
