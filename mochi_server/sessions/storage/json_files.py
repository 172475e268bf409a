"""Sessions as ``{session_id}.json`` in a folder that the user owns."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from typing_extensions import override

from ...core.aio import KeyedLocks, in_thread, in_thread_to_completion
from ...core.leases import remove_free_locks
from ...errors import MochiError, SessionBusy
from . import file_operations as files
from .base import Entry, SessionLock, SessionStorage, check_session_id
from .file_operations import HeldLock, scan

_HEADS_AT_ONCE = 500

_SECOND_LOOKS = (0.002, 0.003)
"""Seconds after which a claim that is held is tried again: who removes idle locks, as each command
does at its end, holds them for microseconds."""


class JSONFileStorage(SessionStorage):
    """Sessions in a folder that several processes may use at the same time. POSIX only.

    The folder is made at the first write. Symbolic links are not followed. Locks lie in
    ``.locks`` below the folder; ``aclose`` removes those that are free.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._waiting = KeyedLocks()

    def __repr__(self) -> str:
        return f"JSONFileStorage({os.fspath(self.folder)!r})"

    def _path(self, session_id: str) -> Path:
        return self.folder / f"{check_session_id(session_id)}.json"

    @override
    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        return await in_thread(files.read, session_id, self._path(session_id))

    async def version(self, session_id: str) -> tuple[int, ...]:
        """Return ``(mtime_ns, size, inode)``."""
        return await in_thread(files.version_at, session_id, self._path(session_id))

    @override
    async def read_head(self, session_id: str, size: int) -> bytes:
        return await in_thread(files.read_head, session_id, os.fspath(self._path(session_id)), size)

    @override
    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        heads: list[bytes | MochiError] = []
        for start in range(0, len(session_ids), _HEADS_AT_ONCE):
            some = session_ids[start : start + _HEADS_AT_ONCE]
            heads += await in_thread(files.read_heads, self.folder, some, size)
        return heads

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Write a temporary file, flush and rename it; mode and group of the file stay."""
        return await in_thread_to_completion(files.write, session_id, self._path(session_id), parts)

    async def replace(
        self, session_id: str, version: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        """Lock, compare and write in one call of a thread, which saves switches between threads."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await in_thread_to_completion(files.replace, session_id, path, lock, version, parts)

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Create the file; its lock file stays."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await in_thread_to_completion(files.create, session_id, path, lock, parts)

    @override
    async def delete(self, session_id: str) -> None:
        locks = [self._lock_path(session_id, kind) for kind in ("lock", "claim")]
        await in_thread_to_completion(files.delete, session_id, self._path(session_id), locks)

    async def entries(self) -> list[Entry]:
        """Return every session file; temporary files of crashed processes are removed."""
        return await in_thread(scan, self.folder)

    async def generation(self) -> object | None:
        """Return the folder's time of change, which every rename sets."""
        return await in_thread(files.generation, self.folder)

    async def aclose(self) -> None:
        """Remove the lock files that are free."""
        await in_thread_to_completion(remove_free_locks, self.folder / ".locks")

    @override
    @asynccontextmanager
    async def lock(self, session_id: str) -> AsyncIterator[SessionLock]:
        path = self._lock_path(session_id, "lock")
        async with self._waiting.holding(session_id):
            pause = 0.001
            while (held := await self._take(session_id, path)) is None:
                await anyio.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            hold = _FileSessionLock(self, session_id, held)
            try:
                yield hold
            finally:
                await hold.release()

    @override
    @asynccontextmanager
    async def claim(self, session_id: str) -> AsyncIterator[tuple[int, ...] | None]:
        path = self._lock_path(session_id, "claim")
        held = await self._take(session_id, path)
        for pause in _SECOND_LOOKS:
            if held is not None:
                break
            await anyio.sleep(pause)
            held = await self._take(session_id, path)
        if held is None:
            raise SessionBusy(session_id=session_id)
        try:
            yield held.version
        finally:
            await _release(held)

    def _lock_path(self, session_id: str, kind: str) -> Path:
        return self.folder / ".locks" / f"{check_session_id(session_id)}.{kind}"

    async def _take(self, session_id: str, path: Path) -> HeldLock | None:
        """Take the lock; a cancellation in between releases it."""
        held: list[HeldLock] = []
        try:
            await in_thread_to_completion(
                files.take_lock, session_id, self._path(session_id), path, held
            )
        except BaseException:
            for each in held:
                each.lock.release(remove=True)
            raise
        return held[0] if held else None


async def _release(held: HeldLock) -> None:
    """Release a lock, in a thread only if that removes the file."""
    if held.version is None:
        await in_thread_to_completion(held.release)
    else:
        held.release()


class _FileSessionLock(SessionLock):
    """Writes and releases the lock in one call of a thread, which saves a switch."""

    def __init__(self, storage: JSONFileStorage, session_id: str, held: HeldLock) -> None:
        super().__init__(storage, session_id, held.version)
        self._path = storage.folder / f"{session_id}.json"
        self._taken: HeldLock | None = held

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        held, self._taken = self._taken, None
        if held is None:
            raise RuntimeError("The hold has ended.")
        return await in_thread_to_completion(
            files.write_and_release, self.session_id, self._path, parts, held
        )

    async def release(self) -> None:
        """Release the lock, unless a write has released it."""
        if self._taken is not None:
            held, self._taken = self._taken, None
            await _release(held)
