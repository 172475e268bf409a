"""Sessions that live as long as the process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from ...core.aio import KeyedLocks
from ...errors import MochiError, SessionBusy, SessionExists, SessionNotFound
from .base import Entry, SessionLock, SessionStorage, check_session_id


class MemoryStorage(SessionStorage):
    """Keeps everything in a dictionary, for tests and for temporary conversations.

    For one event loop at a time.
    """

    def __init__(self) -> None:
        self._contents: dict[str, tuple[bytes, Entry]] = {}
        self._claimed: set[str] = set()
        self._waiting = KeyedLocks()
        self._changes = 0

    def __repr__(self) -> str:
        return f"<MemoryStorage of {len(self._contents)} sessions>"

    def _get(self, session_id: str) -> tuple[bytes, Entry]:
        try:
            return self._contents[check_session_id(session_id)]
        except KeyError as error:
            raise SessionNotFound(session_id=session_id) from error

    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        content, entry = self._get(session_id)
        return content, entry.version

    async def version(self, session_id: str) -> tuple[int, ...]:
        return self._get(session_id)[1].version

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        found = [self._contents.get(check_session_id(each)) for each in session_ids]
        return [
            SessionNotFound(session_id=each) if content is None else content[0][:size]
            for each, content in zip(session_ids, found, strict=True)
        ]

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        check_session_id(session_id)
        self._changes += 1
        content, modified = b"".join(parts), time.time_ns() // 1000
        entry = Entry(session_id, (self._changes,), modified, size=len(content))
        self._contents[session_id] = (content, entry)
        return entry.version

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        if check_session_id(session_id) in self._contents:
            raise SessionExists(session_id=session_id)
        return await self.write(session_id, parts)

    async def delete(self, session_id: str) -> None:
        self._get(session_id)
        del self._contents[session_id]
        self._changes += 1

    async def entries(self) -> list[Entry]:
        return [entry for _, entry in self._contents.values()]

    async def generation(self) -> object | None:
        return self._changes

    def _known(self, session_id: str) -> tuple[int, ...] | None:
        content = self._contents.get(session_id)
        return content[1].version if content else None

    @asynccontextmanager
    async def lock(self, session_id: str) -> AsyncIterator[SessionLock]:
        async with self._waiting.holding(check_session_id(session_id)):
            yield SessionLock(self, session_id, self._known(session_id))

    @asynccontextmanager
    async def claim(self, session_id: str) -> AsyncIterator[tuple[int, ...] | None]:
        if check_session_id(session_id) in self._claimed:
            raise SessionBusy(session_id=session_id)
        self._claimed.add(session_id)
        try:
            yield self._known(session_id)
        finally:
            self._claimed.discard(session_id)
