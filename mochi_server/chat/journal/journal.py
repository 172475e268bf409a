"""The runs in the state that processes share: what each has said, how far it is, who executes it.

A process appends what its runs say to one log, a part for each flush: the lines of all runs, each
``<run id> <JSON>``. A row for each run says how far it has come, and where its lines are: in which
log, from where, and to where once its process has let it go. Who takes a run of a process that has
died writes the end of that one's lines, and goes on in the own log: what the other one writes
afterwards is not the run's any more.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Container, Sequence
from dataclasses import replace

import anyio

from ...core.aio import BackgroundTasks, run_to_completion
from ...errors import StorageError
from ...state import State, Statements, Version
from .base import JournalPart, ListedRun, RunWriter
from .portion import Portion, portions
from .records import RunHead, decode
from .rows import (
    MANY,
    RUNS,
    Position,
    ReadLines,
    StoredRun,
    Stretch,
    lines_of,
    remove_runs,
    renew_lease,
    runs_since,
)

logger = logging.getLogger(__name__)

SMALL_BYTES = 1_000_000
"""Bytes below which lines are written without a thread, where the state allows it."""


class RunJournal:
    """The runs of every process that shares the state.

    Where the state cannot be used, whatever reads it or takes a run raises StorageError; lines wait
    in memory until they can be written.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.has_leases = state.lease_seconds is not None
        """Whether a run can be taken although its process lives, which could not renew its
        lease."""
        self.follow_seconds = min(state.look_seconds, 0.1)
        """Longest pause between two looks at a run that another process writes."""
        self._writers: dict[str, RunWriter] = {}
        self._writing = asyncio.Lock()
        self._due: set[RunWriter] = set()
        """Whose lines the next write has."""
        self._next_write: asyncio.Task[None]
        self._failed: float | None = None
        """When the last write was begun, if it has failed."""
        self._place = 0
        """Of the last part of this process in its log."""
        self._holder = ""
        """What the log is called, and the right to its runs."""
        self._renewed = 0.0
        self._tasks = BackgroundTasks()
        self._renewer: asyncio.Task[None] | None = None
        self._entries: dict[str, StoredRun] = {}
        """What is known of all runs, as of this version."""
        self._version = Version("", 0)
        self._ended: dict[str, float] = {}
        """When runs were first seen to have ended; the time of day, by which others tell it, may
        jump."""
        self._refreshing = asyncio.Lock()

    # Writing

    def begin(self, head: RunHead) -> RunWriter:
        """Begin a run, or one that was queued until now."""
        writer = self._writers.get(head.run_id)
        if writer is None:
            writer = self._writers[head.run_id] = RunWriter(head.run_id)
            self._keep_leases()
        writer.begin(head)
        return writer

    async def take(self, run_id: str) -> RunWriter | None:
        """Continue a run that no process writes.

        Return None if a process does, if the run has ended, or if there is no such run.
        """
        if run_id in self._writers:
            return None
        taken: list[RunWriter] = []
        try:
            await run_to_completion(self._take(run_id, taken))
        except asyncio.CancelledError:
            for writer in taken:
                await run_to_completion(self.close(writer))
            raise
        return taken[0] if taken else None

    async def _take(self, run_id: str, taken: list[RunWriter]) -> None:
        is_repeated = False

        def take(state: Statements) -> tuple[set[str], bool]:
            nonlocal is_repeated
            was_tried, is_repeated = is_repeated, True
            lost = renew_lease(state, holder, held)
            row = state.row(RUNS, run_id)
            if row is None:
                return lost, False
            entry = StoredRun.decode(row.value)
            if entry.end is not None:
                return lost, False
            if entry.holder == holder:
                return lost, was_tried
            if entry.holder is not None:
                if not state.fence(entry.holder):
                    return lost, False
                entry = entry.until(state.last_place(entry.holder))
            own = Stretch(holder, self._place, None)
            entry = replace(entry, stretches=(*entry.stretches, own))
            return lost, state.replace_row(RUNS, row, entry.encode())

        async with self._writing:
            if run_id in self._writers:
                return
            holder, held = self._hold(), self._held()
            lost, is_taken = await self._state.write(take)
            self._lose(lost)
            if is_taken:
                writer = self._writers[run_id] = RunWriter(run_id, is_taken=True)
                taken.append(writer)
                self._keep_leases()

    def _hold(self) -> str:
        """Return the name of this process's log."""
        holder = self._state.hold()
        if holder != self._holder:
            self._holder, self._place = holder, 0
        return holder

    def _held(self) -> list[str]:
        """Return the runs that others may have taken."""
        if not self.has_leases:
            return []
        return [run_id for run_id, writer in self._writers.items() if writer.is_recorded]

    async def flush(self, writer: RunWriter | None = None, *, unless_failing: bool = False) -> None:
        """Write what waits, of one run or of all; what cannot be written now waits on.

        Args:
            writer: The run; None for all.
            unless_failing: Whether to leave it to others to find out if it is possible again.
        """
        if unless_failing and self._is_failing():
            return
        if writer is not None and unless_failing and (self._due or self._writing.locked()):
            await self._flush_with_others(writer)
            return
        async with self._writing:
            if unless_failing and self._is_failing():  # meanwhile
                return
            await self._write(tuple(self._writers.values()) if writer is None else (writer,))

    async def _flush_with_others(self, writer: RunWriter) -> None:
        """Let the next write have what waits of a run: one serves all that wait for it.

        A lock of asyncio lets one of those that wait go on in a round of the event loop. Where
        hundreds of runs begin at once, more come in each round.
        """
        if not self._due:
            self._next_write = self._tasks.spawn(self._write_due(), name="the journal of runs")
        self._due.add(writer)
        await asyncio.shield(self._next_write)

    async def _write_due(self) -> None:
        async with self._writing:
            due, self._due = self._due, set()
            if not self._is_failing():
                await self._write(tuple(due))

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

    async def _write(self, writers: Sequence[RunWriter]) -> None:
        for some in portions(writers):
            if not await self._write_portion(some):
                break
        for writer in writers:
            if (
                writer.closed is not None
                and not (writer.is_behind or writer.waiting)
                and self._writers.get(writer.run_id) is writer
            ):
                del self._writers[writer.run_id]

    async def _write_portion(self, writers: Sequence[RunWriter]) -> bool:
        """Write what waits of some runs, and how far they are; return whether that was possible."""
        begun = time.monotonic()
        portion: Portion | None = None
        try:
            holder = self._hold()
            portion = Portion(writers, Stretch(holder, self._place, None), self._held())
            done = None
            if portion.size < SMALL_BYTES:
                done = self._state.write_at_once(portion.write)
            if done is None:
                await run_to_completion(self._write_in_thread(portion, begun))
            else:
                self._have_written(portion, done[0])
        except StorageError as error:
            self._have_failed(portion, begun, error)
        return self._failed is None

    async def _write_in_thread(self, portion: Portion, begun: float) -> None:
        try:
            self._have_written(portion, await self._state.write(portion.write))
        except StorageError as error:  # here: whoever waits for it may be cancelled
            self._have_failed(portion, begun, error)

    def _have_failed(self, portion: Portion | None, begun: float, error: StorageError) -> None:
        if portion is not None:
            portion.undo()
        if self._failed is None:
            logger.warning("The journal of runs cannot be written for now: %s", error)
        self._failed = begun

    def _have_written(self, portion: Portion, lost: set[str]) -> None:
        self._failed, self._place, self._renewed = None, portion.place, portion.begun
        portion.finish()
        self._lose(lost)

    def _lose(self, run_ids: set[str]) -> None:
        for run_id in run_ids:
            logger.warning("The run %s is lost to this process: its lease had expired.", run_id)
            if (writer := self._writers.get(run_id)) is not None:
                writer.lose()

    def _keep_leases(self) -> None:
        if self.has_leases and (self._renewer is None or self._renewer.done()):
            self._renewer = self._tasks.spawn(self._renew(), name="leases of runs")

    async def _renew(self) -> None:
        """Renew the lease as long as a run is held, also while nothing is written."""
        pause = (self._state.lease_seconds or 0.0) / 3
        while self._writers:
            await anyio.sleep(pause)
            async with self._writing:
                if time.monotonic() - self._renewed >= pause:
                    await self._write_portion(())

    async def close(self, writer: RunWriter) -> None:
        """Write what waits, and let the run go: at once, or when that is possible again."""
        writer.close()
        await self.flush(writer, unless_failing=True)

    async def find_out_losses(self, *, unless_failing: bool = False) -> bool:
        """Learn which runs others have taken, where the lease may be over; return if it is known.

        ``unless_failing`` is that of ``flush``.
        """
        if self._may_have_losses(unless_failing=unless_failing):
            async with self._writing:
                # Not if another run has looked meanwhile.
                if self._may_have_losses(unless_failing=unless_failing):
                    await self._write_portion(())
        return time.monotonic() < self._end_of_lease()

    def _may_have_losses(self, *, unless_failing: bool) -> bool:
        is_over = time.monotonic() >= self._end_of_lease()
        return is_over and not (unless_failing and self._is_failing())

    def _is_failing(self) -> bool:
        """Whether nothing can be written; where the lease is over, as was tried since.

        Of a process that stood still in the midst of a write, its failure says nothing.
        """
        if self._failed is None:
            return False
        return not self._failed < self._end_of_lease() <= time.monotonic()

    def _end_of_lease(self) -> float:
        return self._renewed + (self._state.lease_seconds or math.inf)

    async def aclose(self) -> None:
        """Write what waits, and let all runs go."""
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.wait({self._renewer})
        await self.flush()
        self._writers.clear()
        if self._failed is None:
            await self._state.release()

    # Reading

    async def read(self, run_id: str, position: object = None) -> JournalPart | None:
        """Return what a run has from a position on, from its begin without one.

        A part may begin with lines of an earlier one. None if there is no such run.
        """
        after = position if isinstance(position, Position) else None
        read = await self._read(run_id, after)
        if read is not None and read.has_died:  # now it is sure that nothing follows any more
            read = await self._read(run_id, after)
        if read is None:
            return None
        lines = [line for line in map(decode, read.lines) if line is not None]
        return JournalPart(lines, read.position, read.is_held)

    async def _read(self, run_id: str, after: Position | None) -> ReadLines | None:
        def work(state: Statements) -> ReadLines | None:
            return lines_of(state, run_id, after)

        return await self._state.read(work, is_small=after is not None)

    async def runs(self, session_ids: Container[str] | None = None) -> list[ListedRun]:
        """Return the runs of these sessions, or all, in any order."""
        await self._refresh()
        entries = {
            run_id: entry
            for run_id, entry in self._entries.items()
            if session_ids is None or entry.session_id in session_ids
        }
        living = await self._living({entry.holder for entry in entries.values()} - {None})
        return [
            ListedRun(
                run_id=run_id,
                session_id=entry.session_id,
                state=entry.state,
                started_at=entry.started_at,
                is_held=entry.holder in living,
                owner=entry.owner,
            )
            for run_id, entry in entries.items()
        ]

    async def _living(self, holders: set[str | None]) -> set[str]:
        def living(state: Statements) -> set[str]:
            return {each for each in holders if each is not None and state.lives(each)}

        return await self._state.read(living, is_small=True) if holders else set()

    async def dead_runs(self) -> list[str]:
        """Return the ids of the runs whose processes have died: they neither end nor wait."""
        await self._refresh()
        going = {
            run_id: entry.holder
            for run_id, entry in self._entries.items()
            if entry.end is None and entry.state != "waiting"
        }
        living = await self._living({*going.values()} - {None})
        return [run_id for run_id, holder in going.items() if holder not in living]

    async def _refresh(self) -> None:
        """Learn what has changed in the list of runs."""
        async with self._refreshing:
            version = await self._state.version()
            if version == self._version:
                return
            known = self._entries if version.identity == self._version.identity else {}
            since = self._version.number if known else 0
            changes = await self._state.read(
                lambda state: runs_since(state, since, known),
                is_small=version.number - since < MANY,
            )
            self._version, self._entries = changes

    async def prune(self, seconds: float) -> None:
        """Forget the runs that have ended before so many seconds, about."""
        await self._refresh()
        now, entries = time.monotonic(), self._entries
        self._ended = {
            run_id: self._ended.get(run_id, now)
            for run_id, entry in entries.items()
            if entry.end is not None
        }
        old = {run_id for run_id, seen in self._ended.items() if seen <= now - seconds}
        if old:
            number = self._version.number
            await self._state.write(lambda state: remove_runs(state, old, entries, number))
        await self._state.prune()
