"""Files that belong to messages of a session: those that a tool returned, or a user attached."""

from ...protocol.attachments import (
    MAX_ATTACHMENTS,
    MAX_TEXT_BYTES,
    Attachment,
    NewAttachment,
    attach,
    attachments_of,
)
from .listing import list_attachments
from .reader import AttachmentReader
from .store import AttachmentStore, MemoryAttachmentStore

__all__ = [
    "MAX_ATTACHMENTS",
    "MAX_TEXT_BYTES",
    "Attachment",
    "AttachmentReader",
    "AttachmentStore",
    "MemoryAttachmentStore",
    "NewAttachment",
    "attach",
    "attachments_of",
    "list_attachments",
]
