"""Where the files of messages are kept.

Each is kept once for each session, under the SHA-256 hash of its content, with a small file beside
it that has its name and its media type, for messages that name it by its id alone.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import orjson

from ...core.aio import in_thread, in_thread_to_completion
from ...core.caller import current_caller
from ...core.files import make_folder, replace_file
from ...core.space import SpaceLimit, room_of
from ...errors import AttachmentNotFound, StorageError
from ...protocol.attachments import Attachment, NewAttachment, id_of
from ..codec import encode

_ID = re.compile("[0-9a-f]{64}")
_TEMPORARY = re.compile(rf"\.{_ID.pattern}\.[0-9a-f]{{16}}\.tmp")
"""What ``replace_file`` leaves in a crash."""
_LABEL = ".label"
"""End of the name of the file that has the name and the media type of another one."""
_MISSING = ".session-missing"
"""An empty file, since whose time the session of a folder is known not to be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What is known of a file beside its content."""

    name: str | None = None
    media_type: str | None = None


def _room_of(size: int) -> int:
    """Return the bytes that a file takes on a disk, with that of its label."""
    return room_of(size, beside=1)


class AttachmentStore:
    """The attachments of all sessions: a folder for each session that has any."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.space: SpaceLimit | None = None
        """Of what each owner may keep."""

    async def put(
        self, session_id: str, content: bytes, media_type: str, name: str | None = None
    ) -> Attachment:
        """Keep a file; one that is there already stays, and has this name from now on.

        Raises:
            SpaceUsedUp: The caller has no room for it.
            StorageError: It cannot be written.
        """
        await self._take(_room_of(len(content)))
        label = None if name is None else Label(name=name, media_type=media_type)
        digest = await in_thread_to_completion(self._put, session_id, content, label)
        return Attachment(attachment_id=digest, media_type=media_type, size=len(content), name=name)

    async def _take(self, size: int) -> None:
        if self.space is not None:
            await self.space.take(size, current_caller().owner)

    async def keep(self, session_id: str, attachments: Sequence[NewAttachment]) -> None:
        """Keep the files that are attached to a message. Raises as ``put``."""
        for each in attachments:
            await self.put(session_id, each.content, each.media_type, each.name)

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

    async def label(self, session_id: str, attachment_id: str) -> Label:
        """Return the name and the media type with which an attachment was put there last."""
        return await in_thread(self._label, session_id, attachment_id)

    async def sizes(self, session_id: str) -> dict[str, int]:
        """Return the ids of the attachments of a session, with their sizes in bytes."""
        return await in_thread(self._sizes, session_id)

    async def total_size(self, session_ids: Iterable[str]) -> int:
        """Return how many bytes of a disk the attachments of sessions take together."""
        return await in_thread(
            lambda: sum(_room_of(n) for each in session_ids for n in self._sizes(each).values())
        )

    async def copy(self, session_id: str, to: str, attachment_ids: Collection[str]) -> None:
        """Let another session have attachments as well; those that are gone are left out.

        Raises:
            SpaceUsedUp: The caller has no room for them.
            StorageError: One cannot be written.
        """
        sizes = await self.sizes(session_id)
        await self._take(sum(_room_of(sizes[each]) for each in attachment_ids if each in sizes))
        await in_thread_to_completion(self._copy, session_id, to, attachment_ids)

    def _copy(self, session_id: str, to: str, attachment_ids: Collection[str]) -> None:
        for attachment_id in attachment_ids:
            try:
                handle, _ = self._open(session_id, attachment_id)
            except AttachmentNotFound:
                continue
            with os.fdopen(handle, "rb") as file:
                self._put(to, file.read(), self._label(session_id, attachment_id))

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
                    (folder / f"{name}{_LABEL}").unlink()
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
            raise StorageError.because(error, session_id=session_id, reason=reason) from error

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
            raise StorageError.because(error, session_id=session_id, reason=reason) from error
        return handle, os.fstat(handle)

    def _label(self, session_id: str, attachment_id: str) -> Label:
        if not _ID.fullmatch(attachment_id):
            return Label()
        path = self._folder / session_id / f"{attachment_id}{_LABEL}"
        try:
            return Label(**orjson.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return Label()

    def _put(self, session_id: str, content: bytes, label: Label | None) -> str:
        digest = id_of(content)
        folder = self._folder / session_id
        try:
            make_folder(folder, private=True)
            try:
                os.utime(folder / digest)  # it counts as new
            except FileNotFoundError:
                replace_file(folder / digest, [content], private=True)
            if label is not None and label != self._label(session_id, digest):
                replace_file(folder / f"{digest}{_LABEL}", [encode(asdict(label))], private=True)
        except OSError as error:
            reason = f"the attachment cannot be written ({error.strerror})"
            raise StorageError.because(error, session_id=session_id, reason=reason) from error
        return digest


class MemoryAttachmentStore(AttachmentStore):
    """The attachments of sessions that are kept in memory."""

    def __init__(self) -> None:
        super().__init__(Path())
        self._files: dict[str, dict[str, bytes]] = {}
        self._labels: dict[str, dict[str, Label]] = {}

    async def remove(self, session_id: str) -> None:
        self._files.pop(session_id, None)
        self._labels.pop(session_id, None)

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

    def _label(self, session_id: str, attachment_id: str) -> Label:
        return self._labels.get(session_id, {}).get(attachment_id, Label())

    def _put(self, session_id: str, content: bytes, label: Label | None) -> str:
        digest = id_of(content)
        if label is not None:
            self._labels.setdefault(session_id, {})[digest] = label
        self._files.setdefault(session_id, {})[digest] = content
        return digest
