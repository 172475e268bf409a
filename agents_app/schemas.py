"""Answers of ``/agents``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mochi_project.schemas import Messages, SessionProblem
from mochi_server.errors import JSONObject
from mochi_server.sessions.types import ConversationSummary

LINE: JSONObject = {
    "name": "coder",
    "description": "A coding agent with file system operations.",
    "model": None,
    "valid": True,
    "tool_count": 2,
    "tools": ["read_file", "write_file"],
    "error_message": None,
}
PROBLEM: JSONObject = {
    "file": "/home/me/data/agents/writer/SKILL.md",
    "line": 2,
    "reason": "description is missing",
    "tool": None,
    "severity": "warning",
}
LIST: JSONObject = {"agents": {"coder": LINE}, "problems": [PROBLEM]}
TOOL: JSONObject = {
    "name": "read_file",
    "description": "Read a text file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The file."}},
        "required": ["path"],
    },
    "destructive": False,
    "sequential": False,
    "timeout": 60.0,
}
DETAIL: JSONObject = {
    **LINE,
    "tool_count": 1,
    "tools": ["read_file"],
    "system_prompt": "You write code. …",
    "agents": ["researcher"],
    "license": "MIT",
    "compatibility": None,
    "metadata": {"author": "me"},
    "allowed_tools": None,
    "path": "/home/me/data/agents/coder",
    "tool_details": {"read_file": TOOL},
    "problems": [],
}
CHAT_LINE: JSONObject = {
    "session_id": "b80fa657b0",
    "model": "qwen3:14b",
    "created_at": "2025-01-15T10:30:00.000000Z",
    "updated_at": "2025-01-15T10:35:00.000000Z",
    "message_count": 4,
    "summary": None,
    "preview": "Write a function that sorts a list.",
}
CHATS: JSONObject = {"sessions": [CHAT_LINE], "problems": [], "next_cursor": None}
CHAT: JSONObject = {
    "session_id": "b80fa657b0",
    "model": "qwen3:14b",
    "created_at": "2025-01-15T10:30:00.000000Z",
    "updated_at": "2025-01-15T10:35:00.000000Z",
    "message_count": 3,
    "agent_name": "coder",
    "messages": [
        {
            "role": "system",
            "content": "You write code. …",
            "message_id": "0a1b2c3d4e",
            "timestamp": "2025-01-15T10:30:00.000000Z",
        },
        {
            "role": "user",
            "content": "Write a function that sorts a list.",
            "message_id": "1b2c3d4e5f",
            "timestamp": "2025-01-15T10:30:00.000000Z",
        },
        {
            "role": "assistant",
            "content": "1. Look at the files. …",
            "model": "qwen3:14b",
            "message_id": "f1e2d3c4b5",
            "timestamp": "2025-01-15T10:35:00.000000Z",
        },
    ],
}


class AgentLine(BaseModel):
    """An agent in the list."""

    model_config = ConfigDict(json_schema_extra={"example": LINE})

    name: str
    description: str = Field(description="Empty where `SKILL.md` cannot be read.")
    model: str | None = Field(description="Null: that of the conversation.")
    valid: bool
    tool_count: int
    tools: list[str]
    error_message: str | None = Field(description="Why it cannot be used.")


class AgentProblem(BaseModel):
    """What is wrong with an agent."""

    model_config = ConfigDict(json_schema_extra={"example": PROBLEM})

    file: str = Field(description="Where it is; absolute.")
    line: int | None = Field(description="From 1; null when the whole file is meant.")
    reason: str
    tool: str | None = Field(description="The tool that is missing for this reason.")
    severity: Literal["warning", "hint"] = Field(description="`hint`: nothing is wrong.")


class AgentList(BaseModel):
    """Every agent, and all that is wrong."""

    model_config = ConfigDict(json_schema_extra={"example": LIST})

    agents: dict[str, AgentLine]
    problems: list[AgentProblem]


class AgentToolDetail(BaseModel):
    """A tool of an agent."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema, as the model gets it.")
    destructive: bool | None = Field(description="Null: nobody says, which counts as destructive.")
    sequential: bool
    timeout: float | None = Field(description="Seconds; null for no limit.")


class AgentDetail(AgentLine):
    """Everything about one agent."""

    model_config = ConfigDict(json_schema_extra={"example": DETAIL})

    system_prompt: str
    agents: list[str] = Field(description="Agents that it may call.")
    license: str | None
    compatibility: str | None
    metadata: dict[str, Any]
    allowed_tools: list[str] | None = Field(description="As the file has them; null: not there.")
    path: str = Field(description="Its folder.")
    tool_details: dict[str, AgentToolDetail]
    problems: list[AgentProblem] = Field(description="What is wrong, and leaves it usable.")


class AgentChatLine(BaseModel):
    """One conversation of an agent in the list."""

    model_config = ConfigDict(json_schema_extra={"example": CHAT_LINE})

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int
    summary: ConversationSummary | None
    preview: str = Field(description="First instruction, cut to 100 characters and '...'.")


class AgentChatList(BaseModel):
    """Conversations of agents, the one changed last first."""

    model_config = ConfigDict(json_schema_extra={"example": CHATS})

    sessions: list[AgentChatLine]
    problems: list[SessionProblem] = Field(description="Files that cannot be read, and why.")
    next_cursor: str | None = Field(
        default=None,
        description="With `limit`: the `cursor` of the next page, null on the last. "
        "Absent without.",
    )


class AgentChat(BaseModel):
    """A conversation of an agent: every key of the file's metadata, and ``messages``."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": CHAT})

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int
    messages: Messages
