"""What a session's next turn would work with: the answer of ``/status``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.errors import JSONObject
from mochi_server.sessions.types import ConversationSummary

from .schemas import SUMMARY

STATUS: JSONObject = {
    "session_id": "a1b2c3d4e5",
    "model": "qwen3:14b",
    "message_count": 12,
    "turn_running": False,
    "context_window": {
        "dynamic_enabled": True,
        "current_window": 8192,
        "model_max_context": 40960,
        "last_adjustment_reason": "usage_threshold",
        "manual_override": False,
    },
    "tools_enabled": True,
    "active_tools": ["add_numbers", "get_current_time"],
    "unknown_tools": [],
    "unknown_tool_group": None,
    "missing_tools": {},
    "execution_policy": "always_confirm",
    "agents_enabled": True,
    "enabled_agents": ["coder"],
    "unknown_agents": [],
    "invalid_agents": {},
    "system_prompt_file": "using_agents.md",
    "summary": SUMMARY,
    "summary_model": "qwen3:14b",
}


class WindowStatus(BaseModel):
    """The context window of a session."""

    dynamic_enabled: bool
    current_window: int | None = Field(description="Tokens; null before the first turn.")
    model_max_context: int | None = Field(description="Null when the provider does not say it now.")
    last_adjustment_reason: str | None
    manual_override: bool


class SessionStatus(BaseModel):
    """What a session's next turn would work with."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": STATUS})

    session_id: str
    model: str
    message_count: int
    turn_running: bool = Field(description="In the process that answers.")
    context_window: WindowStatus
    tools_enabled: bool = Field(description="Whether any tool is active.")
    active_tools: list[str]
    unknown_tools: list[str] = Field(description="Enabled names that nothing has.")
    unknown_tool_group: str | None = Field(description="The enabled group, if nothing has it.")
    missing_tools: dict[str, str] = Field(description="Why an enabled tool cannot be used.")
    execution_policy: str = Field(description="The one in force.")
    agents_enabled: bool = Field(description="Whether any agent can be called.")
    enabled_agents: list[str]
    unknown_agents: list[str]
    invalid_agents: dict[str, str] = Field(description="Why an enabled agent cannot be used.")
    system_prompt_file: str | None
    summary: ConversationSummary | None
    summary_model: str | None
