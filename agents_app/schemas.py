"""Answers of ``/agents``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ninja import Schema
from pydantic import ConfigDict, Field

from mochi_project.schemas import (
    EncodedAs,
    FolderProblem,
    Messages,
    NextCursor,
    ResponseModel,
    SessionKeys,
    SessionProblem,
    ToolRules,
)
from mochi_server.agents import AgentDefinition
from mochi_server.sessions.types import ConversationSummary
from mochi_server.tools.base import Tool

AgentName = Annotated[str, Field(examples=["coder"])]


class AgentLine(Schema):
    """An agent in the list."""

    name: AgentName
    description: str = Field(
        description="Empty where `SKILL.md` cannot be read.",
        examples=["A coding agent with file system operations."],
    )
    model: str | None = Field(description="Null: that of the conversation.", examples=[None])
    valid: bool = Field(examples=[True])
    tool_count: int = Field(examples=[1])
    tools: list[str] = Field(examples=[["add_numbers"]])
    error_message: str | None = Field(description="Why it cannot be used.", examples=[None])

    @staticmethod
    def resolve_tool_count(agent: AgentDefinition) -> int:
        return len(agent.tools)

    @staticmethod
    def resolve_tools(agent: AgentDefinition) -> list[str]:
        return list(agent.tools)


class AgentList(ResponseModel):
    """Every agent, and all that is wrong."""

    agents: dict[str, AgentLine]
    problems: list[FolderProblem]


class AgentDetail(AgentLine):
    """Everything about one agent."""

    system_prompt: str = Field(examples=["You write code. …"])
    agents: list[str] = Field(description="Agents that it may call.", examples=[["researcher"]])
    license: str | None = Field(examples=["MIT"])
    compatibility: str | None = Field(examples=[None])
    metadata: dict[str, Any] = Field(examples=[{"author": "me"}])
    allowed_tools: list[str] | None = Field(
        description="As the file has them; null: not there.", examples=[None]
    )
    path: str = Field(description="Its folder.", examples=["/home/me/data/agents/coder"])
    tool_details: dict[str, ToolRules]
    problems: list[FolderProblem] = Field(
        description="What is wrong, and leaves it usable.", examples=[[]]
    )

    @staticmethod
    def resolve_path(agent: AgentDefinition) -> str:
        return str(agent.path)

    @staticmethod
    def resolve_tool_details(agent: AgentDefinition) -> Mapping[str, Tool]:
        return agent.tools


class AgentChatLine(SessionKeys):
    """One conversation of an agent in the list."""

    summary: ConversationSummary | None = Field(examples=[None])
    preview: str = Field(
        description="First instruction; a longer one is cut to 100 characters, with its '...'.",
        examples=["Write a function that sorts a list."],
    )


class AgentChatList(ResponseModel):
    """Conversations of agents, the one changed last first."""

    sessions: list[AgentChatLine]
    problems: list[SessionProblem] = Field(
        description="Files that cannot be read, and why.", examples=[[]]
    )
    next_cursor: NextCursor = Field(
        default=None,
        description="With `limit`: the `cursor` of the next page, null on the last. "
        "Absent without.",
    )


EncodedAgentChatList = Annotated[bytes, EncodedAs(AgentChatList)]


class AgentChat(SessionKeys):
    """A conversation of an agent: every key of the file's metadata, and ``messages``."""

    model_config = ConfigDict(extra="allow")

    messages: Messages
