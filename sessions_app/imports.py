"""``/sessions/import``: make sessions of exports of other programs, and of session files."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import Field

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId
from mochi_server.core.aio import in_thread
from mochi_server.errors import (
    CannotImport,
    InvalidRequest,
    PayloadTooLarge,
    RequestTimeout,
    ServerBusy,
    SpaceUsedUp,
    StorageError,
)
from mochi_server.sessions.imports.importer import Importer
from mochi_server.sessions.imports.report import Outcome

from .schemas import ModelName

router = Router()

CONTENT = {
    "application/octet-stream": {
        "schema": {"type": "string", "format": "binary"},
        "example": '{"messages": [{"role": "user", "content": "Hello"}]}',
    }
}


class SessionImported(ResponseModel):
    """A session that a conversation has become, or was before."""

    session_id: SessionId
    outcome: Outcome = Field(
        description="`continued`: new messages were added; `unchanged`: it was imported before.",
        examples=["created"],
    )
    message_count: int = Field(examples=[2])
    forked_from: str | None = Field(
        description="Of another branch: the session of the one that the program shows.",
        examples=[None],
    )
    format_version: str | None = Field(
        description="Of a session file of mochi-server.", examples=[None]
    )
    policies_changed: bool = Field(
        description="Whether the file had policies that do not ask about every call.",
        examples=[False],
    )


class ImportProblem(ResponseModel):
    """Why a conversation, or the rest of the file, was not imported."""

    program: str = Field(description="Whose format it is; empty: not known.", examples=["ChatGPT"])
    place: str = Field(
        description="A line, or a JSON pointer; in an archive behind the name of a file and `#`.",
        examples=["/3/mapping"],
    )
    reason: str = Field(examples=["it is not an object"])


class ImportResult(ResponseModel):
    """What became of the file."""

    program: str | None = Field(
        description="Whose format the file has; null: nothing was read.", examples=["chatgpt"]
    )
    imported: list[SessionImported]
    left_out: dict[str, int] = Field(
        description="What was not taken, and how often.",
        examples=[{"image that is not in the export": 2}],
    )
    problems: list[ImportProblem]


@router.post(
    "/import",
    response=ImportResult,
    summary="Import conversations of other programs, or a session file",
    openapi_extra={
        **documented(
            *(CannotImport, InvalidRequest, PayloadTooLarge, RequestTimeout, ServerBusy),
            *(SpaceUsedUp, StorageError),
        ),
        "requestBody": {"required": True, "content": CONTENT},
    },
)
async def import_sessions(
    request: HttpRequest,
    *,
    model: Annotated[
        ModelName | None, Query(description="Of the new sessions; else the one that is named.")
    ] = None,
    new_id: Annotated[
        bool, Query(description="Give a session file another id than its own.")
    ] = False,
) -> dict[str, Any]:
    """The body is the file, as it is. Nothing is overwritten, and nothing is made twice."""
    runtime = get_runtime()
    importer = Importer(
        sessions=runtime.sessions,
        attachments=runtime.attachments,
        reader=runtime.attachment_reader,
        max_bytes=runtime.settings.max_import_bytes,
        check_model=runtime.models.require_right_to_tools,
    )
    with NamedTemporaryFile(prefix="mochi-import-") as file:
        await in_thread(copyfileobj, request, file)
        await in_thread(file.flush)
        report = await importer.run(Path(file.name), model=model, new_id=new_id)
    if report.problems and not report.sessions:
        raise report.problems[0]
    return report.as_json()
