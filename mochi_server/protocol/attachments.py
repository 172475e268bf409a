"""What messages say of the files that belong to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import InvalidRequest, JSONObject
from .messages import UserMessage

MAX_ATTACHMENTS = 20
"""Attachments of one message of the user."""
MAX_TEXT_BYTES = 1_000_000
"""Size of an attached text: models read all of it."""
MAX_PIXELS = 64_000_000
"""Of an image: it needs four bytes of memory for each where it is decoded."""


def id_of(content: bytes) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What a message says of a file."""

    attachment_id: str
    """SHA-256 of the content, in hexadecimal."""
    media_type: str
    """Of a file of the user: found by its content. Of a file of a tool: as the tool says."""
    size: int
    """Bytes."""
    name: str | None = None
    server: str | None = None
    """The MCP server that it is a resource of."""
    uri: str | None = None
    """Of the resource."""

    def payload(self) -> JSONObject:
        """Return ``{"attachment_id", "media_type", "size", "name"}``.

        Of a resource of an MCP server also ``server`` and ``uri``.
        """
        payload: JSONObject = {
            "attachment_id": self.attachment_id,
            "media_type": self.media_type,
            "size": self.size,
            "name": self.name,
        }
        if self.server is not None:
            payload |= {"server": self.server, "uri": self.uri}
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAttachment:
    """A file that is to be attached to a message of the user; ``AttachmentReader`` makes them."""

    content: bytes
    media_type: str
    name: str | None = None
    server: str | None = None
    """The MCP server that it is a resource of."""
    uri: str | None = None
    """Of the resource."""

    def described(self) -> Attachment:
        """Return what the message will say of it."""
        return Attachment(
            attachment_id=id_of(self.content),
            media_type=self.media_type,
            size=len(self.content),
            name=self.name,
            server=self.server,
            uri=self.uri,
        )


def attach(message: UserMessage, attachments: Sequence[NewAttachment]) -> None:
    """Let a message say what is attached to it; ``AttachmentStore.keep`` keeps the files.

    Raises:
        InvalidRequest: there are more than ``MAX_ATTACHMENTS``.
    """
    if len(attachments) > MAX_ATTACHMENTS:
        raise InvalidRequest(f"A message can have at most {MAX_ATTACHMENTS} attachments.")
    if attachments:
        message.attachments = [each.described().payload() for each in attachments]


def attachments_of(message: JSONObject) -> Iterator[JSONObject]:
    """Yield what a stored message says of its attachments; other programs may have written it."""
    entries = message.get("attachments")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("attachment_id"), str):
            yield entry
