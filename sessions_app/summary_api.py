"""``/sessions/{id}/summarize`` and ``/sessions/{id}/summary``."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict

from mochi_project.openapi import WHERE_A_MODEL_IS_ASKED, documented
from mochi_project.responses import json_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import (
    EmptyHistory,
    JSONObject,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
    SummaryModelRequired,
)
from mochi_server.sessions.types import ConversationSummary

from .schemas import ModelName

router = Router()

ONE = {"session_id": "a1b2c3d4e5"}
WRITTEN: JSONObject = {
    "summary": "The user asked about asyncio.",
    "topics": ["python", "asyncio"],
    "model_used": "qwen3:14b",
}


class SummaryWish(BaseModel):
    """Who is to write the summary."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"model": "qwen3:14b"}})

    model: ModelName | None = None


class SummaryWritten(BaseModel):
    """A summary that was written just now."""

    model_config = ConfigDict(json_schema_extra={"example": WRITTEN})

    summary: str
    topics: list[str]
    model_used: str


class SummaryShown(BaseModel):
    """The summary that there is."""

    model_config = ConfigDict(json_schema_extra={"example": WRITTEN})

    summary: str | None
    topics: list[str] | None
    model_used: str | None


def shown(summary: ConversationSummary | None) -> JSONObject:
    """The summary as both routes answer it."""
    if summary is None:
        return {"summary": None, "topics": None, "model_used": None}
    return {
        "summary": summary.summary,
        "topics": [*summary.topics],
        "model_used": (summary.model_extra or {}).get("model"),
    }


@router.post(
    "/{session_id}/summarize",
    response=SummaryWritten,
    summary="Summarise a session now",
    openapi_extra=documented(
        EmptyHistory,
        SummaryModelRequired,
        *WHERE_A_MODEL_IS_ASKED,
        example=WRITTEN,
        body={"model": "qwen3:14b"},
        parameters=ONE,
    ),
)
async def summarize_session(
    request: HttpRequest, session_id: str, payload: SummaryWish | None = None
) -> HttpResponse:
    """What is new is added to the summary; where nothing is new, it is written anew.

    The body may be empty. Without `model`, the session's model writes, or its `summary_model`.
    """
    model = payload.model if payload is not None else None
    return json_response(shown(await get_runtime().summaries.summarize(session_id, model)))


@router.get(
    "/{session_id}/summary",
    response=SummaryShown,
    summary="Read the summary of a session",
    openapi_extra=documented(
        SessionNotFound, SessionUnreadable, StorageError, example=WRITTEN, parameters=ONE
    ),
)
async def read_session_summary(request: HttpRequest, session_id: str) -> HttpResponse:
    """Nulls where there is none; `model_used` is also null of a summary by another program."""
    session = await get_runtime().sessions.get(session_id)
    return json_response(shown(session.metadata.summary))
