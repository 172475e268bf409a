"""What a session file's ``metadata`` holds (docs/reference/session-file.md)."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ToolExecutionPolicy(str, Enum):
    """When a person is asked before a tool runs."""

    ALWAYS_CONFIRM = "always_confirm"
    NEVER_CONFIRM = "never_confirm"
    CONFIRM_DESTRUCTIVE = "confirm_destructive"


class ToolSettings(BaseModel):
    """Which tools a session offers to its model."""

    model_config = ConfigDict(extra="allow")

    tools: list[str] = Field(default_factory=list)
    tool_group: str | None = None
    execution_policy: ToolExecutionPolicy = ToolExecutionPolicy.ALWAYS_CONFIRM


class AgentSettings(BaseModel):
    """Which agents a session may call."""

    model_config = ConfigDict(extra="allow")

    enabled_agents: list[str] = Field(default_factory=list)
    selection_metadata: dict[str, Any] | None = None


class ConversationSummary(BaseModel):
    """What a conversation was about."""

    model_config = ConfigDict(extra="allow")

    summary: str
    """Two to five sentences."""
    topics: list[str] = Field(default_factory=list)


class ContextWindowConfig(BaseModel):
    """The context window of a session, and how it came about."""

    model_config = ConfigDict(extra="allow")

    dynamic_enabled: bool = True
    current_window: int | None = None
    """Tokens; null before the first turn."""
    last_adjustment: str | None = None
    """``initial_setup``, ``usage_threshold``, ``model_change``, ``no_adjustment``, …"""
    adjustment_history: list[dict[str, Any]] = Field(default_factory=list)
    """The last ten changes: ``{"timestamp", "window_size", "reason"}``; old writers differ."""
    manual_override: bool = False


class SessionMetadata(BaseModel):
    """The head of a session file, keys in the file's order; unknown ones are kept behind them."""

    model_config = ConfigDict(extra="allow")

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int = 0
    summary: ConversationSummary | None = None
    summary_model: str | None = None
    format_version: str = "1.3"
    tool_settings: ToolSettings | None = None
    agent_settings: AgentSettings | None = None
    context_window_config: ContextWindowConfig | None = None
