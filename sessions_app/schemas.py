"""Bodies of requests to ``/sessions``; ``answers`` has what comes back."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from ninja import Query
from pydantic import (
    AfterValidator,
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

from mochi_project.schemas import PromptArguments
from mochi_server.constants import SYSTEM_PROMPT_CHARACTERS
from mochi_server.errors import JSONObject
from mochi_server.protocol.options import NO_OPTIONS, ModelOptions
from mochi_server.sessions.attachments import MAX_ATTACHMENTS
from mochi_server.sessions.exports.exporter import ExportFormat
from mochi_server.sessions.types import (
    MAX_CONFIRMATION_SECONDS,
    MAX_TAGS,
    TAG_CHARACTERS,
    TITLE_CHARACTERS,
    AgentSettings,
    TextCallMode,
    ToolExecutionPolicy,
    ToolMode,
    ToolSettings,
)

MAX_NAMES = 1_000

ARCHIVED = {"true": True, "false": False, "all": None}
"""The ``archived`` of a filter, by the value in the query."""

Archived = Annotated[Literal["true", "false", "all"], Query(example="all")]

ModelName = Annotated[str, Field(min_length=1, max_length=512, description="As in `/models`.")]
Name = Annotated[str, Field(max_length=512)]
Names = Annotated[list[Name], Field(max_length=MAX_NAMES)]
"""Names of tools or agents."""

SystemPrompt = Annotated[
    str,
    Field(
        pattern=r"\S",
        max_length=SYSTEM_PROMPT_CHARACTERS - 1,
        description=f"Not only white space, shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters.",
    ),
]
SourceFile = Annotated[
    str | None,
    Field(
        description="Where the text came from; alone, this file is loaded, or this prompt of an "
        "MCP server (`{server}__{prompt}`)."
    ),
]

TOOLS_EXAMPLE: JSONObject = {
    "tools": ["add_numbers", "get_current_time"],
    "tool_group": None,
    "execution_policy": "always_confirm",
}
AGENTS_EXAMPLE: JSONObject = {"enabled_agents": ["coder"]}

_NULL: JSONObject = {"type": "null"}
_NO_OTHER_KEYS: JSONObject = {"additionalProperties": False}
_POLICY: JSONObject = {"type": "string", "enum": [policy.value for policy in ToolExecutionPolicy]}
_POLICIES: JSONObject = {
    "anyOf": [{"type": "object", "additionalProperties": _POLICY}, {"type": "null"}]
}
"""The shape of policies of single tools; a session may have others from another program."""


# Bodies


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _once(tags: list[str] | None) -> list[str]:
    return list(dict.fromkeys(tags or []))


Title = Annotated[
    str,
    Field(pattern=r"\S", max_length=TITLE_CHARACTERS, description="Not only white space."),
    AfterValidator(_one_line),
]
Tag = Annotated[str, Field(pattern=r"\S", max_length=TAG_CHARACTERS), AfterValidator(_one_line)]
Tags = Annotated[list[Tag] | None, Field(max_length=MAX_TAGS), AfterValidator(_once)]


class LabelsBody(BaseModel):
    """The labels in a request; what is absent stays."""

    title: Title | None = Field(
        default=None, description="Null: the beginning of the summary is the title again."
    )
    tags: Tags = Field(default=None, description="All of them; null or an empty list: none.")
    pinned: StrictBool = Field(default=False, description="To be kept in sight; never pruned.")
    archived: StrictBool = Field(default=False, description="Put away.")

    def labels(self) -> dict[str, Any]:
        """Return the labels that the request names."""
        return self.model_dump(include=set(LabelsBody.model_fields), exclude_unset=True)


class ToolSettingsBody(ToolSettings):
    """Tools of a session; a misspelt key is refused."""

    # By changes.py, which lets pass what the session has already.
    model_config = ConfigDict(json_schema_extra={"example": TOOLS_EXAMPLE, **_NO_OTHER_KEYS})

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
    confirmation_timeout: float | None = Field(
        default=None,
        strict=True,
        ge=0,
        le=MAX_CONFIRMATION_SECONDS,
        description="Seconds in which a person can decide about a call; 0: no limit. Absent: as "
        "`MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS` says.",
    )
    text_calls: TextCallMode | None = Field(
        default=None,
        description="What becomes of calls that the model writes as text. Absent: as "
        "`MOCHI_TEXT_CALLS` says.",
    )
    tool_mode: ToolMode | None = Field(
        default=None,
        description="How the model gets its tools: `native`, as its provider has them (the "
        "default), or `prompted`, described in the system prompt.",
    )


class AgentSettingsBody(AgentSettings):
    """Agents of a session; a misspelt key is refused."""

    model_config = ConfigDict(json_schema_extra={"example": AGENTS_EXAMPLE, **_NO_OTHER_KEYS})

    enabled_agents: Names = Field(default_factory=list)


CompactionBody = Annotated[
    StrictBool | None,
    Field(
        description="Whether requests have a summary in the place of old messages that do not fit. "
        "Absent or null: as the preset, or `MOCHI_COMPACTION`, says."
    ),
]


class SessionCreate(LabelsBody):
    """A new session."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "model": "qwen3:14b",
                "system_prompt": "You are a helpful assistant.",
                "tool_settings": TOOLS_EXAMPLE,
                "agent_settings": AGENTS_EXAMPLE,
            }
        },
    )

    model: ModelName
    system_prompt: SystemPrompt | None = None
    system_prompt_source_file: SourceFile = None
    system_prompt_arguments: PromptArguments | None = None
    tool_settings: ToolSettingsBody | None = None
    agent_settings: AgentSettingsBody | None = None
    options: ModelOptions = NO_OPTIONS
    compaction: CompactionBody = None


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

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "model": "qwen3:8b",
                "tool_settings": TOOLS_EXAMPLE,
                "title": "Learning asyncio",
            }
        },
    )

    model: ModelName = ""
    tool_settings: ToolSettingsBody | None = None
    agent_settings: AgentSettingsBody | None = None
    options: ModelOptions | None = Field(
        default=None, description="All that are to be set; null or an empty object: none."
    )
    context_window: ContextWindowPatch | None = None
    compaction: CompactionBody = None
    summary_model: ModelName | None = Field(
        default=None, description="Writes summaries where the session's model cannot."
    )


Turns = Annotated[
    int | None,
    Query(
        ge=1,
        le=100_000,
        description="Only the system message and the last so many turns: each is a message of the "
        "user and what follows it. `message_count` counts all messages.",
        example=20,
    ),
]


def _whole_number(value: object) -> object:
    """Refuse what else pydantic reads as one: ``1.0``, ``1_0``, ``+1``."""
    if isinstance(value, str) and re.fullmatch("-?[0-9]+", value) is None:
        raise ValueError("must be a whole number")
    return value


MessageIndex = Annotated[int, BeforeValidator(_whole_number), Field(examples=[0])]


class MessageEdit(BaseModel):
    """The new text of a user message."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"content": "Updated message content"}}
    )

    content: str = Field(pattern=r"\S", description="Not only white space.")
    attachments: list[str] | None = Field(
        default=None,
        max_length=MAX_ATTACHMENTS,
        description="The ids of its attachments that it keeps. Absent or null: all.",
    )


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
    source_file: SourceFile = None
    arguments: PromptArguments | None = None

    @model_validator(mode="after")
    def _says_something(self) -> SystemPromptSet:
        if self.content is None and self.source_file is None:
            raise ValueError("content or source_file is needed")
        return self


class ForkRequest(BaseModel):
    """Up to which message."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"message_id": "f1e2d3c4b5"}}
    )

    message_id: str | None = Field(
        default=None,
        max_length=512,
        description="The last message of the fork. Absent or null: the session's last.",
    )


class ExportRequest(BaseModel):
    """Which sessions become an archive."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"session_ids": ["0123456789"]}}
    )

    session_ids: list[str] = Field(
        default=[], max_length=100_000, description="Without any, all that the caller sees."
    )
    to: ExportFormat = Field(
        default=ExportFormat.ZIP,
        alias="format",
        description="Of each; `zip`: session files, beside them the attachments of all.",
    )


class SummaryRequest(BaseModel):
    """Who is to write the summary."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"model": "qwen3:14b"}})

    model: ModelName | None = None
