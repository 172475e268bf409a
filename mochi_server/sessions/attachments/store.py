"""Where the files of messages are kept.

Each is kept once for each session, under the SHA-256 hash of its content.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from ...core.aio import in_thread, in_thread_to_completion
from ...core.files import make_folder, replace_file
from ...errors import AttachmentNotFound, StorageError
from .attachment import Attachment, NewAttachment, id_of

_ID = re.compile("[0-9a-f]{64}")
_TEMPORARY = re.compile(rf"\.{_ID.pattern}\.[0-9a-f]{{16}}\.tmp")
"""What ``replace_file`` leaves in a crash."""
_MISSING = ".session-missing"
"""An empty file, since whose time the session of a folder is known not to be there."""


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

    async def keep(self, session_id: str, attachments: Sequence[NewAttachment]) -> None:
        """Keep the files that are attached to a message. Raises as ``put``."""
        for each in attachments:
            await self.put(session_id, each.content, each.media_type)

    async def open(self, session_id: str, attachment_id: str) -> tuple[int, os.stat_result]:
        """Open an attachment, which the caller closes; return its descriptor and its status.

        Raises:
            AttachmentNotFound: There is none.
            StorageError: It cannot be read.
        """
        return await in_thread_to_completion(self._open, session_id, attachment_id)

    async def read(self, session_id: str, attachment_id: str) -> bytes:
        """Return the content of an attachment of the user. Raises as ``open``."""
        return await in_thread(self._read, session_id, attachment_id)

    def _read(self, session_id: str, attachment_id: str) -> bytes:
        handle, _ = self._open(session_id, attachment_id)
        with os.fdopen(handle, "rb") as file:
            return file.read()

    async def sizes(self, session_id: str) -> dict[str, int]:
        """Return the ids of the attachments of a session, with their sizes in bytes."""
        return await in_thread(self._sizes, session_id)

    async def copy(self, session_id: str, to: str, attachment_ids: Collection[str]) -> None:
        """Let another session have attachments as well; those that are gone are left out.

        Raises:
            StorageError: One cannot be written.
        """
        await in_thread_to_completion(self._copy, session_id, to, attachment_ids)

    def _copy(self, session_id: str, to: str, attachment_ids: Collection[str]) -> None:
        for attachment_id in attachment_ids:
            try:
                handle, _ = self._open(session_id, attachment_id)
            except AttachmentNotFound:
                continue
            with os.fdopen(handle, "rb") as file:
                self._put(to, file.read())

    async def remove(self, session_id: str) -> None:
        """Delete the attachments of a session."""
        await in_thread_to_completion(
            partial(shutil.rmtree, self._folder / session_id, ignore_errors=True)
        )

    def folders(self) -> dict[str, int]:
        """Return the ids of the sessions that have a folder, and when each changed, in ns."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_mtime_ns
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            }
        return {}

    def times(self, session_id: str) -> dict[str, float]:
        """Return the names of a session's files, and when each was put there, as ``time.time``.

        What a process that was killed has left half written is among them.
        """
        with suppress(FileNotFoundError), os.scandir(self._folder / session_id) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_mtime
                for entry in entries
                if _ID.fullmatch(entry.name) or _TEMPORARY.fullmatch(entry.name)
            }
        return {}

    def missing_since(self, session_id: str) -> float:
        """Note that a session is not there, and return since when that is noted."""
        marker = self._folder / session_id / _MISSING
        with suppress(FileNotFoundError):
            return marker.lstat().st_mtime
        with suppress(FileNotFoundError):  # another process may have deleted the folder
            marker.touch(mode=0o600)
        return time.time()

    def note_found(self, session_id: str) -> None:
        """Forget that a session was not there."""
        (self._folder / session_id / _MISSING).unlink(missing_ok=True)

    def delete_old(self, session_id: str, names: Collection[str], before: float) -> int:
        """Delete those of the files that were put there before, and return how many there were.

        The folder goes with the last one.
        """
        folder, count = self._folder / session_id, 0
        for name in names:
            with suppress(FileNotFoundError):
                if (folder / name).lstat().st_mtime < before:
                    (folder / name).unlink()
                    count += 1
        with suppress(OSError):
            self.note_found(session_id)
            folder.rmdir()
        return count

    def _sizes(self, session_id: str) -> dict[str, int]:
        try:
            with os.scandir(self._folder / session_id) as entries:
                return {
                    entry.name: entry.stat(follow_symlinks=False).st_size
                    for entry in entries
                    if _ID.fullmatch(entry.name)
                }
        except FileNotFoundError:
            return {}
        except OSError as error:
            reason = f"its attachments cannot be read ({error.strerror})"
            raise StorageError(session_id=session_id, reason=reason) from error

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
        digest = id_of(content)
        folder = self._folder / session_id
        try:
            make_folder(folder, private=True)
            try:
                os.utime(folder / digest)  # it counts as new
            except FileNotFoundError:
                replace_file(folder / digest, [content], private=True)
        except OSError as error:
            reason = f"the attachment cannot be written ({error.strerror})"
            raise StorageError(session_id=session_id, reason=reason) from error
        return digest


class MemoryAttachmentStore(AttachmentStore):
    """The attachments of sessions that are kept in memory."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, bytes]] = {}

    async def remove(self, session_id: str) -> None:
        self._files.pop(session_id, None)

    def _sizes(self, session_id: str) -> dict[str, int]:
        files = self._files.get(session_id, {})
        return {attachment_id: len(content) for attachment_id, content in files.items()}

    def _open(self, session_id: str, attachment_id: str) -> tuple[int, os.stat_result]:
        try:
            content = self._files[session_id][attachment_id]
        except KeyError as error:
            raise AttachmentNotFound(session_id=session_id, attachment_id=attachment_id) from error
        with TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            handle = os.dup(file.fileno())
        return handle, os.fstat(handle)

    def _put(self, session_id: str, content: bytes) -> str:
        digest = id_of(content)
        self._files.setdefault(session_id, {})[digest] = content
        return digest
