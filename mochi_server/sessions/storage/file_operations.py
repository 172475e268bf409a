"""Blocking operations on session files and their locks; to be run in a thread."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...core.files import NOT_PLAIN, PLAIN, flush_folder, make_folder, read_plain, replace_file
from ...core.leases import FileLock
from ...errors import MochiError, SessionExists, SessionNotFound, StorageError
from .base import SESSION_ID, Entry, SessionChanged, check_session_id

logger = logging.getLogger(__name__)

LEFTOVER = re.compile(rf"\.{SESSION_ID.pattern}\.[0-9a-f]{{16}}\.tmp")
"""How ``files.replace_file`` names the temporary file of a session; other files are left alone."""

LEFTOVER_SECONDS = 600
"""A temporary file this old belongs to a process that crashed."""


class HeldLock(NamedTuple):
    """A lock that is held, and the session when it was taken."""

    lock: FileLock
    version: tuple[int, ...] | None
    """Version of the session; None if there is none."""

    def release(self) -> None:
        """Release the lock.

        The file of an existing session's lock stays: removing and creating it again takes long.
        """
        self.lock.release(remove=self.version is None)


@contextlib.contextmanager
def _named(session_id: str) -> Iterator[None]:
    """Translate errors of the system."""
    try:
        yield
    except OSError as error:
        raise _in_our_words(session_id, error) from error


def _in_our_words(session_id: str, error: OSError) -> MochiError:
    """Return our error for one of the system; a link, folder or socket is no session."""
    if error.errno in NOT_PLAIN:
        return SessionNotFound(session_id=session_id)
    reason = error.strerror or str(error)
    message = f"The file of session {session_id!r} cannot be used: {reason}"
    return StorageError(message, details={"session_id": session_id})


def version_at(session_id: str, path: Path) -> tuple[int, ...]:
    """Return the version of the file."""
    with _named(session_id):
        status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise SessionNotFound(session_id=session_id)
    return _version_of(status)


def read(session_id: str, path: Path) -> tuple[bytes, tuple[int, ...]]:
    """Return the content and its version."""
    with _named(session_id):
        content, status = read_plain(path)
    return content, _version_of(status)


def read_head(session_id: str, path: str, size: int) -> bytes:
    """Return at most the first ``size`` bytes."""
    with _named(session_id):
        return _head(path, size)


def _head(path: str, size: int) -> bytes:
    handle = os.open(path, PLAIN)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


def read_heads(folder: Path, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
    """Return the first bytes of many files, or the error in their place."""
    start = os.fspath(folder)
    return [_head_or_error(start, check_session_id(each), size) for each in session_ids]


def _head_or_error(folder: str, session_id: str, size: int) -> bytes | MochiError:
    path = f"{folder}/{session_id}.json"
    try:
        return _head(path, size)
    except OSError as error:
        return _in_our_words(session_id, error)


def write(session_id: str, path: Path, parts: Iterable[bytes]) -> tuple[int, ...]:
    """Replace or create the file, atomically and durably, and return the new version."""
    try:
        return _version_of(replace_file(path, parts, private=True))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(session_id=session_id, reason=reason) from error


def create(session_id: str, path: Path, lock: Path, parts: Iterable[bytes]) -> tuple[int, ...]:
    """Write a new file while its lock is held; the lock file stays.

    Raises:
        SessionExists: it exists, or is locked.
    """
    held: list[HeldLock] = []
    if not os.path.lexists(path):
        take_lock(session_id, path, lock, held)
    if not held:  # or another process is creating it now
        raise SessionExists(session_id=session_id)
    if os.path.lexists(path):
        held[0].release()
        raise SessionExists(session_id=session_id)
    try:
        version = write(session_id, path, parts)
    except BaseException:
        held[0].release()
        raise
    held[0].lock.release()
    return version


def delete(session_id: str, path: Path, locks: Iterable[Path]) -> None:
    """Delete the file, durably, and its lock files."""
    version_at(session_id, path)
    with _named(session_id):
        path.unlink()
        flush_folder(path.parent)
    for lock in locks:  # nobody else holds them: the caller has the claim
        with contextlib.suppress(OSError):
            lock.unlink()


def take_lock(session_id: str, path: Path, lock: Path, held: list[HeldLock]) -> None:
    """Put the lock file into ``held``, unless another process holds it."""
    file_lock = FileLock(lock)
    try:
        acquired = _acquire(file_lock)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(session_id=session_id, reason=reason) from error
    if acquired:
        held.append(HeldLock(file_lock, _known(path)))


def _acquire(lock: FileLock) -> bool:
    try:
        return lock.acquire()
    except FileNotFoundError:
        make_folder(lock.path.parent, private=True)
        return lock.acquire()


def _known(path: Path) -> tuple[int, ...] | None:
    """Return the version of the file, None when there is no session."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return _version_of(status) if stat.S_ISREG(status.st_mode) else None


def replace(
    session_id: str, path: Path, lock: Path, version: tuple[int, ...], parts: Iterable[bytes]
) -> tuple[int, ...]:
    """Write the file if it still has this version, while its lock is held.

    Raises:
        SessionChanged: it has changed, or is locked.
    """
    held: list[HeldLock] = []
    take_lock(session_id, path, lock, held)
    if not held:
        raise SessionChanged
    if held[0].version != version:
        held[0].release()
        raise SessionChanged
    return write_and_release(session_id, path, parts, held[0])


def write_and_release(
    session_id: str, path: Path, parts: Iterable[bytes], held: HeldLock
) -> tuple[int, ...]:
    """Write the file and release the lock, also after an error."""
    try:
        return write(session_id, path, parts)
    finally:
        held.release()


def generation(folder: Path) -> object | None:
    """Return time and inode of the folder; the time is that of the last rename in it."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino)


def _version_of(status: os.stat_result) -> tuple[int, ...]:
    """Return ``(mtime_ns, size, inode)``."""
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def scan(folder: Path, *, tidy: bool = True) -> list[Entry]:
    """Return every session file, and other files with such a name.

    Args:
        folder: Where they are.
        tidy: Whether leftovers of crashed processes are removed.

    Raises:
        StorageError: The folder cannot be listed.
    """
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _not_listed(folder, error) from error
    try:
        return _entries(directory, tidy=tidy)
    except OSError as error:
        raise _not_listed(folder, error) from error
    finally:
        os.close(directory)


def _not_listed(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"{folder} cannot be listed: {error.strerror or error}")


def _entries(directory: int, *, tidy: bool) -> list[Entry]:
    """Return the entries of an open folder; written for speed, it sees every file."""
    entries: list[Entry] = []
    get_status, is_id, is_plain = os.stat, SESSION_ID.fullmatch, stat.S_ISREG
    for name in os.listdir(directory):
        if not name.endswith(".json") or name.startswith("."):
            if tidy and LEFTOVER.fullmatch(name):
                _remove_leftover(name, directory)
            continue
        try:
            status = get_status(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        session_id, time_ns = name[:-5], status.st_mtime_ns
        version = (time_ns, status.st_size, status.st_ino)
        if is_plain(status.st_mode) and is_id(session_id):
            entries.append(Entry(session_id, version, time_ns // 1000))
        else:
            reason = _reason(status)
            entries.append(Entry(session_id, version, time_ns // 1000, reason))
    return entries


def _reason(status: os.stat_result) -> str:
    """Return why this is not a session."""
    if stat.S_ISREG(status.st_mode):
        return "the file's name is not a session id"
    return "not a plain file"


def _remove_leftover(name: str, directory: int) -> None:
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if time.time() - status.st_mtime > LEFTOVER_SECONDS:
            logger.info("Removing %s, left by a process that crashed", name)
            os.unlink(name, dir_fd=directory)
