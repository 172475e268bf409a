"""The events of a turn and of the agents in it.

Server-sent events, the plain JSON reply and every other wire are encoders of these. Names and
fields are those of docs/reference/events.md; fields may be added, none are taken away. The deltas,
one for each token, write their payload out: deriving it costs several times as much.

An event that an agent can cause as well as the conversation itself is one class with an owner:
``agent_name`` and ``agent_call_id``, the id of the call that started the agent. They are null in
events of the conversation, and not in their payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, TypeAlias, get_args

from pydantic import JsonValue

from ..errors import JSONObject, MochiError, error_of
from .payload import FieldPayload, fields_of

__all__ = [
    "AgentComplete",
    "AgentDelta",
    "AgentExecution",
    "AgentPlanning",
    "AgentStart",
    "ConfirmationDecided",
    "ConfirmationRequired",
    "ContentDelta",
    "Done",
    "ErrorEvent",
    "Event",
    "HistoryCompacted",
    "HistoryShortened",
    "MessageComplete",
    "ReplyRetry",
    "RunStart",
    "ThinkingDelta",
    "ToolCallStarted",
    "ToolCallWaiting",
    "ToolContinuationStart",
    "ToolInputReceived",
    "ToolInputRequired",
    "ToolProgress",
    "ToolResultReady",
    "ToolSampling",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(FieldPayload):
    """A run begins; always the first event of a stream."""

    type: ClassVar[str] = "run_start"

    run_id: str
    session_id: str
    model: str
    started_at: str
    """UTC, microseconds, ``Z``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryShortened(FieldPayload):
    """The history does not fit the context window; the model is asked without its oldest part."""

    type: ClassVar[str] = "history_shortened"
    dropped_messages: int
    """Messages that are not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompacted(FieldPayload):
    """The history does not fit the context window; a summary is sent in place of its oldest part.

    Or a person wanted that.
    """

    type: ClassVar[str] = "history_compacted"
    summarised_messages: int
    """Messages in whose place the summary is."""
    through_message_id: str | None
    """The last of them; null if it has no id."""


@dataclass(slots=True)  # not frozen: that trebles the cost of building one for each token
class ContentDelta:
    """A piece of the answer's text, as the model produced it."""

    type: ClassVar[str] = "content_delta"
    role: ClassVar[str] = "assistant"
    content: str

    def payload(self) -> JSONObject:
        return {"content": self.content, "role": self.role}


@dataclass(slots=True)  # see above
class ThinkingDelta:
    """A piece of the model's thinking, before or between its text."""

    type: ClassVar[str] = "thinking_delta"
    content: str

    def payload(self) -> JSONObject:
        return {"content": self.content}


@dataclass(slots=True)  # see above
class AgentDelta:
    """A piece of an agent's text."""

    content: str
    agent_name: str
    agent_call_id: str

    def payload(self) -> JSONObject:
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
class AgentStart(FieldPayload):
    """An agent begins to work."""

    type: ClassVar[str] = "agent_start"
    agent_name: str
    instruction: str
    session_id: str
    """Session of the agent's own conversation."""
    model: str
    agent_call_id: str
    parent_call_id: str | None
    """``agent_call_id`` of the agent that called this one; null if the conversation's model did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentComplete(FieldPayload):
    """The agent is done; its output goes to the model that called it."""

    type: ClassVar[str] = "agent_complete"
    agent_name: str
    session_id: str
    output: str
    success: bool
    error_message: str | None
    """Why the agent could not go on; what it did until then is stored."""
    agent_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(FieldPayload):
    """The model asks for a tool, and the call is about to run (or to be refused)."""

    agent_name: str | None = None
    tool_name: str
    arguments: JSONObject
    call_index: int
    """Position of the call in the model's reply, from 0."""
    tool_call_id: str
    agent_call_id: str | None = None
    recovered: bool = False
    """Whether the model wrote it as text."""

    @property
    def type(self) -> str:
        return "tool_call" if self.agent_call_id is None else "agent_tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallWaiting(FieldPayload):
    """A call waits until others have ended: its session has its share of the tools' processes."""

    type: ClassVar[str] = "tool_call_waiting"
    tool_name: str
    tool_call_id: str
    agent_name: str | None = None
    agent_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(FieldPayload):
    """A running call says how far it is; some are left out where it says so often."""

    type: ClassVar[str] = "tool_progress"
    tool_call_id: str
    progress: float
    total: float | None
    """What ``progress`` will be at the end; null if that is not known."""
    message: str | None
    agent_name: str | None = None
    agent_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRequired(FieldPayload):
    """A person must decide about a call before it runs; it waits, and can be decided already."""

    type: ClassVar[str] = "tool_call_confirmation_required"
    tool_name: str
    arguments: JSONObject
    """Arguments that will run: coerced, with the defaults of what the model left out."""
    call_index: int
    tool_call_id: str
    confirmation_id: str
    queue_position: int
    queue_total: int
    timeout_seconds: float
    """0: it waits without limit."""
    agent_name: str | None = None
    agent_call_id: str | None = None
    shown: str = ""
    """The arguments as text for a person, in which nothing is hidden."""
    notice: str = ""
    """Why a person is asked whatever policies and rules allow; nothing is hidden in it."""
    suggestions: Sequence[JSONObject] = ()
    """What an approval may be remembered as, the narrowest first: ``patterns`` and ``allows``."""
    session_kept: bool = True
    """Whether the session is kept, so that an approval can be remembered for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputRequired(FieldPayload):
    """A tool that runs asks a person, and waits for the answer."""

    type: ClassVar[str] = "tool_input_required"
    tool_name: str
    elicitation: JSONObject
    """``{"message", "requested_schema"?, "url"?}``."""
    call_index: int
    tool_call_id: str
    confirmation_id: str
    timeout_seconds: float
    """0: it waits without limit."""
    agent_name: str | None = None
    agent_call_id: str | None = None
    shown: str = ""
    """The elicitation as text for a person, in which nothing is hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputReceived(FieldPayload):
    """A tool that asked has its answer."""

    type: ClassVar[str] = "tool_input_received"
    confirmation_id: str
    tool_name: str
    call_index: int
    tool_call_id: str
    approved: bool
    """Whether the person has answered, and not declined."""
    content: JSONObject | None
    reason: str | None
    """Why there is no answer."""
    code: str | None = None
    """``TOOL_CONFIRMATION_TIMEOUT`` when nobody answered."""
    agent_name: str | None = None
    agent_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSampling(FieldPayload):
    """A tool that runs has used the model of the conversation."""

    type: ClassVar[str] = "tool_sampling"
    tool_name: str
    tool_call_id: str
    model: str
    prompt_eval_count: int | None
    eval_count: int | None
    agent_name: str | None = None
    agent_call_id: str | None = None


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
    """Arguments that will run: those of the confirmation, or the person's."""
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

    agent_name: str | None = None
    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    call_index: int
    tool_call_id: str
    agent_call_id: str | None = None
    code: str | None = None
    """An error code where the failure has a name."""
    attachments: Sequence[JSONObject] = ()
    """Files that the tool returned, as in its message."""

    @property
    def type(self) -> str:
        return "tool_result" if self.agent_call_id is None else "agent_tool_result"


@dataclass(frozen=True, slots=True)
class ToolContinuationStart:
    """The results go back to the model; its next reply follows."""

    type: ClassVar[str] = "tool_continuation_start"
    message: ClassVar[str] = "Processing tool results..."

    def payload(self) -> JSONObject:
        return {"message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRetry(FieldPayload):
    """The reply does not have the response format; another one follows in its place."""

    type: ClassVar[str] = "reply_retry"
    problem: str
    """Why it has not."""


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
    """``current_window``, ``usage_tokens``, ``reason``, ``dropped_messages``,
    ``summarised_messages``, ``shortened_results``."""
    finish_reason: str | None
    """Why generation ended: ``stop``, ``length``, …"""
    stop_sequence: str | None = None
    """Which text of the option ``stop`` has ended it, if the provider says so."""
    tool_rounds_exhausted: bool = False
    """Whether the limit of tool rounds forced this answer."""
    ignored_options: Sequence[str] = ()
    """Names of the options that the model's provider does not know, or not for this model."""
    client_calls: Sequence[JSONObject] = ()
    """Calls of the client's own functions, ``{"id", "name", "arguments"}`` each: it runs them and
    sends their results with its next request."""
    timestamp: str | None
    """When the message was complete, as in the session; null if an old writer has not said it."""
    message: JSONObject = field(default_factory=dict)
    """The message as it is stored; for replies in one piece, not part of the payload."""

    @property
    def dropped_messages(self) -> int:
        """Number of messages that the model was not sent."""
        dropped = self.context_window.get("dropped_messages")
        return dropped if isinstance(dropped, int) else 0

    def payload(self) -> JSONObject:
        data = fields_of(self)
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
        """Make the event of an error, with what its JSON body says and further details."""
        return cls(code=error.code, message=error.message, details={**error.details, **details})

    def error(self) -> MochiError:
        """Return the error that this event tells of, also one of another process."""
        return error_of(self.code, self.message, self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(FieldPayload):
    """The turn is over; exactly one, always last."""

    type: ClassVar[str] = "done"
    session_id: str


Event: TypeAlias = (
    RunStart
    | HistoryCompacted
    | HistoryShortened
    | ContentDelta
    | ThinkingDelta
    | ToolCallStarted
    | ToolCallWaiting
    | ToolProgress
    | ConfirmationRequired
    | ToolInputRequired
    | ToolInputReceived
    | ToolSampling
    | ConfirmationDecided
    | ToolResultReady
    | ToolContinuationStart
    | AgentStart
    | AgentPlanning
    | AgentExecution
    | AgentComplete
    | ReplyRetry
    | MessageComplete
    | ErrorEvent
    | Done
)

CLASSES: Final[dict[str, Any]] = {
    **{
        cls.type: cls
        for cls in get_args(Event)
        if isinstance(cls.type, str)  # not a property
    },
    "tool_call": ToolCallStarted,
    "agent_tool_call": ToolCallStarted,
    "tool_result": ToolResultReady,
    "agent_tool_result": ToolResultReady,
}
"""The classes of events, by their names."""


def event_of(name: str, data: JSONObject) -> Event | None:
    """Make an event of its payload; None where only a newer version knows it."""
    cls = CLASSES.get(name)
    if cls is None:
        return None
    try:
        event: Event = cls(
            **{each.name: data[each.name] for each in fields(cls) if each.name in data}
        )
    except TypeError:  # a field is missing
        return None
    return event
