"""What is known about an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from ..tools.base import Problem, Tool

AGENT_TOOL = "agent"
"""The name of the tool that calls agents."""

SOURCE = "agent:"
"""Before the name of an agent: the ``Tool.source`` of its own tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent as its folder has it now, usable or not."""

    name: str
    """The folder's name."""
    path: Path
    """The folder."""
    description: str = ""
    """In one line; empty where ``SKILL.md`` cannot be read."""
    system_prompt: str = ""
    model: str | None = None
    """Null: that of the conversation which calls it."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Its own tools by name. Whoever holds them keeps them as they are, also over a reload."""
    agents: Sequence[str] = ()
    """Names of agents that it may call."""
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    allowed_tools: Sequence[str] | None = None
    """As ``SKILL.md`` has them; null where it does not say."""
    error_message: str | None = None
    """Why it cannot be used: ``coder/SKILL.md:3: …``."""
    problems: Sequence[Problem] = ()
    """All that is wrong, also what leaves it usable."""

    @property
    def valid(self) -> bool:
        """Whether it can be used."""
        return self.error_message is None
