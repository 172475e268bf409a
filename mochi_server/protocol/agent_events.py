"""What an agent does within a turn, as events beside those of the turn itself.

Each names the agent and, as several may work side by side, the call that started it. Names and
fields are those of docs/reference/events.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ..errors import JSONObject
from .payload import FieldPayload


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
