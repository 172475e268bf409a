"""Sessions as ``{session_id}.json`` in a folder that the user owns."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio

from ...core.aio import KeyedLocks, in_thread, in_thread_to_completion
from ...core.leases import remove_free_locks
from ...errors import MochiError, SessionBusy
from . import file_operations as files
from .base import Entry, Hold, SessionStorage, check_session_id
from .file_operations import Taken, scan

_HEADS_AT_ONCE = 500

_SECOND_LOOKS = (0.002, 0.003)
"""Seconds after which a claim that is held is tried again: who removes idle locks, as each command
does at its end, holds them for microseconds."""


class JSONFileStorage(SessionStorage):
    """Sessions in a folder, which other processes may use at the same time. POSIX only.

    The folder is made at the first write. Symbolic links are not followed. Locks lie in
    ``.locks`` below the folder; ``aclose`` removes those that nobody holds.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._waiting = KeyedLocks()

    def __repr__(self) -> str:
        return f"JSONFileStorage({os.fspath(self.folder)!r})"

    def _path(self, session_id: str) -> Path:
        return self.folder / f"{check_session_id(session_id)}.json"

    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        """See the base class."""
        return await in_thread(files.read, session_id, self._path(session_id))

    async def signature(self, session_id: str) -> tuple[int, ...]:
        """``(mtime_ns, size, inode)``."""
        return await in_thread(files.signature_at, session_id, self._path(session_id))

    async def read_head(self, session_id: str, size: int) -> bytes:
        """See the base class."""
        return await in_thread(files.read_head, session_id, os.fspath(self._path(session_id)), size)

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        """See the base class."""
        heads: list[bytes | MochiError] = []
        for start in range(0, len(session_ids), _HEADS_AT_ONCE):
            some = session_ids[start : start + _HEADS_AT_ONCE]
            heads += await in_thread(files.read_heads, self.folder, some, size)
        return heads

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """By a temporary file, flushed to disk and renamed; mode and group of the file stay."""
        return await in_thread_to_completion(files.write, session_id, self._path(session_id), parts)

    async def replace(
        self, session_id: str, signature: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        """In one step of a thread; each step costs a switch."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await in_thread_to_completion(
            files.replace, session_id, path, lock, signature, parts
        )

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """See the base class; its lock file is there from now on."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await in_thread_to_completion(files.create, session_id, path, lock, parts)

    async def delete(self, session_id: str) -> None:
        """See the base class."""
        locks = [self._lock_path(session_id, kind) for kind in ("lock", "claim")]
        await in_thread_to_completion(files.delete, session_id, self._path(session_id), locks)

    async def entries(self) -> list[Entry]:
        """See the base class; temporary files of crashed processes are removed on the way."""
        return await in_thread(scan, self.folder)

    async def generation(self) -> object | None:
        """The folder's time of change: every rename moves it."""
        return await in_thread(files.generation, self.folder)

    async def aclose(self) -> None:
        """Remove the lock files that nobody holds."""
        await in_thread_to_completion(remove_free_locks, self.folder / ".locks")

    @asynccontextmanager
    async def _lock(self, session_id: str) -> AsyncIterator[Hold]:
        path = self._lock_path(session_id, "lock")
        async with self._waiting.holding(session_id):
            pause = 0.001
            while (taken := await self._take(session_id, path)) is None:
                await anyio.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            hold = _FileHold(self, session_id, taken)
            try:
                yield hold
            finally:
                await hold.give_back()

    def lock(self, session_id: str) -> AbstractAsyncContextManager[Hold]:
        """See the base class."""
        return self._lock(session_id)

    @asynccontextmanager
    async def _claim(self, session_id: str) -> AsyncIterator[tuple[int, ...] | None]:
        path = self._lock_path(session_id, "claim")
        taken = await self._take(session_id, path)
        for pause in _SECOND_LOOKS:
            if taken is not None:
                break
            await anyio.sleep(pause)
            taken = await self._take(session_id, path)
        if taken is None:
            raise SessionBusy(session_id=session_id)
        try:
            yield taken.signature
        finally:
            await _release(taken)

    def claim(self, session_id: str) -> AbstractAsyncContextManager[tuple[int, ...] | None]:
        """See the base class."""
        return self._claim(session_id)

    def _lock_path(self, session_id: str, kind: str) -> Path:
        return self.folder / ".locks" / f"{check_session_id(session_id)}.{kind}"

    async def _take(self, session_id: str, path: Path) -> Taken | None:
        """A descriptor that is taken is never lost to a cancellation."""
        taken: list[Taken] = []
        try:
            await in_thread_to_completion(
                files.take_lock, session_id, self._path(session_id), path, taken
            )
        except BaseException:
            for each in taken:
                each.lock.release(remove=True)
            raise
        return taken[0] if taken else None


async def _release(taken: Taken) -> None:
    """Give a lock file back, in a thread only where that touches the disk."""
    if taken.signature is None:
        await in_thread_to_completion(taken.release)
    else:
        taken.release()


class _FileHold(Hold):
    """Writes and gives the lock back in one step of a thread: each step costs a switch."""

    def __init__(self, storage: JSONFileStorage, session_id: str, taken: Taken) -> None:
        super().__init__(storage, session_id, taken.signature)
        self._path = storage.folder / f"{session_id}.json"
        self._taken: Taken | None = taken

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        taken, self._taken = self._taken, None
        if taken is None:
            raise RuntimeError("The hold has ended.")
        return await in_thread_to_completion(
            files.write_and_release, self.session_id, self._path, parts, taken
        )

    async def give_back(self) -> None:
        """End the hold, unless a write has."""
        if self._taken is not None:
            taken, self._taken = self._taken, None
            await _release(taken)
