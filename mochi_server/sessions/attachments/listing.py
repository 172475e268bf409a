"""Lists the files of a session."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.media import PLAIN_TEXT, media_type_of, text_type
from ...errors import JSONObject
from ...protocol.attachments import Attachment
from .store import AttachmentStore

OTHER = "application/octet-stream"


async def list_attachments(
    store: AttachmentStore, session_id: str, mentioned: Iterable[JSONObject]
) -> list[Attachment]:
    """Return the files that are there: first those of messages, then the others.

    ``mentioned``: what its messages say of them, as ``attachments_of`` yields it.

    Raises:
        StorageError: they cannot be read.
    """
    sizes = await store.sizes(session_id)
    found: dict[str, Attachment] = {}
    for entry in mentioned:
        attachment_id = str(entry["attachment_id"])
        if attachment_id in sizes and attachment_id not in found:
            name = entry.get("name")
            found[attachment_id] = Attachment(
                attachment_id=attachment_id,
                media_type=str(entry.get("media_type") or OTHER),
                size=sizes[attachment_id],
                name=name if isinstance(name, str) else None,
            )
    for attachment_id in sorted(sizes.keys() - found.keys()):
        label = await store.label(session_id, attachment_id)
        kind = media_type_of(await store.read(session_id, attachment_id))
        if kind == PLAIN_TEXT:
            kind = text_type(label.media_type)
        found[attachment_id] = Attachment(
            attachment_id=attachment_id,
            media_type=kind or OTHER,
            size=sizes[attachment_id],
            name=label.name,
        )
    return list(found.values())
