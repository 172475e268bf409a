"""Makes attachments of the files that clients send."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field, replace

import anyio

from ...core.aio import in_thread, in_thread_if
from ...core.logs import one_line
from ...core.media import IMAGES, PDF, PLAIN_TEXT, image_size, media_type_of, text_type
from ...errors import AttachmentTooLarge, AttachmentUnsupported
from ...protocol.attachments import MAX_PIXELS, MAX_TEXT_BYTES, NewAttachment
from .stripping import CannotStrip, without_metadata

UNNAMED = "file"
"""What a file without a name is called in an error."""
LONG = 100_000
"""Bytes; reading more takes milliseconds."""

_DATA_URL = re.compile(r"data:([^,;]*)(?:;[^,;]*)*;base64,", re.ASCII | re.IGNORECASE)
_LONGEST_HEAD = 1_000
"""Characters of a data URL before its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentReader:
    """Makes attachments of images (PNG, JPEG, GIF, WebP), PDF files and texts in UTF-8.

    A message of a session gets its attachments in three steps::

        attachments = [await reader.read(data_url, name="cat.png")]
        attach(message, attachments)  # ChatService.open_turn(attachments=…) does both of these
        await store.keep(session_id, attachments)

    The history of the session then has the images, in the form of each provider, on every turn.
    """

    max_bytes: int
    """Size of the largest file."""
    strip_images: bool = False
    """Whether images are encoded again, without metadata."""
    _stripping: anyio.Lock = field(default_factory=anyio.Lock)
    """A decoded image may need hundreds of megabytes: only one is encoded at a time."""

    async def read(
        self,
        content: bytes | str,
        *,
        name: str | None = None,
        media_type: str | None = None,
        is_kept: bool = False,
    ) -> NewAttachment:
        """Return a file that can be attached; its type is found by its content.

        Args:
            content: The file, or the file in base64, or a data URL with base64.
            name: Of the file; only what follows the last slash counts.
            media_type: As the client names it; kept where the file is a text.
            is_kept: Whether the session has it already; it then stays as it is.

        Raises:
            AttachmentTooLarge: it is larger than ``max_bytes``, or a text than ``MAX_TEXT_BYTES``.
            AttachmentUnsupported: it is not base64, or no model can read it.
        """
        is_long = len(content) > LONG
        attachment = await in_thread_if(is_long, self._read, content, name, media_type)
        if not self.strip_images or is_kept or attachment.media_type not in IMAGES:
            return attachment
        async with self._stripping:
            try:
                stripped = await in_thread(
                    without_metadata, attachment.content, attachment.media_type
                )
            except CannotStrip as error:
                label = attachment.name or UNNAMED
                raise AttachmentUnsupported(name=label, reason=str(error)) from error
        return replace(attachment, content=stripped)

    def _read(
        self, content: bytes | str, name: str | None, media_type: str | None
    ) -> NewAttachment:
        name = _last_part(name)
        label = name or UNNAMED
        if isinstance(content, str):
            content, named = self._decoded(content, label)
            media_type = media_type or named
        if len(content) > self.max_bytes:
            raise AttachmentTooLarge(name=label, limit_bytes=self.max_bytes)
        kind = media_type_of(content)
        if kind is None:
            raise AttachmentUnsupported(
                name=label, reason="it is no image (PNG, JPEG, GIF, WebP), PDF or text in UTF-8"
            )
        if kind == PLAIN_TEXT:
            if len(content) > MAX_TEXT_BYTES:
                raise AttachmentTooLarge(name=label, limit_bytes=MAX_TEXT_BYTES)
            kind = text_type(media_type)
        elif kind != PDF:
            _check_image(content, label)
        return NewAttachment(content=content, media_type=kind, name=name)

    def _decoded(self, text: str, label: str) -> tuple[bytes, str | None]:
        """Return the content of base64 or of a data URL, and the type that the URL names."""
        named = None
        if (head := _DATA_URL.match(text, 0, _LONGEST_HEAD)) is not None:
            named, text = head[1], text[head.end() :]
        if len(text) * 3 // 4 > self.max_bytes + LONG:  # white space counts
            raise AttachmentTooLarge(name=label, limit_bytes=self.max_bytes)
        try:
            return base64.b64decode("".join(text.split()), validate=True), named
        except ValueError as error:
            raise AttachmentUnsupported(name=label, reason="it is not base64") from error


def _last_part(name: str | None) -> str | None:
    return one_line(re.split(r"[/\\]", name)[-1]) or None if name else None


def _check_image(content: bytes, label: str) -> None:
    if (size := image_size(content)) is None:
        raise AttachmentUnsupported(name=label, reason="the image is damaged")
    width, height = size
    if width * height > MAX_PIXELS:
        raise AttachmentUnsupported(
            name=label, reason=f"the image has {width:,} by {height:,} pixels, more than 64 million"
        )
