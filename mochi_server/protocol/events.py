"""What happens in a turn, as typed events: the one language of the engine.

Server-sent events, the plain JSON reply and every other wire are encoders of these. Names and
fields are those of docs/reference/events.md; further fields may be added, none are taken away. The
deltas, one for each token, write their payload out: deriving it costs several times as much.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, TypeAlias

from pydantic import JsonValue

from ..errors import JSONObject, MochiError


class FieldPayload:
    """A dataclass whose payload is its fields, in their order.

    A field that has a default is left out while it has it; what is always there has none.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def payload(self) -> JSONObject:
        """The fields by name."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) is not each.default
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStart(FieldPayload):
    """An agent begins to work."""

    type: ClassVar[str] = "agent_start"

    agent_name: str
    instruction: str
    session_id: str
    """Of the agent's own conversation."""
    model: str
    agent_call_id: str
    """Id of the call that started it; all its events carry it."""
    parent_call_id: str | None
    """The same of the agent that called this one; null when the conversation's model did."""


@dataclass(slots=True)  # not frozen: one for each token
class AgentDelta:
    """A piece of what the agent says."""

    content: str
    agent_name: str
    agent_call_id: str

    def payload(self) -> JSONObject:
        """The event's data."""
        return {
            "content": self.content,
            "agent_name": self.agent_name,
            "agent_call_id": self.agent_call_id,
        }


@dataclass(slots=True)
class AgentPlanning(AgentDelta):
    """A piece of the agent's plan."""

    type: ClassVar[str] = "agent_planning"


@dataclass(slots=True)
class AgentExecution(AgentDelta):
    """A piece of what the agent says while it works."""

    type: ClassVar[str] = "agent_execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolCall(FieldPayload):
    """The agent calls one of its tools."""

    type: ClassVar[str] = "agent_tool_call"

    agent_name: str
    tool_name: str
    arguments: JSONObject
    call_index: int
    """Position of the call in the agent's reply, from 0."""
    tool_call_id: str
    agent_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolResult(FieldPayload):
    """A call of the agent has its result."""

    type: ClassVar[str] = "agent_tool_result"

    agent_name: str
    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    call_index: int
    tool_call_id: str
    agent_call_id: str
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentComplete(FieldPayload):
    """The agent is done; its output goes to the model that called it."""

    type: ClassVar[str] = "agent_complete"

    agent_name: str
    session_id: str
    output: str
    success: bool
    error_message: str | None
    """Why it could not go on; what it did until then is stored."""
    agent_call_id: str


AgentEvent: TypeAlias = (
    AgentStart | AgentPlanning | AgentExecution | AgentToolCall | AgentToolResult | AgentComplete
)


@dataclass(slots=True)  # not frozen: that trebles the cost of building one for each token
class ContentDelta:
    """A piece of the answer's text, as the model produced it."""

    type: ClassVar[str] = "content_delta"
    role: ClassVar[str] = "assistant"

    content: str

    def payload(self) -> JSONObject:
        """The event's data."""
        return {"content": self.content, "role": self.role}


@dataclass(slots=True)  # see above
class ThinkingDelta:
    """A piece of the model's thinking, before or between its text."""

    type: ClassVar[str] = "thinking_delta"

    content: str

    def payload(self) -> JSONObject:
        """The event's data."""
        return {"content": self.content}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(FieldPayload):
    """The model asks for a tool, and the call is about to run (or to be refused)."""

    type: ClassVar[str] = "tool_call"

    tool_name: str
    arguments: JSONObject
    call_index: int
    """Position of the call in the model's reply, from 0."""
    tool_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallWaiting(FieldPayload):
    """A call waits until others have ended: its session has its share of the tools' processes."""

    type: ClassVar[str] = "tool_call_waiting"

    tool_name: str
    tool_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRequired(FieldPayload):
    """A person must decide about a call before it runs; it waits, and can be decided already."""

    type: ClassVar[str] = "tool_call_confirmation_required"

    tool_name: str
    arguments: JSONObject
    """What will run: coerced, with the defaults of what the model left out."""
    call_index: int
    tool_call_id: str
    confirmation_id: str
    queue_position: int
    """From 1, among the calls of this reply that must be confirmed."""
    queue_total: int
    timeout_seconds: float
    """How long a decision is waited for."""
    agent_name: str | None = None
    """Whose call it is, when not the conversation's own model asks."""
    agent_call_id: str | None = None
    """Which run of the agent, as in :class:`AgentStart`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationDecided(FieldPayload):
    """A confirmation is settled: by a person, or because nobody came in time."""

    type: ClassVar[str] = "tool_call_confirmation_decided"

    confirmation_id: str
    tool_name: str
    call_index: int
    tool_call_id: str
    approved: bool
    arguments: JSONObject
    """What will run: as the person was asked, or as the person has changed it."""
    edited: bool
    reason: str | None
    """What the person said, or why nobody did."""
    code: str | None = None
    """``TOOL_CONFIRMATION_TIMEOUT`` when nobody decided."""
    agent_name: str | None = None
    agent_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultReady(FieldPayload):
    """A call has its result; exactly one for each call."""

    type: ClassVar[str] = "tool_result"

    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    call_index: int
    tool_call_id: str
    code: str | None = None
    """An error code where the failure has a name."""


@dataclass(frozen=True, slots=True)
class ToolContinuationStart:
    """The results go back to the model; its next reply follows."""

    type: ClassVar[str] = "tool_continuation_start"
    message: ClassVar[str] = "Processing tool results..."

    def payload(self) -> JSONObject:
        """The event's data."""
        return {"message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageComplete(FieldPayload):
    """The final assistant message is stored; these are its particulars."""

    type: ClassVar[str] = "message_complete"

    message_id: str
    model: str
    eval_count: int | None
    """Tokens generated, thinking included; null where the provider did not count."""
    prompt_eval_count: int | None
    """Tokens of the prompt."""
    context_window: JSONObject
    """``current_window``, ``usage_tokens``, ``reason``, ``dropped_messages``."""
    finish_reason: str | None
    """Why generation ended: ``stop``, ``length``, …"""
    tool_rounds_exhausted: bool = False
    """True when the limit of tool rounds forced this answer."""
    message: JSONObject
    """The message as it is stored; for replies in one piece, not part of the payload."""

    def payload(self) -> JSONObject:
        """The event's data."""
        data = FieldPayload.payload(self)  # super() fails in classes with slots before 3.14
        del data["message"]
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEvent(FieldPayload):
    """The turn failed after it had begun; ``done`` still follows."""

    type: ClassVar[str] = "error"

    code: str
    message: str
    details: JSONObject

    @classmethod
    def of(cls, error: MochiError, **details: JsonValue) -> ErrorEvent:
        """The event that says the same as the error's JSON body, with further details."""
        return cls(code=error.code, message=error.message, details={**error.details, **details})


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(FieldPayload):
    """The turn is over; exactly one, always last."""

    type: ClassVar[str] = "done"

    session_id: str


Event: TypeAlias = (
    ContentDelta
    | ThinkingDelta
    | ToolCallStarted
    | ToolCallWaiting
    | ConfirmationRequired
    | ConfirmationDecided
    | ToolResultReady
    | ToolContinuationStart
    | AgentEvent
    | MessageComplete
    | ErrorEvent
    | Done
)
