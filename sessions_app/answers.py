"""Answers of ``/sessions``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from mochi_project.schemas import (
    EncodedAs,
    Messages,
    NextCursor,
    ResponseModel,
    SessionId,
    SessionKeys,
    SessionModel,
    SessionProblem,
)
from mochi_server.protocol.options import NO_OPTIONS, ModelOptions
from mochi_server.sessions.types import (
    AgentSettings,
    ContextWindowConfig,
    ConversationSummary,
    ToolMode,
    ToolSettings,
)

from .schemas import AGENTS_EXAMPLE, TOOLS_EXAMPLE


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
    AgentSettings | None, Field(examples=[{**AGENTS_EXAMPLE, "selection_metadata": None}])
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
    compaction: bool = Field(
        default=True,
        description="Whether its history is compacted; only where it was set.",
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
    tool_tokens: int = Field(description="Tokens of all tools, estimated.", examples=[212])
    tools_are_searched: bool = Field(
        description="Whether they are too many to be offered at once.", examples=[False]
    )
    execution_policy: str = Field(description="The one in force.", examples=["always_confirm"])
    tool_mode: ToolMode = Field(description="How the model gets its tools.", examples=["native"])
    agents_enabled: bool = Field(description="Whether any agent can be called.", examples=[True])
    enabled_agents: list[str] = Field(examples=[["coder"]])
    unknown_agents: list[str] = Field(examples=[[]])
    invalid_agents: dict[str, str] = Field(
        description="Why an enabled agent cannot be used.", examples=[{}]
    )
    system_prompt_file: StoredText = Field(examples=["using_agents.md"])
    summary: Summary
    summary_model: str | None = Field(examples=["qwen3:14b"])
