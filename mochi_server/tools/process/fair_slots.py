"""Slots that sessions share, so that one whose calls hang leaves room for others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSlots:
    """A number of slots; a session takes one more while more are free than it has.

    So one session has half of them at most, the next one half of the rest, and a slot is left for
    one more. When a slot comes free, it goes to the waiting session that has the fewest.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._held: Counter[str] = Counter()
        """Slots by session."""
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        """Each until it goes on: a granted or cancelled one is done, and still here."""

    def must_wait(self, session_id: str) -> bool:
        """Whether the next slot of this session is not there yet."""
        return self._held[session_id] >= self._free

    @asynccontextmanager
    async def slot(self, session_id: str) -> AsyncIterator[None]:
        """Hold a slot; wait while the session must."""
        if self.must_wait(session_id):
            await self._wait(session_id)
        else:
            self._take(session_id)
        try:
            yield
        finally:
            self._release(session_id)

    async def _wait(self, session_id: str) -> None:
        entry = (session_id, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if not entry[1].cancelled():  # it was granted at the same moment
                self._release(session_id)
            raise
        finally:
            self._waiting.remove(entry)

    def _take(self, session_id: str) -> None:
        self._held[session_id] += 1
        self._free -= 1

    def _release(self, session_id: str) -> None:
        self._held[session_id] -= 1
        self._free += 1
        if not self._held[session_id]:
            del self._held[session_id]
        while waiting := [entry for entry in self._waiting if not entry[1].done()]:
            session_id, granted = min(waiting, key=lambda entry: self._held[entry[0]])
            if self.must_wait(session_id):
                break
            self._take(session_id)
            granted.set_result(None)
