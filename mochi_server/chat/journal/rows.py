"""The rows of runs in the state that processes share, and the lines that belong to them.

What is here reads or writes them within one access to the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson
from typing_extensions import Self

from ...core.aio import yield_to_loop
from ...state import Statements, Version
from .records import GOING_ON, RunHead, RunState

RUNS = "runs"
"""Kind of the rows."""

MANY = 100
"""Runs after which a thread that reads them lets others run."""


class Stretch(NamedTuple):
    """Lines of a run in the log of one process."""

    log: str
    begin: int
    """Place behind which they begin."""
    end: int | None
    """Place of the last of them; None while the process has the run."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as its row has it."""

    session_id: str
    started_at: str
    state: RunState
    owner: str | None
    stretches: tuple[Stretch, ...]

    @classmethod
    def of(cls, head: RunHead, stretch: Stretch) -> Self:
        return cls(head.session_id, head.started_at, head.state, head.owner, (stretch,))

    @classmethod
    def decode(cls, value: bytes) -> Self:
        session_id, started_at, state, owner, stretches = orjson.loads(value)
        return cls(
            session_id, started_at, state, owner, tuple(Stretch(*each) for each in stretches)
        )

    def encode(self) -> bytes:
        stretches = [tuple(each) for each in self.stretches]
        fields = (self.session_id, self.started_at, self.state, self.owner, stretches)
        return orjson.dumps(fields)

    @property
    def end(self) -> RunState | None:
        """How it has ended."""
        return None if self.state in GOING_ON else self.state

    @property
    def holder(self) -> str | None:
        """The process that has it, should it live."""
        last = self.stretches[-1]
        return last.log if last.end is None and self.end is None else None

    def until(self, place: int) -> Self:
        """Return it as its last lines end there."""
        *before, last = self.stretches
        return replace(self, stretches=(*before, last._replace(end=place)))


class Position(NamedTuple):
    """How far a run was read."""

    stretch: int
    place: int


class ReadLines(NamedTuple):
    """Lines of a run, and whether a process writes more."""

    lines: list[bytes]
    position: Position
    is_held: bool
    has_died: bool
    """Whether its process has died, perhaps after the lines were read."""


def lines_of(state: Statements, run_id: str, after: Position | None) -> ReadLines | None:
    """Return the lines of a run behind a position; None if there is no such run."""
    row = state.row(RUNS, run_id)
    if row is None:
        return None
    entry = StoredRun.decode(row.value)
    number, place = after or Position(0, entry.stretches[0].begin)
    prefix = run_id.encode() + b" "
    lines: list[bytes] = []
    for index, stretch in enumerate(entry.stretches[number:], number):
        if index > number:
            number, place = index, stretch.begin
        for found, data in state.parts_after(stretch.log, place, stretch.end):
            lines += _lines_with(prefix, data)
            place = found
    is_held = entry.holder is not None and state.lives(entry.holder)
    has_died = entry.holder is not None and not is_held
    return ReadLines(lines, Position(number, place), is_held, has_died)


def _lines_with(prefix: bytes, data: bytes) -> Iterator[bytes]:
    """Yield what follows the prefix in each line that begins with it."""
    at = data.find(prefix)
    while at >= 0:
        end = data.find(b"\n", at)
        if at == 0 or data[at - 1 : at] == b"\n":
            yield data[at + len(prefix) : end]
        at = data.find(prefix, end)


def renew_lease(state: Statements, holder: str, run_ids: Sequence[str]) -> set[str]:
    """Renew the lease, and return those of these runs that others have taken meanwhile."""
    if state.renew(holder):
        return set()
    return {run_id for run_id in run_ids if _holder_of(state, run_id) != holder}


def _holder_of(state: Statements, run_id: str) -> str | None:
    """Return who has had a run last; None if it is gone."""
    row = state.row(RUNS, run_id)
    return None if row is None else StoredRun.decode(row.value).stretches[-1].log


def runs_since(
    state: Statements, since: int, known: dict[str, StoredRun]
) -> tuple[Version, dict[str, StoredRun]]:
    """Return all runs, of which some are known as of a number."""
    version = state.version()
    entries = dict(known)
    for number, row in enumerate(state.rows_since(RUNS, since)):
        with suppress(ValueError, TypeError):  # of another version
            entries[row.id] = StoredRun.decode(row.value)
        if number % MANY == MANY - 1:
            yield_to_loop()
    if len(entries) != state.count_rows(RUNS):
        ids = state.row_ids(RUNS)
        entries = {run_id: entry for run_id, entry in entries.items() if run_id in ids}
    return version, entries


def remove_runs(state: Statements, old: set[str], known: dict[str, StoredRun], number: int) -> None:
    """Remove runs, and the lines that no other run needs."""
    _, entries = runs_since(state, number, known)
    logs: dict[str, int] = {}
    for run_id in old & entries.keys():
        state.remove_row(RUNS, run_id)
        for stretch in entries.pop(run_id).stretches:
            logs[stretch.log] = max(logs.get(stretch.log, 0), stretch.end or 0)
    needed: dict[str, int] = {}
    for entry in entries.values():
        for stretch in entry.stretches:
            needed[stretch.log] = min(needed.get(stretch.log, stretch.begin), stretch.begin)
    for log, last in logs.items():
        if log in needed or state.lives(log):
            state.remove_parts(log, min(last, needed.get(log, last)))
        else:
            state.remove_parts(log)
