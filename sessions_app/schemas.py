"""Bodies and answers of ``/sessions``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from mochi_project.schemas import Messages
from mochi_server.constants import SYSTEM_PROMPT_CHARACTERS
from mochi_server.errors import JSONObject
from mochi_server.sessions.types import (
    AgentSettings,
    ContextWindowConfig,
    ConversationSummary,
    ToolExecutionPolicy,
    ToolSettings,
)

from .labels import NO_LABELS, LabelsBody, LabelsShown

ModelName = Annotated[str, Field(min_length=1, max_length=512, description="As in `/models`.")]
MOST_NAMES = 1_000
Name = Annotated[str, Field(max_length=512)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]
"""Of tools or agents."""

SystemPrompt = Annotated[
    str,
    Field(
        pattern=r"\S",
        max_length=SYSTEM_PROMPT_CHARACTERS - 1,
        description=f"Not only white space, shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters.",
    ),
]

TOOLS: JSONObject = {
    "tools": ["add_numbers", "get_current_time"],
    "tool_group": None,
    "execution_policy": "always_confirm",
}
AGENTS: JSONObject = {"enabled_agents": ["coder"]}
CREATE: JSONObject = {
    "model": "qwen3:14b",
    "system_prompt": "You are a helpful assistant.",
    "tool_settings": TOOLS,
    "agent_settings": AGENTS,
}
CREATED: JSONObject = {
    "session_id": "a1b2c3d4e5",
    "model": "qwen3:14b",
    "created_at": "2025-01-15T10:30:00.000000Z",
    "updated_at": "2025-01-15T10:30:00.000000Z",
    "message_count": 1,
    "tool_settings": TOOLS,
    "agent_settings": {"enabled_agents": ["coder"], "selection_metadata": None},
    **NO_LABELS,
}
PATCH: JSONObject = {"model": "qwen3:8b", "tool_settings": TOOLS, "title": "Learning asyncio"}
SUMMARY: JSONObject = {
    "summary": "The user asked about asyncio.",
    "topics": ["python", "asyncio"],
    "through_message_id": "f1e2d3c4b5",
    "covers": "9b1c0f3a5d7e2486",
    "model": "qwen3:14b",
}
MESSAGES: list[JsonValue] = [
    {
        "role": "user",
        "content": "Hello",
        "message_id": "0a1b2c3d4e",
        "timestamp": "2025-01-15T10:34:00.000000Z",
    },
    {
        "role": "assistant",
        "content": "Hi!",
        "model": "qwen3:14b",
        "message_id": "f1e2d3c4b5",
        "timestamp": "2025-01-15T10:35:00.000000Z",
        "eval_count": 12,
        "prompt_eval_count": 45,
    },
]
DETAIL: JSONObject = {
    **CREATED,
    "message_count": 2,
    "summary": None,
    "summary_model": None,
    "format_version": "1.3",
    "context_window_config": {
        "dynamic_enabled": True,
        "current_window": 8192,
        "last_adjustment": "initial_setup",
        "adjustment_history": [],
        "manual_override": False,
    },
    "messages": MESSAGES,
}


_NO_OTHER_KEYS: JSONObject = {"additionalProperties": False}
_POLICY: JSONObject = {"type": "string", "enum": [policy.value for policy in ToolExecutionPolicy]}
_POLICIES: JSONObject = {
    "anyOf": [{"type": "object", "additionalProperties": _POLICY}, {"type": "null"}]
}
"""The shape of policies of single tools; a session may have others from another program."""


class ToolSettingsBody(ToolSettings):
    """Tools of a session; a misspelt key is refused."""

    # By changes.py, which lets pass what the session has already.
    model_config = ConfigDict(json_schema_extra={"example": TOOLS, **_NO_OTHER_KEYS})

    tools: Names = Field(default_factory=list)
    execution_policy: Annotated[
        ToolExecutionPolicy | str,
        Field(union_mode="left_to_right"),
        WithJsonSchema(_POLICY),
    ] = Field(
        default=ToolExecutionPolicy.ALWAYS_CONFIRM, description="`always_confirm` by default."
    )
    tool_policies: Annotated[JsonValue, WithJsonSchema(_POLICIES)] = Field(
        default=None, description="Policies of single tools by name; the stricter one counts."
    )


class AgentSettingsBody(AgentSettings):
    """Agents of a session; a misspelt key is refused."""

    model_config = ConfigDict(json_schema_extra={"example": AGENTS, **_NO_OTHER_KEYS})

    enabled_agents: Names = Field(default_factory=list)


class SessionCreate(LabelsBody):
    """A new session."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": CREATE})

    model: ModelName
    system_prompt: SystemPrompt | None = None
    system_prompt_source_file: str | None = Field(
        default=None, description="Where the text came from; alone, this file is loaded."
    )
    tool_settings: ToolSettingsBody | None = None
    agent_settings: AgentSettingsBody | None = None


_NULL: JSONObject = {"type": "null"}


class ContextWindowPatch(BaseModel):
    """Fix the context window of a session, or give it back."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"manual_override": True, "current_window": 16384},
            "not": {
                "properties": {"manual_override": {"const": True}, "current_window": _NULL},
            },
        },
    )

    manual_override: StrictBool
    current_window: int | None = Field(
        default=None,
        ge=512,
        le=16_777_216,
        description="Tokens; needed for an override.",
    )

    @field_validator("current_window", mode="before")
    @classmethod
    def _is_no_text(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError("must be a number, not text")  # noqa: TRY004 - pydantic's way
        return value

    @model_validator(mode="after")
    def _is_complete(self) -> ContextWindowPatch:
        if self.manual_override and self.current_window is None:
            raise ValueError("current_window is needed when manual_override is true")
        return self


class SessionPatch(LabelsBody):
    """What to change; what is absent stays, a settings object is replaced as a whole."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": PATCH})

    model: ModelName = ""
    tool_settings: ToolSettingsBody | None = None
    agent_settings: AgentSettingsBody | None = None
    context_window: ContextWindowPatch | None = None
    summary_model: ModelName | None = Field(
        default=None, description="Writes summaries where the session's model cannot."
    )


def _whole_number(value: object) -> object:
    """Refuse what else pydantic reads as one: ``1.0``, ``1_0``, ``+1``."""
    if isinstance(value, str) and re.fullmatch("-?[0-9]+", value) is None:
        raise ValueError("must be a whole number")
    return value


MessageIndex = Annotated[int, BeforeValidator(_whole_number)]


class MessageEdit(BaseModel):
    """The new text of a user message."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"content": "Updated message content"}}
    )

    content: str = Field(pattern=r"\S", description="Not only white space.")


class SystemPromptSet(BaseModel):
    """The system prompt of a session: a text, a prompt file, or a text and where it is from."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"source_file": "helpful.md"},
            "not": {"properties": {"content": _NULL, "source_file": _NULL}},
        },
    )

    content: SystemPrompt | None = None
    source_file: str | None = Field(
        default=None, description="Where the text came from; alone, this file is loaded."
    )

    @model_validator(mode="after")
    def _says_something(self) -> SystemPromptSet:
        if self.content is None and self.source_file is None:
            raise ValueError("content or source_file is needed")
        return self


class SessionHead(LabelsShown):
    """A session without its messages."""

    model_config = ConfigDict(json_schema_extra={"example": CREATED})

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int
    tool_settings: ToolSettings | None
    agent_settings: AgentSettings | None
    warnings: list[str] = Field(
        default=[],
        description="Names in `tool_settings` that nothing has; only where there are such names.",
    )


class SessionDetail(SessionHead):
    """A session with its messages: every key of the file's metadata, labels, ``messages``."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": DETAIL})

    summary: ConversationSummary | None
    summary_model: str | None
    format_version: str
    context_window_config: ContextWindowConfig | None
    messages: Messages


class MessageList(BaseModel):
    """The messages of a session."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "session_id": "a1b2c3d4e5",
                "message_count": 2,
                "messages": MESSAGES,
            }
        }
    )

    session_id: str
    message_count: int
    messages: Messages
