"""``/sessions/{session_id}/attachments``: files that belong to messages of a session."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Path, Router

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionId
from mochi_server.errors import AttachmentNotFound, SessionNotFound, StorageError

from .downloads import FileDownload

router = Router()

AttachmentId = Annotated[
    str,
    Path(
        description="As the message has it.",
        example="b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
    ),
]
CONTENT = {
    "application/octet-stream": {
        "schema": {"type": "string", "format": "binary"},
        "example": "A report",
    }
}


@router.get(
    "/{session_id}/attachments/{attachment_id}",
    summary="Download a file that belongs to a message",
    openapi_extra={
        **documented(SessionNotFound, AttachmentNotFound, StorageError),
        "responses": {HTTPStatus.OK: {"description": "The file", "content": CONTENT}},
    },
)
async def read_attachment(
    request: HttpRequest, session_id: SessionId, attachment_id: AttachmentId
) -> HttpResponseBase:
    """Such as an image that a tool returned; `Content-Type` as for the files of a workspace."""
    runtime = get_runtime()
    await runtime.sessions.check_exists(session_id)
    handle, status = await runtime.attachments.open(session_id, attachment_id)
    return await FileDownload.of(request, attachment_id, handle, status)
