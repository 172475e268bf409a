"""What is attached to a message of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from mochi_project.openapi import ErrorTypes
from mochi_project.runtime import get_runtime
from mochi_server import errors
from mochi_server.core.aio import run_concurrently
from mochi_server.sessions.attachments import MAX_ATTACHMENTS, NewAttachment
from sessions_app.attachments import AttachmentId, FileName, FileUpload

READ_AT_ONCE = 5
"""Attachments of one message that are read at the same time."""
MAX_SERVER_NAME, MAX_URI = 128, 4_096
"""Characters."""

ATTACHMENT_ERRORS: ErrorTypes = (
    errors.AttachmentNotFound,
    errors.McpServerNotFound,
    errors.McpResourceNotFound,
    errors.McpServerFailed,
    errors.AttachmentTooLarge,
    errors.AttachmentUnsupported,
    errors.ImagesNotSupported,
)


class AttachedResource(BaseModel):
    """A resource of an MCP server, which is read when the message is sent."""

    model_config = ConfigDict(extra="forbid")

    server: str = Field(
        min_length=1,
        max_length=MAX_SERVER_NAME,
        description="Name of the server.",
        examples=["docs"],
    )
    uri: str = Field(
        min_length=1, max_length=MAX_URI, description="Of the resource.", examples=["docs://intro"]
    )


class AttachedUpload(BaseModel):
    """A file that the session has: an upload, or what another message has.

    It may be the whole object that the upload has answered.
    """

    model_config = ConfigDict(extra="forbid")

    attachment_id: AttachmentId
    name: FileName = None
    media_type: str | None = Field(
        default=None, description="Of a text; others are known by their content."
    )
    size: JsonValue = Field(default=None, description="Ignored.")


AttachmentBody: TypeAlias = FileUpload | AttachedUpload | AttachedResource


def _kind(body: object) -> str:
    if isinstance(body, AttachmentBody):
        return type(body).__name__
    keys = body if isinstance(body, Mapping) else {}
    if "data" in keys:
        return FileUpload.__name__
    return (AttachedUpload if "attachment_id" in keys else AttachedResource).__name__


Attachments = Annotated[
    list[
        Annotated[
            Annotated[FileUpload, Tag(FileUpload.__name__)]
            | Annotated[AttachedUpload, Tag(AttachedUpload.__name__)]
            | Annotated[AttachedResource, Tag(AttachedResource.__name__)],
            Discriminator(_kind),
        ]
    ],
    Field(
        max_length=MAX_ATTACHMENTS,
        description="What the model reads with the message: images, PDF files and texts. They are "
        "kept with the message.",
    ),
]


async def read_attachments(
    session_id: str, bodies: Sequence[AttachmentBody]
) -> list[NewAttachment]:
    """Read what is to be attached to a message of a session, which exists."""
    if len(bodies) == 1:
        return [await _read(session_id, bodies[0])]
    return await run_concurrently(
        [partial(_read, session_id, body) for body in bodies], most=READ_AT_ONCE
    )


async def _read(session_id: str, body: AttachmentBody) -> NewAttachment:
    runtime = get_runtime()
    match body:
        case FileUpload():
            return await body.read(runtime.attachment_reader)
        case AttachedUpload():
            content = await runtime.attachments.read(session_id, body.attachment_id)
            label = await runtime.attachments.label(session_id, body.attachment_id)
            return await runtime.attachment_reader.read(
                content,
                name=body.name or label.name,
                media_type=body.media_type or label.media_type,
                is_kept=True,
            )
        case AttachedResource():
            return await runtime.mcp_resources.read(body.server, body.uri, session_id=session_id)
