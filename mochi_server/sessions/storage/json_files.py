"""Sessions as ``{session_id}.json`` in a folder that the user owns."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio

from ...core.aio import KeyedLocks, in_thread, in_thread_to_completion
from ...core.files import NOT_PLAIN, PLAIN, flush_folder, make_folder, read_plain, replace_file
from ...core.leases import FileLock, is_abandoned, remove_free_locks
from ...errors import MochiError, SessionBusy, SessionExists, SessionNotFound, StorageError
from .base import (
    ID_PATTERN,
    SESSION_ID,
    Entry,
    SessionChanged,
    SessionLock,
    SessionStorage,
    check_session_id,
)

logger = logging.getLogger(__name__)

LEFTOVER = re.compile(rf"\.{ID_PATTERN}\.[0-9a-f]{{16}}\.tmp")
"""How ``replace_file`` names the temporary file of a session; other files are left alone."""

LEFTOVER_SECONDS = 600
"""A temporary file this old that nobody writes belongs to a process that crashed."""

_CLAIM_RETRIES = (0.002, 0.003, 0.015, 0.03)
"""Seconds after which a claim that is held is tried again: who removes idle locks, as each command
does at its end, holds them for microseconds, or until a busy machine lets it go on."""


class JSONFileStorage(SessionStorage):
    """Sessions in a folder that several processes may use at the same time. POSIX only.

    The folder is made at the first write. Symbolic links are not followed. Locks lie in
    ``.locks`` below the folder; ``aclose`` removes those that are free.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._locks = self.folder / ".locks"
        self._waiting = KeyedLocks()

    def __repr__(self) -> str:
        return f"JSONFileStorage({os.fspath(self.folder)!r})"

    def _path(self, session_id: str) -> Path:
        return self.folder / f"{check_session_id(session_id)}.json"

    def _lock_path(self, session_id: str, kind: str) -> Path:
        return self._locks / f"{check_session_id(session_id)}.{kind}"

    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        return await in_thread(_read, session_id, self._path(session_id))

    async def version(self, session_id: str) -> tuple[int, ...]:
        return await in_thread(_version_at, session_id, self._path(session_id))

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        return await in_thread(_read_heads, self.folder, session_ids, size)

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Write a temporary file, flush and rename it; mode and group of the file stay."""
        return await in_thread_to_completion(_write, session_id, self._path(session_id), parts)

    async def replace(
        self, session_id: str, version: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        """Lock, compare and write in one call of a thread, which saves switches between threads."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await in_thread_to_completion(_replace, session_id, path, lock, version, parts)

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await in_thread_to_completion(_create, session_id, path, lock, parts)

    async def delete(self, session_id: str) -> None:
        lock = self._lock_path(session_id, "lock")
        await in_thread_to_completion(_delete, session_id, self._path(session_id), lock)

    async def entries(self) -> list[Entry]:
        """Return every session file; temporary files of crashed processes are removed."""
        return await in_thread(scan, self.folder)

    async def generation(self) -> object | None:
        """Return the folder's time of change, which every rename sets."""
        return await in_thread(_generation, self.folder)

    async def aclose(self) -> None:
        await in_thread_to_completion(remove_free_locks, self._locks)

    @asynccontextmanager
    async def lock(self, session_id: str) -> AsyncIterator[SessionLock]:
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        async with self._waiting.holding(session_id):
            pause = 0.001
            while (held := _take_lock(session_id, path, lock)) is None:
                await anyio.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            hold = _FileSessionLock(self, session_id, held)
            try:
                yield hold
            finally:
                await hold.release()

    @asynccontextmanager
    async def claim(self, session_id: str) -> AsyncIterator[tuple[int, ...] | None]:
        path, lock = self._path(session_id), self._lock_path(session_id, "claim")
        held = _take_lock(session_id, path, lock)
        for pause in _CLAIM_RETRIES:
            if held is not None:
                break
            await anyio.sleep(pause)
            held = _take_lock(session_id, path, lock)
        if held is None:
            raise SessionBusy(session_id=session_id)
        try:
            yield held.version
        finally:
            await _release(held.after_changes_of(path))


class _HeldLock(NamedTuple):
    """A lock that is held, and the session's version when it was taken; None if there is none."""

    lock: FileLock
    version: tuple[int, ...] | None

    def after_changes_of(self, path: Path) -> _HeldLock:
        """Return the lock as it is to be released when the session may have been deleted."""
        return self if path.exists() else self._replace(version=None)

    def release(self) -> None:
        # The file of an existing session's lock stays: removing and creating it takes long.
        self.lock.release(remove=self.version is None)


async def _release(held: _HeldLock) -> None:
    """Release a lock, in a thread only if that removes the file."""
    if held.version is None:
        await in_thread_to_completion(held.release)
    else:
        held.release()


class _FileSessionLock(SessionLock):
    """Writes and releases the lock in one call of a thread, which saves a switch."""

    def __init__(self, storage: JSONFileStorage, session_id: str, held: _HeldLock) -> None:
        super().__init__(storage, session_id, held.version)
        self._path = storage.folder / f"{session_id}.json"
        self._taken: _HeldLock | None = held

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        held, self._taken = self._taken, None
        if held is None:
            raise RuntimeError("The hold has ended.")
        return await in_thread_to_completion(
            _write_and_release, self.session_id, self._path, parts, held
        )

    async def release(self) -> None:
        """Release the lock, unless a write has released it."""
        if self._taken is not None:
            held, self._taken = self._taken, None
            await _release(held)


# Blocking operations, for a thread


@contextlib.contextmanager
def _errors_of(session_id: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _error_of(session_id, error) from error


def _error_of(session_id: str, error: OSError) -> MochiError:
    """Return our error for one of the system; a link, folder or socket is no session."""
    if error.errno in NOT_PLAIN:
        return SessionNotFound(session_id=session_id)
    reason = error.strerror or str(error)
    message = f"The file of session {session_id!r} cannot be used: {reason}"
    return StorageError.because(error, message, session_id=session_id)


def _version_at(session_id: str, path: Path) -> tuple[int, ...]:
    with _errors_of(session_id):
        status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise SessionNotFound(session_id=session_id)
    return _version_of(status)


def _version_of(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _read(session_id: str, path: Path) -> tuple[bytes, tuple[int, ...]]:
    with _errors_of(session_id):
        content, status = read_plain(path)
    return content, _version_of(status)


def _read_heads(folder: Path, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
    start = os.fspath(folder)
    return [_head_or_error(start, check_session_id(each), size) for each in session_ids]


def _head_or_error(folder: str, session_id: str, size: int) -> bytes | MochiError:
    try:
        handle = os.open(f"{folder}/{session_id}.json", PLAIN)
        try:
            return os.read(handle, size)
        finally:
            os.close(handle)
    except OSError as error:
        return _error_of(session_id, error)


def _write(session_id: str, path: Path, parts: Iterable[bytes]) -> tuple[int, ...]:
    try:
        return _version_of(replace_file(path, parts, private=True))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError.because(error, session_id=session_id, reason=reason) from error


def _create(session_id: str, path: Path, lock: Path, parts: Iterable[bytes]) -> tuple[int, ...]:
    """Write a new file while its lock is held; the lock file stays."""
    held = None if os.path.lexists(path) else _take_lock(session_id, path, lock)
    if held is None:  # or another process is creating it now
        raise SessionExists(session_id=session_id)
    if os.path.lexists(path):
        held.release()
        raise SessionExists(session_id=session_id)
    try:
        version = _write(session_id, path, parts)
    except BaseException:
        held.release()
        raise
    held.lock.release()
    return version


def _delete(session_id: str, path: Path, lock: Path) -> None:
    _version_at(session_id, path)
    with _errors_of(session_id):
        path.unlink()
        flush_folder(path.parent)
    with contextlib.suppress(OSError):  # nobody else holds it: the caller has the claim
        lock.unlink()


def _take_lock(session_id: str, path: Path, lock: Path) -> _HeldLock | None:
    """Take the lock; None if another holds it.

    It takes microseconds and waits for nobody: in a thread, waiting for the interpreter before
    each of its system calls would take far longer.
    """
    file_lock = FileLock(lock)
    try:
        acquired = _acquire(file_lock)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError.because(error, session_id=session_id, reason=reason) from error
    return _HeldLock(file_lock, _known_version(path)) if acquired else None


def _acquire(lock: FileLock) -> bool:
    try:
        return lock.acquire()
    except FileNotFoundError:
        make_folder(lock.path.parent, private=True)
        return lock.acquire()


def _known_version(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return _version_of(status) if stat.S_ISREG(status.st_mode) else None


def _replace(
    session_id: str, path: Path, lock: Path, version: tuple[int, ...], parts: Iterable[bytes]
) -> tuple[int, ...]:
    """Write the file if it still has this version, while its lock is held."""
    held = _take_lock(session_id, path, lock)
    if held is None:
        raise SessionChanged
    if held.version != version:
        held.release()
        raise SessionChanged
    return _write_and_release(session_id, path, parts, held)


def _write_and_release(
    session_id: str, path: Path, parts: Iterable[bytes], held: _HeldLock
) -> tuple[int, ...]:
    """Write the file and release the lock, also after an error."""
    try:
        return _write(session_id, path, parts)
    finally:
        held.release()


def _generation(folder: Path) -> object | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino)


def scan(folder: Path, *, tidy: bool = True) -> list[Entry]:
    """Return every session file, and other files with such a name; blocks.

    Raises:
        StorageError: the folder cannot be listed.
    """
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _entries(folder, directory, tidy=tidy)
        finally:
            os.close(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        text = f"{folder} cannot be listed: {error.strerror or error}"
        raise StorageError.because(error, text) from error


def _entries(folder: Path, directory: int, *, tidy: bool) -> list[Entry]:
    """Return the entries of an open folder; written for speed, it sees every file."""
    entries: list[Entry] = []
    get_status, is_id, is_plain = os.stat, SESSION_ID.fullmatch, stat.S_ISREG
    for name in os.listdir(directory):
        if not name.endswith(".json") or name.startswith("."):
            if tidy and LEFTOVER.fullmatch(name):
                _remove_leftover(folder / name)
            continue
        try:
            status = get_status(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        session_id, time_ns = name[:-5], status.st_mtime_ns
        version = (time_ns, status.st_size, status.st_ino)
        problem = None
        if not is_plain(status.st_mode):
            problem = "not a plain file"
        elif not is_id(session_id):
            problem = "the file's name is not a session id"
        entries.append(Entry(session_id, version, time_ns // 1000, problem, status.st_size))
    return entries


def _remove_leftover(path: Path) -> None:
    with contextlib.suppress(OSError):
        if is_abandoned(path, LEFTOVER_SECONDS):
            logger.info("Removing %s, left by a process that crashed", path.name)
            path.unlink()
