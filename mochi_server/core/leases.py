"""Locks on files, and leases by which the processes of one machine divide work.

Both are ``flock``: the kernel gives a lock back when its process ends, however it ends. The package
``filelock`` would not do: it has no shared locks, and its lock cannot be renamed with its file.

All of this takes microseconds and waits for nobody, so it may run in the event loop.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from ..errors import StorageError
from .files import PLAIN, PRIVATE_FILE, give_to_folder_owner, make_folder

T = TypeVar("T")

_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_CREATE = _OPEN | os.O_CREAT

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FileLock:
    """A lock on a file; never waits. Programs that we start do not inherit it."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @classmethod
    def create(cls, path: Path) -> FileLock:
        """Create the file, locked; its name may be changed afterwards.

        Raises:
            FileExistsError: there is a file of that name.
        """
        lock = cls(path)
        lock._descriptor = os.open(path, _CREATE | os.O_EXCL, PRIVATE_FILE)
        fcntl.flock(lock._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    @property
    def is_in_place(self) -> bool:
        """Whether it is held, and its file still has its name."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def fileno(self) -> int:
        """Return the descriptor of the file, which must be held."""
        if self._descriptor is None:
            raise ValueError(f"The lock {self.path} is not held.")
        return self._descriptor

    def acquire(self, *, shared: bool = False) -> bool:
        """Take the lock, alone or with other sharers; return False when somebody is in the way.

        Raises:
            OSError: the file cannot be opened.
        """
        while True:
            descriptor = _open(self.path)
            try:
                if not _flock(descriptor, shared=shared):
                    os.close(descriptor)
                    return False
                if _is_at(descriptor, self.path):
                    self._descriptor = descriptor
                    return True
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def touch(self) -> None:
        os.utime(self.path)

    def release(self, *, remove: bool = False) -> None:
        """Give the lock back, if it is held; with ``remove`` the file goes too."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            if remove:
                self.path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    """Open the file, which is made if needed."""
    try:
        return os.open(path, _OPEN)
    except FileNotFoundError:
        descriptor = os.open(path, _CREATE, PRIVATE_FILE)
        give_to_folder_owner(path, descriptor)
        return descriptor


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock alone; False as well where there is no file."""
    try:
        descriptor = os.open(path, PLAIN)
    except FileNotFoundError:
        return False
    try:
        return not _flock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def is_abandoned(path: Path, seconds: float) -> bool:
    """Return whether a file was last changed so many seconds ago and nobody has it locked.

    Its age alone does not tell that its writer died: the time of day may jump while it is written,
    and need not be that of the disk.

    Raises:
        OSError: there is no such file, or it cannot be opened.
    """
    return time.time() - path.lstat().st_mtime > seconds and not is_locked(path)


def remove_free_locks(folder: Path, pattern: str = "*") -> None:
    """Remove the lock files of this folder that no process holds."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in folder.glob(pattern):
            with suppress(OSError):
                lock = FileLock(path)
                if lock.acquire():
                    lock.release(remove=True)


def _flock(descriptor: int, *, shared: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the file still has its name: the last holder may have removed it."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


class FileLease:
    """The right to do one piece of work, which one process has at a time."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock
        self._acquired_at = os.fstat(lock.fileno()).st_mtime_ns

    @property
    def is_requested(self) -> bool:
        """Whether another has requested it since it was acquired."""
        return self._lock.held and os.fstat(self._lock.fileno()).st_mtime_ns != self._acquired_at

    def release(self, *, done: bool) -> None:
        """Give it back; ``done`` work is no longer pending. May be called again."""
        self._lock.release(remove=done)


class FileLeases:
    """Leases of the processes that share a folder, which is made when it is needed.

    Each is an empty file: it is there while the work is pending, its lock is the lease, and a
    change of its time is a request. Work is *pending* until it is done, so that the next start
    finds what a crash interrupted. Names are up to 64 letters, digits, ``_`` and ``-``; others are
    a ValueError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str) -> None:
        """Note that this work is pending.

        Raises:
            StorageError: The folder cannot be written.
        """
        path = self._path(name)
        self._in_folder(partial(path.touch, PRIVATE_FILE))
        give_to_folder_owner(path)

    def acquire(self, name: str) -> FileLease | None:
        """Take the lease, pending or not; None when another has it.

        Raises:
            StorageError: The folder cannot be written.
        """
        lock = FileLock(self._path(name))
        return FileLease(lock) if self._in_folder(lock.acquire) else None

    def request(self, name: str) -> None:
        """Ask the holder, if there is one, to release the lease; never fails."""
        now = time.time_ns()  # the system's own stamp is so coarse that it may not change
        with suppress(OSError):
            os.utime(self._path(name), ns=(now, now), follow_symlinks=False)

    def pending(self) -> list[str]:
        """Return the names of pending work, the latest first."""
        try:
            with os.scandir(self._folder) as entries:
                changed = [
                    (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                    for entry in entries
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for _, name in sorted(changed, reverse=True)]

    def _path(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be the name of a lease.")
        return self._folder / name

    def _in_folder(self, step: Callable[[], T]) -> T:
        try:
            try:
                return step()
            except FileNotFoundError:
                make_folder(self._folder, private=True)
                return step()
        except OSError as error:
            text = f"The folder {self._folder} cannot be used: {error.strerror}"
            raise StorageError.because(error, text, folder=str(self._folder)) from error


class MemoryLease:
    """A lease within this process."""

    def __init__(self, holders: dict[str, MemoryLease], name: str) -> None:
        self._holders = holders
        self._name = name
        self.is_requested = False

    def release(self, *, done: bool) -> None:  # noqa: ARG002 - nothing is pending in memory
        if self._holders.get(self._name) is self:
            del self._holders[self._name]


class MemoryLeases:
    """Leases within this process; what is pending ends with it, and no list of it is kept."""

    def __init__(self) -> None:
        self._holders: dict[str, MemoryLease] = {}

    def add(self, name: str) -> None:
        pass

    def acquire(self, name: str) -> MemoryLease | None:
        if name in self._holders:
            return None
        lease = self._holders[name] = MemoryLease(self._holders, name)
        return lease

    def request(self, name: str) -> None:
        if (lease := self._holders.get(name)) is not None:
            lease.is_requested = True

    def pending(self) -> list[str]:
        return []


Lease: TypeAlias = FileLease | MemoryLease


def leases_in(folder: Path | None) -> FileLeases | MemoryLeases:
    """Return the leases of a folder; without one, leases of this process alone."""
    return MemoryLeases() if folder is None else FileLeases(folder)
