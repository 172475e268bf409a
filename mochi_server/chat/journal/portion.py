"""What is written at once of the runs of a process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...state import Statements
from .base import Reached, RunWriter
from .rows import RUNS, StoredRun, Stretch, renew_lease

PART_BYTES = 8_000_000
"""Most bytes of lines in one part of a log, about."""


class Portion:
    """What is written at once of some runs."""

    def __init__(self, writers: Sequence[RunWriter], own: Stretch, held: Sequence[str]) -> None:
        self._lines = [(writer, [*writer.waiting]) for writer in writers]
        self._data = b"".join([line for _, lines in self._lines for line in lines])
        self._behind = [(writer, writer.reached) for writer in writers if writer.is_behind]
        self._own = own
        self._held = held
        self.size = len(self._data)
        self.place = own.begin + 1 if self._data else own.begin
        """Where this process's log ends afterwards."""
        self.begun = time.monotonic()
        for writer, _ in self._behind:
            writer.is_behind = False

    def write(self, state: Statements) -> set[str]:
        """Write it, and return the runs that other processes have."""
        lost = renew_lease(state, self._own.log, self._held)
        if self._data:
            state.put_part(self._own.log, self.place, self._data)
        for writer, reached in self._behind:
            if writer.run_id not in lost and not self._record(state, writer, reached):
                lost.add(writer.run_id)
        return lost

    def _record(self, state: Statements, writer: RunWriter, reached: Reached) -> bool:
        """Store how far a run has come; return False if another process has it."""
        row = state.row(RUNS, writer.run_id)
        if row is not None:
            entry = StoredRun.decode(row.value)
        elif writer.head is not None:
            entry = StoredRun.of(writer.head, self._own)
        else:
            return False
        if entry.stretches[-1].log != self._own.log:
            return False
        entry = replace(
            entry,
            started_at=reached.started_at or entry.started_at,
            state=reached.state or entry.state,
        )
        value = (entry.until(self.place) if reached.is_let_go else entry).encode()
        if row is None:
            return state.add_row(RUNS, writer.run_id, value)
        return state.replace_row(RUNS, row, value)

    def finish(self) -> None:
        """Take what is written now from what waits."""
        for writer, lines in self._lines:
            for _ in lines:
                writer.waiting.popleft()
            writer.is_recorded = True

    def undo(self) -> None:
        """Let it wait on: it is not written."""
        for writer, _ in self._behind:
            writer.is_behind = True


def portions(writers: Sequence[RunWriter]) -> Iterator[Sequence[RunWriter]]:
    """Yield those of these runs that have something to write, as many at a time as are one part."""
    some: list[RunWriter] = []
    size = 0
    for writer in writers:
        if writer.is_behind or writer.waiting:
            some.append(writer)
            size += sum(map(len, writer.waiting))
        if size > PART_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
