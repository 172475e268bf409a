"""Files that belong to messages of a session, such as images that a tool returned.

Each is kept once for each session, under the SHA-256 hash of its content.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..core.aio import in_thread_to_completion
from ..core.files import make_folder, replace_file
from ..errors import AttachmentNotFound, JSONObject, StorageError

_ID = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What a message says of a file."""

    attachment_id: str
    """SHA-256 of the content, in hexadecimal."""
    media_type: str
    """As whoever made it says."""
    size: int
    """Bytes."""
    name: str | None = None

    def payload(self) -> JSONObject:
        """Return ``{"attachment_id", "media_type", "size", "name"}``."""
        return {
            "attachment_id": self.attachment_id,
            "media_type": self.media_type,
            "size": self.size,
            "name": self.name,
        }


class AttachmentStore:
    """The attachments of all sessions: a folder for each session that has any."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(
        self, session_id: str, content: bytes, media_type: str, name: str | None = None
    ) -> Attachment:
        """Keep a file; one that is there already stays.

        Raises:
            StorageError: It cannot be written.
        """
        digest = await in_thread_to_completion(self._put, session_id, content)
        return Attachment(attachment_id=digest, media_type=media_type, size=len(content), name=name)

    async def open(self, session_id: str, attachment_id: str) -> tuple[int, os.stat_result]:
        """Open an attachment, which the caller closes; return its descriptor and its status.

        Raises:
            AttachmentNotFound: There is none.
            StorageError: It cannot be read.
        """
        return await in_thread_to_completion(self._open, session_id, attachment_id)

    async def remove(self, session_id: str) -> None:
        """Delete the attachments of a session."""
        await in_thread_to_completion(
            partial(shutil.rmtree, self._folder / session_id, ignore_errors=True)
        )

    def _open(self, session_id: str, attachment_id: str) -> tuple[int, os.stat_result]:
        if not _ID.fullmatch(attachment_id):
            raise AttachmentNotFound(session_id=session_id, attachment_id=attachment_id)
        path = self._folder / session_id / attachment_id
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            raise AttachmentNotFound(session_id=session_id, attachment_id=attachment_id) from error
        except OSError as error:
            reason = f"its attachment cannot be read ({error.strerror})"
            raise StorageError(session_id=session_id, reason=reason) from error
        return handle, os.fstat(handle)

    def _put(self, session_id: str, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        folder = self._folder / session_id
        try:
            make_folder(folder, private=True)
            if not (folder / digest).exists():
                replace_file(folder / digest, [content], private=True)
        except OSError as error:
            reason = f"the attachment cannot be written ({error.strerror})"
            raise StorageError(session_id=session_id, reason=reason) from error
        return digest
