"""Answers of ``GET /sessions``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mochi_project.schemas import SessionProblem
from mochi_server.errors import JSONObject
from mochi_server.sessions.types import ConversationSummary

from .labels import LABELS, LabelsShown
from .schemas import SUMMARY

LINE: JSONObject = {
    "session_id": "a1b2c3d4e5",
    "model": "qwen3:14b",
    "created_at": "2025-01-15T10:30:00.000000Z",
    "updated_at": "2025-01-15T10:35:00.000000Z",
    "message_count": 6,
    "summary": SUMMARY,
    "preview": "How do I use asyncio in Python?",
    **LABELS,
}
LIST: JSONObject = {"sessions": [LINE], "problems": [], "next_cursor": None}
FOUND: JSONObject = {
    "sessions": [
        {
            **LINE,
            "score": 7.2031,
            "found_in": "user",
            "snippet": [
                {"text": "How do I use ", "match": False},
                {"text": "asyncio", "match": True},
                {"text": " in Python?", "match": False},
            ],
        }
    ],
    "problems": [],
    "next_cursor": None,
    "indexing": None,
}


class SnippetPart(BaseModel):
    """A stretch of a passage."""

    text: str
    match: bool


class SessionLine(LabelsShown):
    """One session in the list."""

    model_config = ConfigDict(json_schema_extra={"example": LINE})

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int
    summary: ConversationSummary | None
    preview: str = Field(
        description="First user message; a longer one is cut to 100 characters, with its '...'."
    )
    score: float = Field(default=0.0, description="Only with `query`; larger is better.")
    found_in: Literal["title", "tags", "summary", "user", "assistant", "tool"] | None = Field(
        default=None, description="Only with `query`: where the snippet is from."
    )
    snippet: list[SnippetPart] = Field(
        default=[], description="Only with `query`: a passage, in stretches; one line of text."
    )


class IndexingState(BaseModel):
    """How many sessions of all are indexed."""

    done: int
    total: int


class SessionList(BaseModel):
    """Sessions, the one changed last first, or with `query` the best first."""

    model_config = ConfigDict(json_schema_extra={"example": LIST})

    sessions: list[SessionLine]
    problems: list[SessionProblem] = Field(description="Files that cannot be read, and why.")
    next_cursor: str | None = Field(
        default=None,
        description="With `limit` or `query`: the `cursor` of the next page, null on the last. "
        "Absent without.",
    )
    indexing: IndexingState | None = Field(
        default=None,
        description="Only with `query`: set when the index was not complete yet, else null.",
    )
