"""Bodies and answers of ``/sessions``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

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

from mochi_project.schemas import (
    EncodedAs,
    Messages,
    NextCursor,
    PromptArguments,
    ResponseModel,
    SessionId,
    SessionKeys,
    SessionModel,
    SessionProblem,
)
from mochi_server.constants import SYSTEM_PROMPT_CHARACTERS
from mochi_server.errors import JSONObject
from mochi_server.protocol.options import NO_OPTIONS, ModelOptions
from mochi_server.sessions.attachments import MAX_ATTACHMENTS
from mochi_server.sessions.types import (
    MAX_CONFIRMATION_SECONDS,
    AgentSettings,
    ContextWindowConfig,
    ConversationSummary,
    ToolExecutionPolicy,
    ToolSettings,
)

TITLE_LENGTH, TAG_LENGTH, MAX_TAGS = 200, 50, 50
MAX_NAMES = 1_000

ARCHIVED = {"true": True, "false": False, "all": None}
"""The ``archived`` of a filter, by the value in the query."""

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
_AGENTS_EXAMPLE: JSONObject = {"enabled_agents": ["coder"]}

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
    Field(pattern=r"\S", max_length=TITLE_LENGTH, description="Not only white space."),
    AfterValidator(_one_line),
]
Tag = Annotated[str, Field(pattern=r"\S", max_length=TAG_LENGTH), AfterValidator(_one_line)]
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


class AgentSettingsBody(AgentSettings):
    """Agents of a session; a misspelt key is refused."""

    model_config = ConfigDict(json_schema_extra={"example": _AGENTS_EXAMPLE, **_NO_OTHER_KEYS})

    enabled_agents: Names = Field(default_factory=list)


class SessionCreate(LabelsBody):
    """A new session."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "model": "qwen3:14b",
                "system_prompt": "You are a helpful assistant.",
                "tool_settings": TOOLS_EXAMPLE,
                "agent_settings": _AGENTS_EXAMPLE,
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
    summary_model: ModelName | None = Field(
        default=None, description="Writes summaries where the session's model cannot."
    )


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


class SummaryRequest(BaseModel):
    """Who is to write the summary."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"model": "qwen3:14b"}})

    model: ModelName | None = None


# Answers


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


StoredText = Annotated[str | None, BeforeValidator(_text_or_none)]
"""A text of a session file; null where another program has written something else."""

Summary = Annotated[
    ConversationSummary | None,
    Field(
        examples=[
            {
                "summary": "The user asked about asyncio.",
                "topics": ["python", "asyncio"],
                "through_message_id": "f1e2d3c4b5",
                "covers": "9b1c0f3a5d7e2486",
                "model": "qwen3:14b",
            }
        ]
    ),
]
StoredTools = Annotated[ToolSettings | None, Field(examples=[TOOLS_EXAMPLE])]
StoredAgents = Annotated[
    AgentSettings | None, Field(examples=[{**_AGENTS_EXAMPLE, "selection_metadata": None}])
]


class LabelsShown(ResponseModel):
    """The labels in an answer."""

    title: str | None = Field(
        description="As it was set, else the first sentence of the summary; null without either.",
        examples=["Learning asyncio"],
    )
    tags: list[str] = Field(examples=[["python"]])
    pinned: bool
    archived: bool


class SessionSettings(SessionKeys):
    """A session with its tools and agents."""

    tool_settings: StoredTools
    agent_settings: StoredAgents


class SessionHead(LabelsShown, SessionSettings):
    """A session without its messages."""

    options: ModelOptions = Field(
        default=NO_OPTIONS, description="Options of the model; only where some are set."
    )
    warnings: list[str] = Field(
        default=[],
        description="Names in `tool_settings` that nothing has; only where there are such names.",
    )


class SessionFileKeys(SessionKeys):
    """The keys of a session file, in their order."""

    summary: Summary
    summary_model: str | None = Field(examples=[None])
    format_version: str = Field(examples=["1.3"])
    tool_settings: StoredTools
    agent_settings: StoredAgents
    context_window_config: ContextWindowConfig | None = Field(
        examples=[
            {
                "dynamic_enabled": True,
                "current_window": 8192,
                "last_adjustment": "initial_setup",
                "adjustment_history": [],
                "manual_override": False,
            }
        ]
    )


class SessionDetail(LabelsShown, SessionFileKeys):
    """A session with its messages: every key of the file's metadata, labels, ``messages``."""

    model_config = ConfigDict(extra="allow")

    messages: Messages


class MessageList(ResponseModel):
    """The messages of a session."""

    session_id: SessionId
    message_count: int = Field(examples=[2])
    messages: Messages


class PassagePart(ResponseModel):
    """A stretch of a passage."""

    text: str
    match: bool


class ListedKeys(SessionKeys):
    """What a list shows of the content of a session."""

    summary: Summary
    preview: str = Field(
        description="First user message; a longer one is cut to 100 characters, with its '...'.",
        examples=["How do I use asyncio in Python?"],
    )


class SessionLine(LabelsShown, ListedKeys):
    """One session in the list."""

    score: float = Field(
        default=0.0, description="Only with `query`; larger is better.", examples=[7.2031]
    )
    found_in: Literal["title", "tags", "summary", "user", "assistant", "tool"] | None = Field(
        default=None,
        description="Only with `query`: where the snippet is from.",
        examples=["user"],
    )
    snippet: list[PassagePart] = Field(
        default=[],
        description="Only with `query`: a passage, in stretches; one line of text.",
        examples=[
            [
                {"text": "How do I use ", "match": False},
                {"text": "asyncio", "match": True},
                {"text": " in Python?", "match": False},
            ]
        ],
    )


class IndexingState(ResponseModel):
    """How many sessions of all are indexed."""

    done: int
    total: int


class SessionList(ResponseModel):
    """Sessions, the one changed last first, or with `query` the best first."""

    sessions: list[SessionLine]
    problems: list[SessionProblem] = Field(
        description="Files that cannot be read, and why.", examples=[[]]
    )
    next_cursor: NextCursor = Field(
        default=None,
        description="With `limit` or `query`: the `cursor` of the next page, null on the last. "
        "Absent without.",
    )
    indexing: IndexingState | None = Field(
        default=None,
        description="Only with `query`: set when the index was not complete yet, else null.",
        examples=[None],
    )


EncodedSessionList = Annotated[bytes, EncodedAs(SessionList)]


class WindowStatus(ResponseModel):
    """The context window of a session."""

    dynamic_enabled: bool = Field(examples=[True])
    current_window: int | None = Field(
        description="Tokens; null before the first turn.", examples=[8192]
    )
    model_max_context: int | None = Field(
        description="Null when the provider does not say it now.", examples=[40960]
    )
    last_adjustment_reason: str | None = Field(examples=["usage_threshold"])
    manual_override: bool


class SessionStatus(ResponseModel):
    """What a session's next turn would work with."""

    session_id: SessionId
    model: SessionModel
    provider_model: str | None = Field(
        description="What `model` stands for; null of a preset or an agent that cannot be used.",
        examples=["qwen3:14b"],
    )
    message_count: int = Field(examples=[12])
    turn_running: bool = Field(description="In the process that answers.")
    context_window: WindowStatus
    tools_enabled: bool = Field(description="Whether any tool is active.", examples=[True])
    active_tools: list[str] = Field(examples=[["add_numbers", "get_current_time"]])
    unknown_tools: list[str] = Field(description="Enabled names that nothing has.", examples=[[]])
    unknown_tool_group: str | None = Field(
        description="The enabled group, if nothing has it.", examples=[None]
    )
    missing_tools: dict[str, str] = Field(
        description="Why an enabled tool cannot be used.", examples=[{}]
    )
    execution_policy: str = Field(description="The one in force.", examples=["always_confirm"])
    agents_enabled: bool = Field(description="Whether any agent can be called.", examples=[True])
    enabled_agents: list[str] = Field(examples=[["coder"]])
    unknown_agents: list[str] = Field(examples=[[]])
    invalid_agents: dict[str, str] = Field(
        description="Why an enabled agent cannot be used.", examples=[{}]
    )
    system_prompt_file: StoredText = Field(examples=["using_agents.md"])
    summary: Summary
    summary_model: str | None = Field(examples=["qwen3:14b"])


class SummaryWritten(ResponseModel):
    """A summary that was written just now."""

    summary: str = Field(examples=["The user asked about asyncio."])
    topics: list[str] = Field(examples=[["python", "asyncio"]])
    model_used: SessionModel


class SummaryShown(ResponseModel):
    """The summary that there is."""

    summary: str | None = Field(examples=["The user asked about asyncio."])
    topics: list[str] | None = Field(examples=[["python", "asyncio"]])
    model_used: StoredText = Field(examples=["qwen3:14b"])
