"""The log of a run: numbered events, read by any number of readers at their own speed.

A slow or vanished client never holds the model, and several clients can watch one run.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from ...errors import MochiError
from ...protocol.events import (
    AgentDelta,
    AgentExecution,
    AgentPlanning,
    ContentDelta,
    Event,
    ThinkingDelta,
)
from ...protocol.messages import AssistantMessage, ToolMessage

FOLD = 32
"""Number of read events that are folded at a time."""
FOLDED_TEXT = 4096
"""Characters after which a folded delta grows no more."""

Delta: TypeAlias = AgentPlanning | AgentExecution | ContentDelta | ThinkingDelta
DELTAS = (ContentDelta, ThinkingDelta, AgentPlanning, AgentExecution)
_AGENT_CALL_ID = attrgetter("agent_call_id")

Numbered = tuple[int, Event]

StoredMessages = deque[AssistantMessage | ToolMessage]
"""Messages that a run has stored; a reader of whole messages takes them out."""


class FoldedDeltas(NamedTuple):
    """Neighbouring deltas of one kind as one; it can be split at any of their numbers."""

    event: Delta
    """The deltas' texts in one."""
    first: int
    """Number of the first delta."""
    ends: array[int]
    """Where each delta's text ends in the whole."""

    @property
    def last(self) -> int:
        """Number of the last delta."""
        return self.first + len(self.ends) - 1

    def since(self, number: int) -> Numbered:
        """Return the deltas from this number on as one event, with the number of the last."""
        begin = self.ends[number - self.first - 1] if number > self.first else 0
        event = (
            self.event if begin == 0 else replace(self.event, content=self.event.content[begin:])
        )
        return self.last, event

    def before(self, number: int) -> Numbered:
        """Return the deltas before this number as one event, with the number of the last."""
        last = min(self.last, number - 1)
        text = self.event.content[: self.ends[last - self.first]]
        return last, replace(self.event, content=text)


class RunLog:
    """The numbered events of one run.

    Deltas that every reader has seen are folded into longer ones, so that a long reply does not
    cost an object for each token; a reader that comes later gets the same text in fewer events.
    """

    __slots__ = ("_events", "_first", "_folded", "_readers", "closed", "end", "error", "on_unread")

    def __init__(self, first: int = 1) -> None:
        """Begin an empty log, the first event of which will have this number."""
        self._folded: list[Numbered | FoldedDeltas] = []
        self._events: list[Event] = []
        self._first = first
        """Number of the first event that is not folded."""
        self.end = first
        """The number that the next event will have."""
        self._readers: list[LogReader] = []
        self.closed = False
        self.error: MochiError | None = None
        """Why the run failed, once the log is closed."""
        self.on_unread: Callable[[], None] | None = None
        """Called when the last reader leaves."""

    @property
    def is_read(self) -> bool:
        """Whether anybody reads it now."""
        return bool(self._readers)

    @property
    def deltas(self) -> int:
        """Number of the pieces of text and thinking so far, about one for each token."""
        folded = sum(len(one.ends) for one in self._folded if isinstance(one, FoldedDeltas))
        return folded + sum(isinstance(event, DELTAS) for event in self._events)

    def append(self, event: Event) -> None:
        self.extend((event,))

    def extend(self, events: Sequence[Event]) -> None:
        """Add events and wake the readers."""
        if len(self._events) >= FOLD:
            self._fold()
        self._events.extend(events)
        self.end += len(events)
        for reader in self._readers:
            reader.wake()

    def jump(self, number: int) -> None:
        """Let the next event have this number, which must not be below ``end``."""
        _fold_into(self._folded, self._events, self._first)
        self._events.clear()
        self._first = self.end = number

    def close(self, error: MochiError | None = None) -> None:
        """Take no more events; readers end when they have read all."""
        self.closed = True
        self.error = error
        self.on_unread = None
        for reader in self._readers:
            reader.wake()

    def stored(self, messages: Sequence[AssistantMessage | ToolMessage]) -> None:
        """Tell readers of whole messages what is stored, before the events that follow from it."""
        for reader in self._readers:
            if reader.messages is not None:
                reader.messages.extend(messages)

    def reader(self, after: int = 0, *, whole_messages: bool = False) -> LogReader:
        """Return a new reader; call its ``leave()`` when done.

        Args:
            after: The number after which it reads.
            whole_messages: Whether it gets the messages that are stored from now on, too.
        """
        reader = LogReader(self, after + 1)
        if whole_messages:
            reader.messages = StoredMessages()
        self.add_reader(reader)
        return reader

    def detach_whole_messages(self) -> list[RunLog]:
        """Let each reader of whole messages read on in a log of its own; return these logs."""
        readers = [reader for reader in self._readers if reader.messages is not None]
        return [reader.detach() for reader in readers]

    def since(self, position: int) -> list[Numbered]:
        """Return all events from this number on, each with its number."""
        if position >= self._first:  # the common case: a reader that keeps up
            return list(enumerate(self._events[position - self._first :], position))
        events: list[Numbered] = []
        for entry in self._folded:
            if isinstance(entry, FoldedDeltas):
                if entry.last >= position:
                    events.append(entry.since(position))
            elif entry[0] >= position:
                events.append(entry)
        events.extend(enumerate(self._events, self._first))
        return events

    def before(self, position: int) -> list[Numbered]:
        """Return all events before this number, each with its number."""
        events: list[Numbered] = []
        for entry in self._folded:
            if isinstance(entry, FoldedDeltas):
                if entry.first < position:
                    events.append(entry.before(position))
            elif entry[0] < position:
                events.append(entry)
        count = max(position - self._first, 0)
        return events + list(enumerate(self._events[:count], self._first))

    def add_reader(self, reader: LogReader) -> None:
        self._readers.append(reader)

    def forget_reader(self, reader: LogReader, *, abandon: bool) -> None:
        """Remove a reader; the last one that leaves calls ``on_unread``.

        One that leaves without abandoning the run lets it go on to its end, whoever else leaves.
        """
        self._readers.remove(reader)
        if not abandon:
            self.on_unread = None
        elif not self._readers and self.on_unread is not None:
            self.on_unread()

    def _fold(self) -> None:
        """Fold the events that all readers have read, if they are enough."""
        # A reader may be ahead: what it has read elsewhere is not here yet.
        read = min((reader.position for reader in self._readers), default=self.end)
        count = min(read, self.end) - self._first
        if count < FOLD:
            return
        _fold_into(self._folded, self._events[:count], self._first)
        del self._events[:count]
        self._first += count


def _fold_into(folded: list[Numbered | FoldedDeltas], events: list[Event], first: int) -> None:
    """Add events; neighbouring deltas of one kind become one."""
    for kind, group in groupby(events, type):  # there is a delta for each token: no call for each
        of_kind = [*group]
        if not issubclass(kind, DELTAS):
            folded.extend(enumerate(of_kind, first))
            first += len(of_kind)
            continue
        texts: list[list[Any]] = [of_kind]
        if issubclass(kind, AgentDelta):
            texts = [[*deltas] for _, deltas in groupby(of_kind, _AGENT_CALL_ID)]
        for deltas in texts:
            _fold_deltas(folded, deltas, first)
            first += len(deltas)


def _fold_deltas(folded: list[Numbered | FoldedDeltas], deltas: list[Delta], first: int) -> None:
    """Add deltas of one text, to the end of what is there already if that is not too long."""
    texts = [delta.content for delta in deltas]
    last = folded[-1] if folded else None
    if (
        isinstance(last, FoldedDeltas)
        and last.last + 1 == first
        and _text_key(last.event) == _text_key(deltas[0])
        and len(last.event.content) < FOLDED_TEXT
    ):
        folded.pop()
        first, ends, before = last.first, last.ends, last.event.content
    else:
        ends, before = array("I"), ""
    ends.extend(islice(accumulate(map(len, texts), initial=len(before)), 1, None))
    event = replace(deltas[0], content="".join([before, *texts]))
    folded.append(FoldedDeltas(event, first, ends))


def _text_key(event: Delta) -> tuple[type[Delta], str | None]:
    """Return the kind of the event and its agent: equal for deltas of the same text."""
    return type(event), event.agent_call_id if isinstance(event, AgentDelta) else None


class LogReader:
    """One reader of a log, at its own position."""

    __slots__ = ("_left", "_log", "_poked", "_waiter", "messages", "position")

    def __init__(self, log: RunLog, position: int) -> None:
        self._log = log
        self._waiter: asyncio.Future[None] | None = None
        self._poked = False
        self._left = False
        self.position = position
        """Number of the next event to read."""
        self.messages: StoredMessages | None = None
        """What was stored, for a reader of whole messages, who takes it out."""

    @property
    def failure(self) -> MochiError | None:
        """Why the run failed, once all is read."""
        return self._log.error

    def before(self, position: int) -> list[Numbered]:
        """Return the events before this number, once later ones were read."""
        return self._log.before(position)

    def wake(self) -> None:
        """Let a waiting ``next()`` look for events again."""
        if (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    def poke(self) -> None:
        """Let ``next()`` return an empty list, so that its caller can send a sign of life."""
        self._poked = True
        self.wake()

    async def next(self) -> list[Numbered] | None:
        """Wait for events that are not yet read, and return all of them with their numbers.

        Returns:
            At least one event; none after ``poke()``; None at the end or after ``leave()``.
        """
        while not self._left:
            log = self._log
            if self.position < log.end:
                batch = log.since(self.position)
                self.position = log.end
                if batch:  # not only a jump of the numbers
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

    def detach(self) -> RunLog:
        """Read on in a log that nobody else reads, and return it; it has what is unread."""
        unread = [event for _, event in self._log.since(self.position)]
        log = RunLog(self._log.end - len(unread))
        log.extend(unread)
        self._log.forget_reader(self, abandon=False)
        self._log = log
        log.add_reader(self)
        return log

    def leave(self, *, abandon: bool = True) -> None:
        """Stop reading; may be called again.

        Args:
            abandon: Whether the run may be cancelled now; False for a client that is only slow.
        """
        if not self._left:
            self._left = True
            self._log.forget_reader(self, abandon=abandon)
            self.wake()
