"""What happens to confirmations, for readers that may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ...core.aio import BackgroundTasks
from .store import ConfirmationChange, ConfirmationStore

MOST_UNREAD = 1000
"""Changes that wait for a reader; one that has more to read is ended."""

Numbered = tuple[int, ConfirmationChange]


class ConfirmationFeed:
    """Opens readers of what happens to confirmations, in every process, from now on."""

    def __init__(self, store: ConfirmationStore) -> None:
        self._store = store
        self._readers: set[ConfirmationReader] = set()
        self._tasks = BackgroundTasks()
        self._closed = False

    async def reader(self, session_id: str | None = None) -> ConfirmationReader:
        """Return a new reader; call its ``leave()`` when done.

        Args:
            session_id: The session whose confirmations are read; None: those of all.

        Raises:
            ConfirmationUnavailable: the store cannot be reached.
        """
        reader = ConfirmationReader(self._readers, session_id)
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reader.task = self._tasks.spawn(self._read(reader, began), name="a feed of confirmations")

        def never_began(_: asyncio.Task[None]) -> None:
            if not began.done():
                began.set_result(None)

        reader.task.add_done_callback(never_began)
        try:
            await began
        except BaseException:
            reader.leave()
            raise
        if self._closed:
            reader.end()
        return reader

    def close(self) -> None:
        """End all readers, and new ones at once: the server is stopping."""
        self._closed = True
        for reader in [*self._readers]:
            reader.end()

    async def _read(self, reader: ConfirmationReader, began: asyncio.Future[None]) -> None:
        try:
            async with self._store.watch() as changes:
                if not began.done():
                    began.set_result(None)
                await _copy(changes, reader)
        except Exception as error:
            if began.done():
                raise
            began.set_exception(error)
        finally:
            reader.end()


async def _copy(changes: AsyncIterator[ConfirmationChange], reader: ConfirmationReader) -> None:
    async for change in changes:
        if not reader.add(change):
            return


class ConfirmationReader:
    """One reader of changes, at its own pace; its methods are those of ``LogReader``."""

    def __init__(self, readers: set[ConfirmationReader], session_id: str | None) -> None:
        self.task: asyncio.Task[None] | None = None
        """The task that fills it."""
        self._readers = readers
        self._readers.add(self)
        self._session_id = session_id
        self._unread: list[Numbered] = []
        self._last = 0
        self._ended = False
        self._poked = False
        self._changed = asyncio.Event()

    def add(self, change: ConfirmationChange) -> bool:
        """Add a change; return False if the reader has too many to read, or wants no more."""
        if self._session_id not in (None, change.confirmation.session_id):
            return not self._ended
        if self._ended or len(self._unread) >= MOST_UNREAD:
            return False
        self._last += 1
        self._unread.append((self._last, change))
        self._changed.set()
        return True

    def end(self) -> None:
        """Add no more changes; what is unread can still be read."""
        self._ended = True
        self._changed.set()
        self._readers.discard(self)
        if self.task is not None:
            self.task.cancel()

    def poke(self) -> None:
        """Let ``next()`` return an empty list, so that its caller can send a sign of life."""
        self._poked = True
        self._changed.set()

    async def next(self) -> list[Numbered] | None:
        """Wait for changes, and return all that are unread, with their numbers from 1.

        Returns:
            At least one change; none after ``poke()``; None at the end.
        """
        while True:
            self._changed.clear()
            if self._unread:
                unread, self._unread = self._unread, []
                return unread
            if self._ended:
                return None
            if self._poked:
                self._poked = False
                return []
            await self._changed.wait()

    def leave(self, *, abandon: bool = True) -> None:  # noqa: ARG002 - as a reader of a run has it
        """Stop reading; may be called again."""
        self._unread.clear()
        self.end()
