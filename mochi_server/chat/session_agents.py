"""What the chat knows of agents: a tool that calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..sessions.types import AgentSettings
from ..tools.base import Tool


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """The agents that a session can use."""

    tool: Tool | None = None
    """Tool that calls agents; None when none is enabled and valid."""
    enabled: Sequence[str] = ()
    unknown: Sequence[str] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Why an enabled agent cannot be used, by name."""


class SessionAgents(Protocol):
    """The source of the ``agent`` tool: all that the chat knows about agents."""

    async def offer(self, settings: AgentSettings | None) -> AgentOffer:
        """Return what the settings of a session enable."""

    async def tool_of(self, source: str, name: str) -> Tool | None:
        """Find a tool of an agent by its ``Tool.source``."""
