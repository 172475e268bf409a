"""The journal of runs: what each has said, kept until nobody can want it again.

A run has a sequence of JSON lines (``records``), which one process writes and any may read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import anyio

from ...errors import StorageError
from ...protocol.events import Event
from .records import Line, Note, RunHead, encode_events, encode_head, encode_note

logger = logging.getLogger(__name__)


class JournalPart(NamedTuple):
    """The lines of a run from a position on."""

    lines: list[Line]
    position: object
    """Where the next part begins."""
    is_held: bool
    """Whether a process writes it now; if not, the lines are all that it wrote."""


@dataclass(frozen=True, slots=True)
class JournalledRun:
    """A run as a list of runs shows it."""

    run_id: str
    session_id: str
    started_at: str
    end: str | None
    """How it ended; None while it goes on, waits, or its process has died."""
    is_held: bool
    """Whether a process executes it, where it has not ended."""
    is_parked: bool
    """Whether it waits for a person, and no process need execute it."""
    is_queued: bool
    """Whether it waits in a process until the runs before it have ended."""
    owner: str | None = None
    """To whom its session belongs."""

    @property
    def waits(self) -> bool:
        """Whether it waits for a person, and no process executes it."""
        return self.is_parked and self.end is None and not self.is_held


@contextmanager
def translate_errors(kind: type[Exception]) -> Iterator[None]:
    """Raise StorageError in the place of an error of the disk or of a client."""
    try:
        yield
    except kind as error:
        raise StorageError(f"The journal of runs cannot be used: {error}") from error


class Sink(ABC):
    """Where lines are appended."""

    @abstractmethod
    async def append(self, data: bytes) -> int:
        """Append whole lines, as many as there is room for, and return their length in bytes.

        Raises:
            OSError: nothing was appended.
        """

    @abstractmethod
    def close(self) -> None:
        """Let another process continue the run; may be called again."""


class RunWriter:
    """Writes one run. Lines wait in memory until the journal is flushed."""

    __slots__ = (
        *("_count", "_events", "_first", "_lines", "_prefix"),
        *("closed", "is_lost", "run_id", "sink"),
    )

    def __init__(self, run_id: str, sink: Sink) -> None:
        self.run_id = run_id
        self.sink = sink
        self.closed: float | None = None
        """When the run was let go, which happens as soon as nothing waits; None before."""
        self.is_lost = False
        """Whether another process has taken the run; nothing is written any more."""
        self._prefix = run_id.encode() + b" "
        self._lines: deque[bytes] = deque()
        self._count = 0
        self._events: list[Event] = []
        self._first = 0

    def begin(self, head: RunHead) -> None:
        """Add a head."""
        self._add(encode_head(head))

    def add(self, first: int, events: Sequence[Event]) -> None:
        """Add events, the first of which has this number."""
        if self._events and first != self._first + len(self._events):
            self._encode_events()
        if not self._events:
            self._first = first
        self._events += events

    def note(self, name: str, **data: object) -> int:
        """Add a note behind all events so far, and return the number of its line."""
        self._encode_events()
        self._add(encode_note(Note(name, data)))  # type: ignore[arg-type] # JSON values
        return self._count

    def is_written(self, line: int) -> bool:
        """Return whether the line with this number does not wait any more."""
        return line <= self._count - len(self._lines)

    @property
    def waiting(self) -> deque[bytes]:
        """The lines that wait to be written."""
        self._encode_events()
        return self._lines

    def _encode_events(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._add(encode_events(self._first, events))

    def _add(self, line: bytes) -> None:
        if not self.is_lost:
            self._lines.append(self._prefix + line + b"\n")
            self._count += 1


class RunJournal(ABC):
    """The runs of every process that shares the journal.

    Where the journal cannot be reached, whatever reads it or takes a run raises StorageError;
    lines wait in memory until they can be written.
    """

    follow_seconds: ClassVar[float] = 0.05
    """Longest pause between two looks at a run that another process writes."""

    has_leases: ClassVar[bool] = False
    """Whether a run can be taken although its process lives, which could not renew its lease."""

    def __init__(self) -> None:
        self._writers: dict[str, RunWriter] = {}
        self._writing = asyncio.Lock()
        self._failed = False

    @abstractmethod
    def _open(self, head: RunHead) -> Sink:
        """Return where a run is written that is new, or was queued until now."""

    @abstractmethod
    async def take(self, run_id: str) -> RunWriter | None:
        """Continue a run that no process writes.

        Return None if a process does, if the run has ended, or if there is no such run.
        """

    @abstractmethod
    async def read(self, run_id: str, position: object = None) -> JournalPart | None:
        """Return what a run has from a position on, from its begin without one.

        A part may begin with lines of an earlier one. None if there is no such run.
        """

    @abstractmethod
    async def runs(self, session_ids: Container[str] | None = None) -> list[JournalledRun]:
        """Return the runs of these sessions, or all, in any order."""

    async def dead_runs(self) -> list[str]:
        """Return the ids of the runs whose processes have died: they neither end nor wait."""
        return [
            run.run_id
            for run in await self.runs()
            if run.end is None and not run.is_held and not run.is_parked
        ]

    @abstractmethod
    async def prune(self, seconds: float) -> None:
        """Forget the runs that have ended before so many seconds, about."""

    async def wait(self, run_id: str, position: object) -> None:  # noqa: ARG002 - for overrides
        """Wait until a run may have more behind a position, at most ``follow_seconds``."""
        await anyio.sleep(self.follow_seconds)

    async def _release(self, writer: RunWriter) -> None:
        """Let another process continue the run."""
        writer.sink.close()

    def begin(self, head: RunHead) -> RunWriter:
        """Begin a run, or one that was queued until now."""
        sink = self._open(head)
        writer = self._writers.get(head.run_id)
        if writer is None:
            writer = self._writers[head.run_id] = RunWriter(head.run_id, sink)
        writer.begin(head)
        return writer

    async def flush(self, writer: RunWriter | None = None, *, unless_failing: bool = False) -> None:
        """Write what waits, of one run or of all; what cannot be written now waits on.

        Args:
            writer: The run; None for all.
            unless_failing: Whether to leave it to others to find out if it is possible again.
        """
        if unless_failing and self._failed:
            return
        async with self._writing:
            if unless_failing and self._failed:  # meanwhile
                return
            await self._write(tuple(self._writers.values()) if writer is None else (writer,))

    @property
    def is_waiting(self) -> bool:
        """Whether lines wait to be written."""
        return any(writer.waiting for writer in self._writers.values())

    async def forget_unwritten(self, seconds: float) -> None:
        """Forget the runs that were let go before so many seconds, and could not be written."""
        before = time.monotonic() - seconds
        async with self._writing:
            for writer in [*self._writers.values()]:
                if writer.closed is not None and writer.closed < before:
                    del self._writers[writer.run_id]
                    await self._release(writer)

    async def _write(self, writers: Iterable[RunWriter]) -> None:
        by_sink: dict[Sink, list[RunWriter]] = {}
        for writer in writers:
            if writer.waiting:
                by_sink.setdefault(writer.sink, []).append(writer)
        for sink, of_sink in by_sink.items():
            lines = [(writer, line) for writer in of_sink for line in writer.waiting]
            written = await self._append(sink, b"".join([line for _, line in lines]))
            for writer, line in lines:
                written -= len(line)
                if written < 0:
                    break
                writer.waiting.popleft()
        for writer in writers:
            if (
                writer.closed is not None
                and not writer.waiting
                and self._writers.get(writer.run_id) is writer
            ):
                del self._writers[writer.run_id]
                await self._release(writer)

    async def _append(self, sink: Sink, data: bytes) -> int:
        try:
            written = await sink.append(data)
        except OSError as error:
            if not self._failed:
                logger.warning("The journal of runs cannot be written for now: %s", error)
            self._failed = True
            return 0
        self._failed = False
        return written

    async def close(self, writer: RunWriter) -> None:
        """Write what waits, and let the run go: at once, or when that is possible again."""
        writer.closed = time.monotonic()
        await self.flush(writer, unless_failing=True)

    async def aclose(self) -> None:
        """Write what waits and release all files."""
        await self.flush()
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            await self._release(writer)
