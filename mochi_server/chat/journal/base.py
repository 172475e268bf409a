"""What is written and read of runs: lines of JSON (``records``), until nobody can want them again.

One process writes the lines of a run, and any may read them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.events import Event
from .records import (
    GOING_ON,
    Line,
    Note,
    RunHead,
    RunState,
    encode_events,
    encode_head,
    encode_note,
)


class JournalPart(NamedTuple):
    """The lines of a run from a position on."""

    lines: list[Line]
    position: object
    """Where the next part begins."""
    is_held: bool
    """Whether a process writes it now; if not, the lines are all that it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run in a list of runs."""

    run_id: str
    session_id: str
    state: RunState
    """The one that was written last: its process may have died since."""
    started_at: str
    is_held: bool
    """Whether a process executes it, where it has not ended."""
    owner: str | None = None
    """To whom its session belongs."""

    @property
    def end(self) -> RunState | None:
        """How it ended; None while it goes on, waits, or its process has died."""
        return None if self.state in GOING_ON else self.state

    @property
    def is_queued(self) -> bool:
        """Whether it waits in a process until the runs before it have ended."""
        return self.state == "queued"

    @property
    def waits(self) -> bool:
        """Whether it waits for a person, and no process executes it."""
        return self.state == "waiting" and not self.is_held


class Reached(NamedTuple):
    """How far a run has come, as its row says it; None where it stays as it was."""

    started_at: str | None
    state: RunState | None
    is_let_go: bool


class RunWriter:
    """Writes one run. Lines wait in memory until the journal is flushed."""

    __slots__ = (
        *("_count", "_events", "_first", "_lines", "_prefix", "_state"),
        *("closed", "head", "is_behind", "is_lost", "is_recorded", "run_id"),
    )

    def __init__(self, run_id: str, *, is_taken: bool = False) -> None:
        self.run_id = run_id
        self.head: RunHead | None = None
        """None where another process has begun it."""
        self.closed: float | None = None
        """When the run was let go, which happens as soon as nothing waits; None before."""
        self.is_recorded = is_taken
        """Whether there is a row that says that this process has it."""
        self.is_behind = False
        """Whether the row does not say how far it has come."""
        self.is_lost = False
        """Whether another process has taken the run; nothing is written any more."""
        self._state: RunState | None = None
        self._prefix = run_id.encode() + b" "
        self._lines: deque[bytes] = deque()
        self._count = 0
        self._events: list[Event] = []
        self._first = 0

    def begin(self, head: RunHead) -> None:
        self.head = head
        self._reach(head.state)
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
        note = Note(name, data)  # type: ignore[arg-type] # JSON values
        if note.state is not None:
            self._reach(note.state)
        self._add(encode_note(note))
        return self._count

    def close(self) -> None:
        """Let the run go; the row of one that another process has taken stays as it is."""
        self.is_behind = self.is_behind or (self.closed is None and not self.is_lost)
        self.closed = time.monotonic()

    def lose(self) -> None:
        """Write nothing more."""
        self.is_lost, self.is_behind = True, False
        self._events.clear()
        self._lines.clear()

    @property
    def reached(self) -> Reached:
        """How far it has come."""
        started_at = None if self.head is None else self.head.started_at
        return Reached(started_at, self._state, self.closed is not None)

    def is_written(self, line: int) -> bool:
        """Return whether the line with this number does not wait any more."""
        return line <= self._count - len(self._lines)

    @property
    def waiting(self) -> deque[bytes]:
        """The lines that wait to be written."""
        self._encode_events()
        return self._lines

    def _reach(self, state: RunState) -> None:
        self._state = state
        self.is_behind = not self.is_lost

    def _encode_events(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._add(encode_events(self._first, events))

    def _add(self, line: bytes) -> None:
        if not self.is_lost:
            self._lines.append(self._prefix + line + b"\n")
            self._count += 1
