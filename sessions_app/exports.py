"""``/sessions/{session_id}/export``: a session as a file."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionId
from mochi_server.errors import InvalidRequest, SessionNotFound, SessionUnreadable, StorageError
from mochi_server.sessions.exports.exporter import ExportFormat, export_session

from .downloads import NOT_OUR_PAGE

router = Router()

CONTENT: dict[str, Any] = {
    "application/json": {
        "schema": {"type": "object", "examples": [{"metadata": {}, "messages": []}]}
    },
    "text/markdown": {"schema": {"type": "string"}, "example": "# Sums\n"},
    "application/jsonl": {"schema": {"type": "string"}, "example": '{"messages": []}\n'},
    "application/zip": {"schema": {"type": "string", "format": "binary"}, "example": "PK"},
    "text/html": {"schema": {"type": "string"}, "example": "<!doctype html>\n"},
}


@router.get(
    "/{session_id}/export",
    summary="Download a session in another format",
    openapi_extra={
        **documented(SessionNotFound, SessionUnreadable, StorageError, InvalidRequest),
        "responses": {HTTPStatus.OK: {"description": "The file", "content": CONTENT}},
    },
)
async def read_export(
    request: HttpRequest,  # noqa: ARG001 - every view's
    session_id: SessionId,
    *,
    to: Annotated[ExportFormat, Query(alias="format", example="html")] = ExportFormat.JSON,
) -> HttpResponse:
    """The session file, Markdown, a line for fine-tuning, an HTML page, or an archive."""
    runtime = get_runtime()
    content = await export_session(runtime.sessions, runtime.attachments, session_id, to)
    headers = {key: NOT_OUR_PAGE[key] for key in NOT_OUR_PAGE if key != "Accept-Ranges"}
    return HttpResponse(
        content,
        content_type=to.media_type,
        headers={
            **headers,
            "Content-Disposition": f'attachment; filename="{session_id}{to.suffix}"',
        },
    )
