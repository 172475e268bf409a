"""``/sessions/{session_id}/export`` and ``/sessions/export``: sessions as a file."""

from __future__ import annotations

from contextlib import ExitStack
from http import HTTPStatus
from tempfile import TemporaryFile
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import Query, Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionId
from mochi_server.core.clock import utc_now
from mochi_server.core.slots import Slots
from mochi_server.errors import (
    InvalidRequest,
    ServerBusy,
    SessionNotFound,
    SessionUnreadable,
    StorageError,
)
from mochi_server.sessions.exports.exporter import ExportFormat, export_session
from mochi_server.sessions.exports.several import write_archive

from .downloads import NOT_OUR_PAGE, FileDownload
from .schemas import ExportRequest

router = Router()

HEADERS = {key: NOT_OUR_PAGE[key] for key in NOT_OUR_PAGE if key != "Accept-Ranges"}

CONTENT: dict[str, Any] = {
    "application/json": {
        "schema": {"type": "object", "examples": [{"metadata": {}, "messages": []}]}
    },
    "text/markdown": {"schema": {"type": "string"}, "example": "# Sums\n"},
    "application/jsonl": {"schema": {"type": "string"}, "example": '{"messages": []}\n'},
    "application/zip": {"schema": {"type": "string", "format": "binary"}, "example": "PK"},
    "text/html": {"schema": {"type": "string"}, "example": "<!doctype html>\n"},
}


SLOTS = Slots("archives of sessions", 4, share=0.5)
"""Each takes as much room on the disk as it is long, until it is sent."""


class ArchiveDownload(FileDownload):
    """An archive whose slot is free again when it is closed."""

    held: ExitStack

    def close(self) -> None:
        super().close()
        self.held.close()


SEVERAL: dict[str, Any] = {"application/octet-stream": CONTENT["application/zip"]}


@router.post(
    "/export",
    summary="Download several sessions, or all, as one archive",
    openapi_extra={
        **documented(SessionNotFound, StorageError, ServerBusy),
        "responses": {HTTPStatus.OK: {"description": "The archive", "content": SEVERAL}},
    },
)
async def export_sessions(
    request: HttpRequest,  # noqa: ARG001 - every view's
    payload: ExportRequest | None = None,
) -> HttpResponseBase:
    """Each is a file in it; with `zip` the session file, and the attachments of all.

    `POST /sessions/import` takes it. `problems.txt` in it names the sessions that cannot be read.
    The body may be empty.
    """
    runtime = get_runtime()
    wanted = payload or ExportRequest()
    with ExitStack() as unless_whole:
        unless_whole.enter_context(SLOTS.slot())
        file = unless_whole.enter_context(TemporaryFile(prefix="mochi-export-"))
        await write_archive(
            file, runtime.sessions, runtime.attachments, wanted.to, wanted.session_ids
        )
        held = unless_whole.pop_all()
    size = file.tell()
    headers = {
        **HEADERS,
        "Content-Type": "application/octet-stream",  # generators of clients know no other one
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="mochi {utc_now():%Y-%m-%d}.zip"',
    }
    archive = ArchiveDownload(file, 0, size, HTTPStatus.OK, headers)
    archive.held = held
    return archive


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
    return HttpResponse(
        content,
        content_type=to.media_type,
        headers={
            **HEADERS,
            "Content-Disposition": f'attachment; filename="{session_id}{to.suffix}"',
        },
    )
