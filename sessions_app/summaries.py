"""Summaries of sessions: of all messages, and in the place of the oldest ones in requests."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from mochi_project.openapi import MODEL_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId, SessionModel
from mochi_server.errors import (
    EmptyHistory,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
    SummaryModelRequired,
)
from mochi_server.sessions.types import ConversationSummary

from .answers import StoredText
from .schemas import SummaryRequest

router = Router()


class SummaryWritten(ResponseModel):
    """A summary that was written just now."""

    summary: str = Field(examples=["The user asked about asyncio."])
    topics: list[str] = Field(examples=[["python", "asyncio"]])
    model_used: SessionModel


class HistorySummaryShown(ResponseModel):
    """What requests have in the place of the oldest messages."""

    text: str = Field(examples=["- The project is called Marmalade."])
    through_message_id: str | None = Field(
        description="The last message that it covers.", examples=["f1e2d3c4b5"]
    )
    covers: str = Field(
        description="Digest of the messages that it covers.", examples=["9b1c0f3a5d7e2486"]
    )
    model: SessionModel
    tokens: int = Field(description="Estimate for the text.", examples=[12])
    made_at: str | None = Field(examples=["2026-01-15T10:35:00.000000Z"])


class SummaryShown(ResponseModel):
    """The summary that there is."""

    summary: str | None = Field(examples=["The user asked about asyncio."])
    topics: list[str] | None = Field(examples=[["python", "asyncio"]])
    model_used: StoredText = Field(examples=["qwen3:14b"])


def summary_of(summary: ConversationSummary | None) -> dict[str, Any]:
    """Return a summary as ``SummaryShown`` has it."""
    if summary is None:
        return dict.fromkeys(SummaryShown.model_fields)
    return {
        "summary": summary.summary,
        "topics": summary.topics,
        "model_used": summary.optional("model"),
    }


@router.post(
    "/{session_id}/summarize",
    response=SummaryWritten,
    summary="Summarise a session now",
    openapi_extra=documented(EmptyHistory, SummaryModelRequired, *MODEL_ERRORS),
)
async def summarize_session(
    request: HttpRequest, session_id: SessionId, payload: SummaryRequest | None = None
) -> dict[str, Any]:
    """What is new is added to the summary; where nothing is new, it is written anew.

    The body may be empty. Without `model`, the session's model writes, or its `summary_model`.
    """
    model = payload.model if payload is not None else None
    return summary_of(await get_runtime().summaries.summarize(session_id, model))


@router.post(
    "/{session_id}/compact",
    response=HistorySummaryShown,
    summary="Compact the history of a session now",
    openapi_extra=documented(EmptyHistory, SummaryModelRequired, *MODEL_ERRORS),
)
async def compact_session(request: HttpRequest, session_id: SessionId) -> dict[str, Any]:
    """Summarise all but the last turn; requests have the summary in its place from now on.

    The session keeps its messages. What is new is added to the last such summary.
    """
    runtime = get_runtime()
    summary = await runtime.compaction.compact(runtime.sessions, session_id)
    return summary.model_dump(include={*HistorySummaryShown.model_fields})


@router.get(
    "/{session_id}/summary",
    response=SummaryShown,
    summary="Read the summary of a session",
    openapi_extra=documented(SessionNotFound, SessionUnreadable, StorageError),
)
async def read_session_summary(request: HttpRequest, session_id: SessionId) -> dict[str, Any]:
    """Nulls where there is none; `model_used` is also null of a summary by another program."""
    session = await get_runtime().sessions.get(session_id)
    return summary_of(session.metadata.summary)
