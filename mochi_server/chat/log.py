"""The log of a turn: numbered events, read by any number of readers at their own speed.

A slow or vanished client never holds the model, and several clients can watch one turn.

When a client leaves, its response ends and its reader leaves the log; the last reader that leaves
cancels the turn's task (``turn``), and what the model has said is stored (``conversation``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ..errors import MochiError
from ..protocol.events import AgentDelta, ContentDelta, Event, ThinkingDelta

FOLD = 32
"""Number of read events that are folded at a time."""
FOLDED_TEXT = 4096
"""Characters after which a folded delta grows no more."""

_DELTAS = (ContentDelta, ThinkingDelta, AgentDelta)


class TurnLog:
    """The numbered events of one turn, from 1.

    Deltas that every reader has seen are folded into longer ones, so that a long reply does not
    cost an object for each token; a reader that comes later gets the same text in fewer events.
    """

    def __init__(self) -> None:
        self._folded: list[tuple[int, Event]] = []
        self._events: list[Event] = []
        self._first = 1
        """Number of the first event that is not folded."""
        self.end = 1
        """The number that the next event will have."""
        self._readers: list[LogReader] = []
        self.closed = False
        self.error: MochiError | None = None
        """Why the turn failed, once the log is closed."""
        self.task_to_cancel: asyncio.Task[None] | None = None
        """Task to cancel when the last reader leaves."""

    def append(self, event: Event) -> None:
        self.extend((event,))

    def extend(self, events: Sequence[Event]) -> None:
        if len(self._events) >= FOLD:
            self._fold()
        self._events.extend(events)
        self.end += len(events)
        for reader in self._readers:
            reader.wake()

    def close(self, error: MochiError | None = None) -> None:
        """Take no more events; readers end when they have read all."""
        self.closed = True
        self.error = error
        self.task_to_cancel = None
        for reader in self._readers:
            reader.wake()

    def reader(self) -> LogReader:
        """Return a new reader at the first event; call its ``leave()`` when done."""
        reader = LogReader(self)
        self._readers.append(reader)
        return reader

    def since(self, position: int) -> list[tuple[int, Event]]:
        if position >= self._first:  # the common case: a reader that keeps up
            return list(enumerate(self._events[position - self._first :], position))
        events = [pair for pair in self._folded if pair[0] >= position]
        events.extend(enumerate(self._events, self._first))
        return events

    def forget_reader(self, reader: LogReader, *, abandon: bool) -> None:
        """Remove a reader; the last one that leaves cancels the turn.

        One that leaves without abandoning the turn lets it run to its end, whoever else leaves.
        """
        self._readers.remove(reader)
        if not abandon:
            self.task_to_cancel = None
        elif not self._readers and self.task_to_cancel is not None:
            cancel_once_begun(self.task_to_cancel)

    def _fold(self) -> None:
        count = min((reader.position for reader in self._readers), default=self.end) - self._first
        if count < FOLD:
            return
        _fold_into(self._folded, self._events[:count], self._first)
        del self._events[:count]
        self._first += count


def _fold_into(folded: list[tuple[int, Event]], events: list[Event], first: int) -> None:
    """Add events; neighbouring deltas of one kind become one with the number of the last."""
    for key, group in groupby(enumerate(events, first), key=lambda pair: _text_key(pair[1])):
        pairs = list(group)
        last = pairs[-1][1]
        if not isinstance(last, _DELTAS):
            folded.extend(pairs)
            continue
        text = "".join([event.content for _, event in pairs if isinstance(event, _DELTAS)])
        before = folded[-1][1] if folded else None
        if (
            isinstance(before, _DELTAS)
            and _text_key(before) == key
            and len(before.content) < FOLDED_TEXT
        ):
            folded.pop()
            text = before.content + text
        folded.append((pairs[-1][0], replace(last, content=text)))


def _text_key(event: Event) -> tuple[type[Event], str | None]:
    """Return the kind of the event and its agent: equal for deltas of the same text."""
    return type(event), event.agent_call_id if isinstance(event, AgentDelta) else None


class LogReader:
    """One reader of a log, at its own position."""

    __slots__ = ("_left", "_log", "_poked", "_waiter", "position")

    def __init__(self, log: TurnLog) -> None:
        self._log = log
        self._waiter: asyncio.Future[None] | None = None
        self._poked = False
        self._left = False
        self.position = 1
        """Number of the next event to read."""

    def wake(self) -> None:
        if (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    def poke(self) -> None:
        """Let ``next()`` return an empty list, so that its caller can send a sign of life."""
        self._poked = True
        self.wake()

    async def next(self) -> list[tuple[int, Event]] | None:
        """Wait for events that are not yet read, and return all of them with their numbers.

        Returns:
            At least one event; none after ``poke()``; None at the end or after ``leave()``.
        """
        log = self._log
        while not self._left:
            if self.position < log.end:
                batch = log.since(self.position)
                self.position = log.end
                return batch
            if log.closed:
                return None
            if self._poked:
                self._poked = False
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return None

    def leave(self, *, abandon: bool = True) -> None:
        """Stop reading; without ``abandon``, for a client that is only slow, the turn goes on."""
        if not self._left:
            self._left = True
            self._log.forget_reader(self, abandon=abandon)
            self.wake()


def cancel_once_begun(task: asyncio.Task[None]) -> None:
    """Cancel a task, but not before its first step: one that never began cleans up nothing."""
    asyncio.get_running_loop().call_soon(task.cancel)
