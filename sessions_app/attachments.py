"""``/sessions/{session_id}/attachments``: files that belong to messages of a session."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from ninja import Path, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from mochi_project.http.errors import PAYLOAD, checked
from mochi_project.openapi import documented, reference
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId
from mochi_server.core.aio import in_thread
from mochi_server.errors import (
    AttachmentNotFound,
    AttachmentTooLarge,
    AttachmentUnsupported,
    InvalidRequest,
    JSONObject,
    SessionNotFound,
    SessionUnreadable,
    SpaceUsedUp,
    StorageError,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment, list_attachments

from .downloads import FileDownload

router = Router()

MAX_NAME = 1_000
"""Characters of the name of a file; more than 200 are cut."""
FORM = "multipart/form-data"
FILE = "file"
"""The field of the form."""
EXAMPLE_ID = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"

AttachmentId = Annotated[str, Field(description="SHA-256 of the content.", examples=[EXAMPLE_ID])]
FileName = Annotated[
    str | None,
    Field(
        max_length=MAX_NAME,
        description="Of the file; only what follows the last slash is kept.",
        examples=["cat.png"],
    ),
]
CONTENT = {
    kind: {"schema": {"type": "string", "format": "binary"}, "example": "A report"}
    for kind in ("application/octet-stream", "text/plain", "image/*")
}


class FileUpload(BaseModel):
    """A file in base64."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"data": "QSByZXBvcnQ=", "name": "report.txt"}},
    )

    data: str = Field(
        description="Base64, or a data URL with base64: an image (PNG, JPEG, GIF, WebP), a PDF "
        "file, or a text in UTF-8."
    )
    name: FileName = None
    media_type: str | None = Field(
        default=None, description="Of a text; others are known by their content."
    )

    async def read(self, reader: AttachmentReader) -> NewAttachment:
        return await reader.read(self.data, name=self.name, media_type=self.media_type)


class AttachmentShown(ResponseModel):
    """A file of a session."""

    attachment_id: AttachmentId
    media_type: str = Field(examples=["image/png"])
    size: int = Field(description="Bytes.", examples=[8])
    name: str | None = Field(examples=["cat.png"])


class AttachmentsShown(ResponseModel):
    """The files of a session."""

    attachments: list[AttachmentShown]


BODY: JSONObject = {
    "required": True,
    "content": {
        # Not the form as well: https://github.com/openapi-generators/openapi-python-client/issues/1451
        "application/json": {"schema": reference(FileUpload.__name__)}
    },
}


@router.post(
    "/{session_id}/attachments",
    response={201: AttachmentShown},
    summary="Upload a file for a message",
    openapi_extra={
        **documented(
            *(SessionNotFound, AttachmentTooLarge, AttachmentUnsupported),
            *(SpaceUsedUp, StorageError),
        ),
        "requestBody": BODY,
    },
)
async def upload_attachment(request: HttpRequest, session_id: SessionId) -> Status[dict[str, Any]]:
    """As JSON with base64, or as the field `file` of a form (`multipart/form-data`).

    A message names it in its `attachments`, by its id; the answer is the object to put there.
    """
    runtime = get_runtime()
    await runtime.sessions.check_exists(session_id)
    attachment = await _read_upload(request, runtime.attachment_reader)
    async with runtime.sessions.storage.lock(session_id) as lock:  # it may be deleted meanwhile
        if lock.version is None:
            raise SessionNotFound(session_id=session_id)
        await runtime.attachments.keep(session_id, [attachment])
    return Status(HTTPStatus.CREATED, attachment.described().payload())


async def _read_upload(request: HttpRequest, reader: AttachmentReader) -> NewAttachment:
    if request.content_type == FORM:
        content, name, media_type = await in_thread(_form_file, request)
        return await reader.read(content, name=name, media_type=media_type)
    body = checked(FileUpload.model_validate_json, request.body, *PAYLOAD)
    return await body.read(reader)


def _form_file(request: HttpRequest) -> tuple[bytes, str | None, str | None]:
    """Return content, name and media type of the only file of a form."""
    try:
        files = request.FILES.getlist(FILE)
    except MultiPartParserError as error:
        raise InvalidRequest(f"The form cannot be read: {error}") from error
    if len(files) != 1:
        raise InvalidRequest(f"The form must have one file in the field {FILE!r}.")
    with files[0] as file:
        return file.read(), file.name, file.content_type


@router.get(
    "/{session_id}/attachments",
    response=AttachmentsShown,
    summary="List the files of a session",
    openapi_extra=documented(SessionNotFound, SessionUnreadable, StorageError),
)
async def list_session_attachments(
    request: HttpRequest,  # noqa: ARG001 - every view's
    session_id: SessionId,
) -> dict[str, Any]:
    """Those of messages in their order, then uploads that no message has."""
    runtime = get_runtime()
    session = await runtime.sessions.get(session_id)
    files = await list_attachments(runtime.attachments, session_id, session.attachments())
    return {"attachments": [file.payload() for file in files]}


@router.get(
    "/{session_id}/attachments/{attachment_id}",
    summary="Download a file that belongs to a message",
    openapi_extra={
        **documented(SessionNotFound, AttachmentNotFound, StorageError),
        "responses": {HTTPStatus.OK: {"description": "The file", "content": CONTENT}},
    },
)
async def read_attachment(
    request: HttpRequest,
    session_id: SessionId,
    attachment_id: Annotated[str, Path(description="As the message has it.", example=EXAMPLE_ID)],
) -> HttpResponseBase:
    """Such as an image that a tool returned; `Content-Type` as for the files of a workspace."""
    runtime = get_runtime()
    await runtime.sessions.check_exists(session_id)
    handle, status = await runtime.attachments.open(session_id, attachment_id)
    return await FileDownload.of(request, attachment_id, handle, status)
