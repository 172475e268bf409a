"""The folders of sessions: one for each, made at first use and deleted with its session."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio

from ..core.aio import BackgroundTasks, KeyedLocks, in_thread, in_thread_to_completion
from ..core.files import make_folder
from ..core.space import SpaceLimit, room_of
from ..errors import (
    MochiError,
    SessionNotFound,
    SpaceUsedUp,
    StorageError,
    WorkspaceFileNotFound,
    WorkspaceFileRefused,
)
from ..sandbox.base import SandboxLimits
from ..sandbox.watching import NO_LIMIT, OverLimit, usage
from ..sessions.manager import SessionManager
from ..sessions.storage.base import check_session_id
from .beneath import FOLDER, components
from .folder import ROOT, FileEntry, WorkspaceFolder, refusal
from .removal import remove_tree

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_LISTED = 10_000
"""Most files and folders of a list."""

FOLDER_MB = SandboxLimits().disk_mb or NO_LIMIT
FOLDER_FILES = SandboxLimits().files
"""Limits of one workspace, whoever fills it."""

MOST_BYTES = 1_000_000_000
"""Largest file that can be read from outside: a sparse file can seem to be endless."""

CLEAN_SECONDS = 3_600.0
"""Pause between two looks for folders that have not been used for long."""

_REMOVED = ".removed-"
"""Beginning of the name of a folder that is being deleted."""

_STORAGE_FAILURES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}
)
_DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """What a folder of a workspace contains."""

    entries: list[FileEntry]
    is_truncated: bool
    """Whether there are more than ``MOST_LISTED``."""


class SessionFolders:
    """The workspaces of all sessions, below one folder.

    Errors are ``WorkspaceFileNotFound``, ``WorkspaceFileRefused`` and ``StorageError``, and
    ``SessionNotFound`` of every method that takes the id of a session.
    """

    def __init__(
        self,
        path: Path,
        sessions: SessionManager,
        *,
        retention_days: float | None = None,
        limit_mb: float = NO_LIMIT,
    ) -> None:
        """Keep the folders of these sessions below ``path``.

        Args:
            path: The folder of all of them; it is made when the first session needs one.
            sessions: The sessions.
            retention_days: Days after which the folder of a session that was not used is deleted;
                None: never.
            limit_mb: Size of all of them together, in 10**6 bytes.
        """
        self.path = path
        self._sessions = sessions
        self._retention_days = retention_days
        self._tending = False
        self._writing = KeyedLocks()
        self._space = SpaceLimit("workspaces", limit_mb, "MOCHI_MAX_WORKSPACES_MB", self._size)

    async def _size(self, _owner: str) -> int:
        return await in_thread(_size_of_all, self.path)

    async def make(self, session_id: str) -> Path:
        """Return the folder of a session; it is made if it is missing, and counts as used now.

        Raises:
            SpaceUsedUp: All workspaces together are too large.
        """
        path = self.path / check_session_id(session_id)
        await self._space.take(0)
        if not await in_thread(_touch, path):
            # Under the lock no process deletes the session, whose folder would stay.
            async with self._sessions.storage.lock(session_id) as lock:
                if lock.version is None:
                    raise SessionNotFound(session_id=session_id)
                with _storage_errors(session_id):
                    await in_thread(make_folder, path, private=True)
        return path

    async def list_folder(self, session_id: str, path: str, *, recursive: bool) -> FileList:
        """List a folder, sorted; nothing if the session has not used its workspace yet."""
        return await self._use(session_id, _list, path, recursive=recursive)

    async def open(self, session_id: str, path: str) -> tuple[int, os.stat_result]:
        """Open a file for reading, and return its handle and status."""
        return await self._use(session_id, _open, path)

    async def write(self, session_id: str, path: str, content: bytes) -> tuple[FileEntry, bool]:
        """Write a file, and return it and whether it is new.

        Raises:
            SpaceUsedUp: The workspace, or all together, would be too large.
        """
        await self._sessions.check_exists(session_id)
        folder = await self.make(session_id)
        async with self._writing.holding(session_id):
            with _storage_errors(session_id):
                await in_thread(_check_room, folder, len(content))
            await self._space.take(_room_of(path, len(content)))
            return await self._use(session_id, _write, path, content)

    async def delete(self, session_id: str, path: str, *, recursive: bool) -> None:
        """Delete a file, or a folder; one that is not empty only if ``recursive``."""
        await self._use(session_id, _delete, path, recursive=recursive)
        self._space.measure_again()

    def tend(self, tasks: BackgroundTasks) -> None:
        """Begin to clean, as a server does."""
        if not self._tending:
            self._tending = True
            tasks.spawn(self._tend(), name="unused workspaces")

    async def clean(self) -> list[str]:
        """Delete what was not used for too long, and return the sessions whose folder it was.

        What a process that was killed has left half deleted is deleted as well.
        """
        deleted: list[str] = []
        for name, used in await in_thread(_used, self.path):
            if name.startswith(_REMOVED):
                await in_thread_to_completion(_remove_tree, self.path, name)
            elif self._retention_days and time.time() - used > self._retention_days * _DAY:
                with suppress(MochiError):  # it is in use, or was never a session's
                    async with self._sessions.storage.claim(name):
                        await self.remove(name)
                        deleted.append(name)
        return deleted

    async def _tend(self) -> None:
        while True:
            try:
                for session_id in await self.clean():
                    logger.info("Deleted the workspace of session %s: it was not used", session_id)
            except OSError as error:
                logger.warning("Unused workspaces cannot be deleted: %s", error)
            await anyio.sleep(CLEAN_SECONDS)

    async def remove(self, session_id: str) -> None:
        """Delete the folder of a session, if it has one."""
        with _storage_errors(session_id):
            await in_thread_to_completion(_move_and_remove, self.path, session_id)
        self._space.measure_again()

    async def _use(
        self,
        session_id: str,
        action: Callable[Concatenate[Path, str, P], T],
        path: str,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        await self._sessions.check_exists(session_id)
        try:
            return await in_thread(action, self.path / session_id, path, *args, **kwargs)
        except OSError as error:
            raise _translated(error, session_id, path) from error


def _translated(error: OSError, session_id: str, path: str) -> MochiError:
    reason = error.strerror or str(error)
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return WorkspaceFileNotFound(file=path)
    if error.errno in _STORAGE_FAILURES:
        return StorageError.because(error, session_id=session_id, reason=reason)
    return WorkspaceFileRefused(file=path, reason=reason)


@contextmanager
def _storage_errors(session_id: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError.because(error, session_id=session_id, reason=reason) from error


def _touch(folder: Path) -> bool:
    """Note that a folder is used now; return False if it is not there."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def _list(folder: Path, path: str, *, recursive: bool) -> FileList:
    if not _touch(folder) and not components(path):
        return FileList(entries=[], is_truncated=False)
    with (
        WorkspaceFolder(folder) as opened,
        closing(opened.entries(path or ROOT, recursive=recursive)) as entries,
    ):
        found = list(islice(entries, MOST_LISTED + 1))
    return FileList(entries=found[:MOST_LISTED], is_truncated=len(found) > MOST_LISTED)


def _open(folder: Path, path: str) -> tuple[int, os.stat_result]:
    _touch(folder)
    with WorkspaceFolder(folder) as opened:
        handle, status = opened.open_file(path)
    if status.st_size > MOST_BYTES:
        os.close(handle)
        raise refusal(f"It is too long: {status.st_size:,} bytes, of at most {MOST_BYTES:,}", path)
    return handle, status


def _write(folder: Path, path: str, content: bytes) -> tuple[FileEntry, bool]:
    with WorkspaceFolder(folder) as opened:
        is_new = opened.write(path, [content])
    name = "/".join(components(path))
    return FileEntry(name, "file", len(content), time.time_ns()), is_new


def _room_of(path: str, size: int) -> int:
    """Return the bytes of a disk that a new file takes at most, with the folders around it."""
    names = 1
    with suppress(OSError):  # it is refused when it is written
        names = len(components(path))
    return room_of(size, beside=names)


def _check_room(folder: Path, size: int) -> None:
    """Raise SpaceUsedUp if a new file makes a folder larger than a program may make it."""
    try:
        used, count = _usage(folder, FOLDER_FILES)
    except OverLimit as error:
        reason = f"There is no room for this: the workspace has {error}."
        raise SpaceUsedUp(reason) from error
    if used + size > FOLDER_MB * 1_000_000 or count >= FOLDER_FILES:
        raise SpaceUsedUp(
            f"There is no room for this: a workspace may have {FOLDER_MB:,} MB and "
            f"{FOLDER_FILES:,} files."
        )


def _usage(folder: Path, most_files: float) -> tuple[int, int]:
    # A program may have closed it (chmod 0): a handle that only names it can be opened anyway.
    handle = os.open(folder, FOLDER | os.O_NOFOLLOW | getattr(os, "O_PATH", 0))
    try:
        return usage(handle, most_files)
    finally:
        os.close(handle)


def _size_of_all(path: Path) -> int:
    return sum(_size_of(path / name) for name, _ in _used(path))


def _size_of(folder: Path) -> int:
    try:
        return _usage(folder, NO_LIMIT)[0]
    except OverLimit:  # too deep to be measured
        return int(FOLDER_MB * 1_000_000)
    except FileNotFoundError:
        return 0


def _delete(folder: Path, path: str, *, recursive: bool) -> None:
    with WorkspaceFolder(folder) as opened:
        opened.delete(path, recursive=recursive)


def _used(path: Path) -> list[tuple[str, float]]:
    """Return the names of all folders, and when each was used last, in seconds since 1970."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return [
            (entry.name, entry.stat(follow_symlinks=False).st_mtime)
            for entry in entries
            if entry.is_dir(follow_symlinks=False)
        ]
    return []


def _move_and_remove(path: Path, session_id: str) -> None:
    """Delete a folder; once it is moved away, it is no longer that of a session."""
    name = f"{_REMOVED}{secrets.token_hex(8)}"
    try:
        (path / session_id).rename(path / name)
    except FileNotFoundError:
        return
    _remove_tree(path, name)


def _remove_tree(path: Path, name: str) -> None:
    parent = os.open(path, FOLDER)
    try:
        remove_tree(parent, name)
    finally:
        os.close(parent)
