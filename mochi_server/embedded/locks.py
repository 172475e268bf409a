"""Advisory locks on files that the kernel gives back when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

TAKEN: Final = 75
"""Exit code of a child that finds another one running its model."""


class FileLock:
    """One holder of an ``flock``; never waits. Not inherited by programs that we start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, *, shared: bool = False) -> bool:
        """Take it, alone or with other sharers; False when somebody is in the way."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock(descriptor, shared=shared):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def touch(self) -> None:
        """Set the file's time to now."""
        os.utime(self._path)

    def release(self) -> None:
        """Give it back; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_held(path: Path) -> bool:
    """Whether some process holds the lock alone; False as well when the file is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, shared: bool) -> bool:
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
