"""Locks between tasks of one process, and between processes that share a folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from ...core.files import hand_over

_Turns = dict[str, tuple[asyncio.Lock, list[None]]]


class KeyedLocks:
    """One fair lock for each key in use. Bound to no event loop: each has its own."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()

    @asynccontextmanager
    async def holding(self, key: str) -> AsyncIterator[None]:
        """Wait for the key, in order of arrival."""
        turns = self._loops.setdefault(asyncio.get_running_loop(), {})
        lock, users = turns.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del turns[key]


def take(path: Path) -> int | None:
    """Take the lock file of this path; its descriptor, or None when somebody has it.

    A process that ends gives it back, however it ends. Not passed on to programs we start.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            hand_over(path, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the file still has its name: the holder before us may have taken it away."""
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def remove(handle: int, path: Path) -> None:
    """Remove the lock file while it is still held, then let it go."""
    try:
        with suppress(FileNotFoundError):
            path.unlink()
    finally:
        os.close(handle)


def remove_idle(folder: Path) -> None:
    """Remove the lock files of this folder that nobody holds, in any process."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in folder.iterdir():
            with suppress(OSError):
                if (handle := take(path)) is not None:
                    remove(handle, path)
