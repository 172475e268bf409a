"""``/sessions/{session_id}/files``: what is in the workspace of a session."""

from __future__ import annotations

from datetime import datetime, timezone
from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Path, Query, Router, Status
from pydantic import Field

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId, Timestamp
from mochi_server.core.clock import timestamp
from mochi_server.errors import (
    InvalidRequest,
    PayloadTooLarge,
    RequestTimeout,
    ServerBusy,
    SessionNotFound,
    SpaceUsedUp,
    StorageError,
    WorkspaceDisabled,
    WorkspaceFileNotFound,
    WorkspaceFileRefused,
)
from mochi_server.workspace.folder import FileEntry, Kind
from mochi_server.workspace.session_folders import MOST_LISTED, SessionFolders

from .downloads import FileDownload

router = Router()

ERRORS = (
    SessionNotFound,
    WorkspaceDisabled,
    WorkspaceFileNotFound,
    WorkspaceFileRefused,
    StorageError,
)

FilePath = Annotated[str, Path(example="src/main.py", description="Below the workspace.")]
BINARY = {
    "application/octet-stream": {
        "schema": {"type": "string", "format": "binary"},
        "example": "print('Hello')\n",
    }
}


class FileShown(ResponseModel):
    """A file, or something else in a workspace."""

    path: str = Field(
        description="Below the workspace; bytes that are not UTF-8 as `\\xff`.",
        examples=["src/main.py"],
    )
    kind: Kind = Field(description="`other`: a pipe, a socket, …", examples=["file"])
    size: int = Field(description="Bytes of a file; else 0.", examples=[120])
    modified_at: Timestamp


class FilesShown(ResponseModel):
    """What a folder contains."""

    session_id: SessionId
    path: str = Field(description="The folder; empty: the workspace.", examples=[""])
    files: list[FileShown]
    truncated: bool = Field(description=f"Whether there are more than {MOST_LISTED:,}.")


def folders() -> SessionFolders:
    """Return the workspaces.

    Raises:
        WorkspaceDisabled: The settings do not enable them.
    """
    runtime = get_runtime()
    if not runtime.settings.workspace_enabled:
        raise WorkspaceDisabled
    return runtime.session_folders


def shown(entry: FileEntry) -> dict[str, Any]:
    """Return a file as ``FileShown`` has it."""
    # Programs can set any time.
    seconds = min(max(entry.modified_ns // 1_000_000_000, 0), 253_402_300_799)
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    moment = moment.replace(microsecond=entry.modified_ns // 1_000 % 1_000_000)
    return {**entry._asdict(), "modified_at": timestamp(moment)}


@router.get(
    "/{session_id}/files",
    response=FilesShown,
    summary="List the files of a session's workspace",
    openapi_extra=documented(*ERRORS, InvalidRequest),
)
async def list_files(
    request: HttpRequest,  # noqa: ARG001 - every view's
    session_id: SessionId,
    *,
    path: Annotated[str, Query(description="The folder to list.", example="src")] = "",
    recursive: Annotated[bool, Query(description="List its folders as well.")] = False,
) -> dict[str, Any]:
    """Sorted by name; empty if the session has not used its workspace yet."""
    found = await folders().list_folder(session_id, path, recursive=recursive)
    return {
        "session_id": session_id,
        "path": path,
        "files": [shown(entry) for entry in found.entries],
        "truncated": found.is_truncated,
    }


@router.get(
    "/{session_id}/files/{path:file}",
    summary="Download a file of a session's workspace",
    openapi_extra={
        **documented(*ERRORS),
        "responses": {HTTPStatus.OK: {"description": "The file", "content": BINARY}},
    },
)
async def read_file(
    request: HttpRequest, session_id: SessionId, file: FilePath
) -> HttpResponseBase:
    """With `ETag`, conditional requests and ranges of bytes.

    `Content-Type` is that of an image, `text/plain` or `application/octet-stream`, so that no
    browser runs what a model wrote.
    """
    handle, status = await folders().open(session_id, file)
    return await FileDownload.of(request, file, handle, status)


@router.put(
    "/{session_id}/files/{path:file}",
    response={200: FileShown, 201: FileShown},
    summary="Upload a file to a session's workspace",
    openapi_extra={
        **documented(*ERRORS, PayloadTooLarge, RequestTimeout, ServerBusy, SpaceUsedUp),
        "requestBody": {"required": False, "content": BINARY},
    },
)
async def write_file(
    request: HttpRequest, session_id: SessionId, file: FilePath
) -> Status[dict[str, Any]]:
    """The body is the content, as it is. Folders are made; 201 when the file is new."""
    entry, is_new = await folders().write(session_id, file, request.body)
    return Status(HTTPStatus.CREATED if is_new else HTTPStatus.OK, shown(entry))


@router.delete(
    "/{session_id}/files/{path:file}",
    response={204: None},
    summary="Delete a file of a session's workspace",
    openapi_extra=documented(*ERRORS, InvalidRequest),
)
async def delete_file(
    request: HttpRequest,  # noqa: ARG001 - every view's
    session_id: SessionId,
    file: FilePath,
    *,
    recursive: Annotated[
        bool, Query(description="Delete a folder with all that it contains.")
    ] = False,
) -> None:
    """Or an empty folder, or a link."""
    await folders().delete(session_id, file, recursive=recursive)
