"""What the chat knows about agents: one tool that calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..sessions.types import AgentSettings
from ..tools.base import Tool


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """What a session's agent settings come to."""

    tool: Tool | None = None
    """The one tool that calls agents; null when none is enabled and valid."""
    enabled: Sequence[str] = ()
    unknown: Sequence[str] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Why an enabled agent cannot be used, by name."""


class Agents(Protocol):
    """Where the ``agent`` tool comes from; the chat knows no more about agents."""

    async def offer(self, settings: AgentSettings | None) -> AgentOffer:
        """What the settings enable."""

    async def tool_of(self, source: str, name: str) -> Tool | None:
        """A tool of an agent, by its ``Tool.source``."""
