"""Readers of what happens, each at its own pace."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from .aio import BackgroundTasks
from .caller import current_caller

MOST_UNREAD = 1000
"""Changes that wait for a reader; one that has more to read is ended."""

T = TypeVar("T")


class FeedReader(Generic[T]):
    """One reader of changes; its methods are those of ``LogReader``.

    Args:
        readers: All readers of the feed; it is in them until it ends.
    """

    def __init__(self, readers: set[FeedReader[T]]) -> None:
        self.task: asyncio.Task[None] | None = None
        """The task that fills it."""
        self._readers = readers
        self._readers.add(self)
        self._unread: list[tuple[int, T]] = []
        self._last = 0
        self._ended = False
        self._poked = False
        self._changed = asyncio.Event()
        self._caller = current_caller()

    def add(self, change: T) -> bool:
        """Add a change.

        Returns:
            False if the reader has too many to read, wants no more, or may not read any more.
        """
        if self._ended or len(self._unread) >= MOST_UNREAD or not self._caller.is_valid():
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

    async def next(self) -> list[tuple[int, T]] | None:
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


class Feed(Generic[T]):
    """The readers of one feed, until it is closed."""

    def __init__(self) -> None:
        self._readers: set[FeedReader[T]] = set()
        self._tasks = BackgroundTasks()
        self._closed = False

    def close(self) -> None:
        """End all readers, and new ones at once: the server is stopping."""
        self._closed = True
        for reader in [*self._readers]:
            reader.end()
