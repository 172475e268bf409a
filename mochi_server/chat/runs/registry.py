"""The runs of this process, and the way to those of others.

A run executes a turn as a task of its own and writes what it says to a log and to the journal.
Anyone with its id can read or stop it, from any process; the last reader that leaves, in whichever
process, cancels it, unless it was started to go on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Container
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import anyio

from ...core.aio import BackgroundTasks
from ...core.caller import act_for_owner
from ...core.logs import one_line, set_log_ids
from ...core.slots import Slots
from ...errors import (
    InternalError,
    MochiError,
    RunInterrupted,
    SessionBusy,
    ShuttingDown,
    StorageError,
)
from ...protocol.events import Done, ErrorEvent, Event
from ...state import Signals, SQLiteState
from ...state.signals import LOST_SECONDS
from ..journal.base import ListedRun
from ..journal.journal import RunJournal
from ..journal.records import RunHead, RunState
from .ending import STOPPED, EndsRuns, RunEnding
from .follower import RunFollower, copy_lines
from .log import LogReader, RunLog
from .observer import RunObserver
from .others import STOP_SECONDS, WATCH_SECONDS, RunsOfOthers
from .progress import RunProgress, read_run
from .requests import RunRequests
from .run import Run
from .status import RunStatus, status_of, status_of_progress

logger = logging.getLogger(__name__)

SAVE_SECONDS = 3.0
"""Seconds for the saves of runs that were ended, on top of any limit."""


class RunnableTurn(Protocol):
    """What a run executes."""

    run: Run

    def events(self) -> AsyncGenerator[list[Event], None]:
        """Execute it; yield its events."""

    async def release(self) -> None:
        """Give the session back; may be called again."""


class RunInQueue(Protocol):
    """A run that waits in this process until the runs before it have ended."""

    is_unread: bool
    """Whether only other processes read it."""

    @property
    def run(self) -> Run: ...

    def cancel(self) -> None:
        """End it."""


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    turn: RunnableTurn
    reason: MochiError | None = None
    """Why it was ended."""
    stopped: bool = False
    """Whether a person has ended it."""
    is_unread: bool = False
    """Whether only other processes read it."""
    is_ending: bool = False
    """Whether it is too late to cancel it."""
    status: RunStatus | None = None
    """How it ended."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def run(self) -> Run:
        return self.turn.run

    def cancel(self) -> None:
        """Cancel it, but not before its first step: one that never began cleans up nothing."""
        asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if not self.is_ending:
            self.task.cancel()

    def park(self) -> None:
        """Let its task end without ending the run, which waits for a person."""
        run = self.turn.run
        if not (run.is_parked or self.is_ending or self.stopped or self.reason):
            run.is_parked = True
            self.task.cancel()


class RunRegistry:
    """The runs of this process."""

    retention_seconds = 600.0
    """For which a run can be read after its end."""

    def __init__(
        self,
        journal: RunJournal,
        recovery: EndsRuns,
        requests: RunRequests | None = None,
        *,
        max_runs: int = 2000,
        max_queued: int = 200,
        share: float = 1.0,
    ) -> None:
        """Execute no run yet.

        Args:
            journal: What the runs say, for other processes and after a crash.
            recovery: Ends the runs of processes that have died.
            requests: What other processes want of runs; None: there are none.
            max_runs: Most runs at the same time.
            max_queued: Most runs that wait in queues.
            share: Largest part of both that one caller may have.
        """
        self._slots = Slots("runs", max_runs, share=share)
        self._queue_slots = Slots("runs in queues", max_queued, share=share)
        self._journal = journal
        self._recovery = recovery
        self._requests = requests or RunRequests(SQLiteState(), Signals())
        self._running: dict[str, _Running] = {}
        self._queued: dict[str, RunInQueue] = {}
        self._sessions: dict[str, str] = {}
        """Running runs by session."""
        self._tasks = BackgroundTasks()
        self.others = RunsOfOthers(journal, recovery, self._running)
        self._follower = RunFollower(journal, recovery, self._requests, self._tasks)
        self._watching: asyncio.Task[None] | None = None
        self.is_closed = False
        self.observers: list[RunObserver] = []
        """Are told what the runs of this process do, and how those end that it recovers."""
        recovery.observers = self.observers
        self._is_draining = False
        self.on_parked: Callable[[str], None] | None = None
        """Called with the id of a run that this process has let go until a person decides."""

    def __len__(self) -> int:
        return len(self._running)

    @property
    def refuses_runs(self) -> bool:
        """Whether no run can begin any more: the server is stopping."""
        return self.is_closed or self._is_draining

    def refuse_new(self) -> None:
        """Let no run begin any more; those that go on may end."""
        self._is_draining = True

    async def wait_idle(self) -> None:
        """Wait until each run has ended or waits for a person."""
        while any(not one.run.is_waiting for one in self._running.values()):  # noqa: ASYNC110 - ends
            await anyio.sleep(WATCH_SECONDS)

    def check_open(self) -> None:
        """Refuse new runs while the server stops, or has as many as it may have.

        Raises:
            ShuttingDown: it stops.
            ServerBusy: it has too many.
        """
        if self.refuses_runs:
            raise ShuttingDown
        self._slots.check()

    def slot(self, run: Run | None = None) -> AbstractContextManager[None]:
        """Hold the slot of a run, of one that was queued for whom it was; see ``check_open``."""
        if self.refuses_runs:
            raise ShuttingDown
        return self._slots.slot(None if run is None else run.slot_holder)

    def let_wait(self, queued: RunInQueue) -> None:
        """Take a run that waits in this process, if too many do not already.

        Raises:
            ShuttingDown: the server stops.
            ServerBusy: too many wait.
        """
        if self.refuses_runs:
            raise ShuttingDown
        run = queued.run
        self._queue_slots.take(run.slot_holder)
        self._accept(run)
        self._queued[run.run_id] = queued

    def _wait_no_more(self, run: Run) -> RunInQueue | None:
        queued = self._queued.pop(run.run_id, None)
        if queued is not None:
            self._queue_slots.release(run.slot_holder)
        return queued

    def has(self, run_id: str) -> bool:
        """Return whether this process executes a run."""
        return run_id in self._running

    async def is_awaited(self, session_id: str, run: Run | None = None) -> bool:
        """Return whether runs of a session wait in queues of other processes.

        ``run``: one that waits here; then only those that were accepted before it count.
        """
        return any(
            run is None or (one.started_at, one.run_id) < (run.head.started_at, run.run_id)
            for one in await self.waiting_elsewhere(session_id)
        )

    async def waiting_elsewhere(self, session_id: str) -> list[ListedRun]:
        """Return the runs of a session that wait in queues of other processes, as far as known."""
        try:
            runs = await self._journal.runs({session_id})
        except StorageError:
            return []  # it cannot be known now; turns go on
        return [
            one for one in runs if one.is_queued and one.is_held and one.run_id not in self._queued
        ]

    def is_running(self, session_id: str) -> bool:
        return session_id in self._sessions

    def running_of(self, session_id: str) -> str | None:
        """Return the id of the session's run that this process executes."""
        return self._sessions.get(session_id)

    def new(self, head: RunHead) -> Run:
        """Return a run, which begins when its turn is started."""
        run = Run(head, self._journal)
        run.observers = self.observers
        return run

    def _accept(self, run: Run) -> None:
        for observer in self.observers:
            observer.on_accepted(run.head)

    def states(self) -> Counter[RunState]:
        """Count the runs of this process by their states."""
        counts: Counter[RunState] = Counter({"queued": len(self._queued)})
        for running in self._running.values():
            counts["waiting" if running.run.is_asking else "running"] += 1
        return counts

    def start(self, turn: RunnableTurn) -> RunLog:
        """Run the turn until it ends, is stopped, or its last reader leaves."""
        run = turn.run
        if run.run_id not in self._queued:
            self._accept(run)
        run.begin()
        task = asyncio.get_running_loop().create_task(self._run(turn))
        self._running[run.run_id] = running = _Running(task, turn)
        queued = self._wait_no_more(run)
        self._sessions[run.head.session_id] = run.run_id
        if not run.head.request.continues and run.before is None:
            run.log.on_unread = partial(self._unread, running)
            running.is_unread = queued is not None and queued.is_unread
        self._begin_watch()
        if self.is_closed:  # it was opened just before
            self._end_early(running, ShuttingDown())
        return run.log

    async def enqueue(self, queued: RunInQueue) -> None:
        """Let other processes know a run that waits in this one."""
        if not queued.run.head.request.continues:
            queued.run.log.on_unread = partial(self._unread, queued)
        self._begin_watch()
        await queued.run.enqueue()

    def end_queued(self, run: Run, state: RunState, error: MochiError | None = None) -> None:
        """End a run that has not begun."""
        run.log.on_unread = None
        self._tasks.spawn(self._end_queued(run, state, error), name="the end of a queued run")

    async def _end_queued(self, run: Run, state: RunState, error: MochiError | None) -> None:
        await self._close(run, state, error)
        self._wait_no_more(run)

    def _begin_watch(self) -> None:
        if self._watching is None:
            self._watching = self._tasks.spawn(self._watch(), name="the journal of runs")

    async def take(self, run_id: str) -> Run | None:
        """Take a run that waits, to start its turn again; None if it does not wait any more.

        Raises:
            StorageError: the journal cannot be read or written.
        """
        writer = await self._journal.take(run_id)
        if writer is None:
            return None
        read = None
        try:
            read = await read_run(self._journal, run_id)
        finally:
            if read is None or not read.progress.is_parked:
                await self._journal.close(writer)
        if read is None or not read.progress.is_parked:
            return None
        part, progress = read
        log = RunLog(progress.head.first_event)
        copy_lines(part.lines, log)
        run = Run.resumed(progress, log, self._journal, writer)
        run.observers = self.observers
        return run

    async def waiting(self, run_id: str) -> RunProgress | None:
        """Return how far a run has come that waits and that no process executes."""
        if run_id in self._running:
            return None
        read = await read_run(self._journal, run_id)
        if read is None or read.progress.end is not None or not read.progress.is_parked:
            return None
        return read.progress

    async def fail(self, run_id: str, error: MochiError) -> None:
        """End a run that waits, because it cannot be taken up."""
        await self._recovery.recover(run_id, RunEnding("failed", error))

    def _unread(self, running: RunInQueue) -> None:
        """Cancel a run that nobody reads, in any process."""
        self._tasks.spawn(self._cancel_unread(running), name="a run without a reader")

    async def _cancel_unread(self, running: RunInQueue) -> None:
        running.is_unread = await self._requests.has_readers(running.run.run_id)
        log = running.run.log
        if not running.is_unread and not log.is_read and log.on_unread is not None:
            running.cancel()

    async def _watch(self) -> None:
        """Write the journal and look at what others want, while anything runs."""
        try:
            looked = -math.inf
            with self._requests.subscribe() as changed:
                while self._running or self._queued or self._journal.is_waiting:
                    is_changed = await changed.wait(WATCH_SECONDS)
                    now = anyio.current_time()
                    if is_changed or now - looked >= LOST_SECONDS:
                        looked = now
                        await self._look_at_requests()
                    self._look()
                    await self._journal.flush()
        finally:
            self._watching = None

    async def _look_at_requests(self) -> None:
        """Stop what others want to stop, and what nobody reads any more."""
        for run_id in await self._requests.stop_requests():
            running = self._running.get(run_id)
            if running is not None and not running.stopped:
                running.stopped = True
                running.cancel()
            if (queued := self._queued.get(run_id)) is not None:
                queued.cancel()
        everything: list[RunInQueue] = [*self._running.values(), *self._queued.values()]
        for one in everything:
            if one.is_unread:
                await self._cancel_unread(one)

    def _look(self) -> None:
        """End what others have taken, and let go what waits and is not read."""
        for queued in [*self._queued.values()]:
            if queued.run.is_lost:
                queued.cancel()
        for running in [*self._running.values()]:
            run = running.turn.run
            if run.is_lost and running.reason is None:
                self._end_early(running, RunInterrupted(run_id=run.run_id))
            is_left = run.log.on_unread is None and not run.log.is_read
            if is_left and run.is_waiting and run.can_park:
                running.park()

    async def join(self, run_id: str, after: int = 0) -> LogReader | None:
        """Return a reader of a run's events after a number, whoever executes it.

        None if the run has ended, and has no event after that number.

        Raises:
            RunNotFound: there is no such run, or none any more.
        """
        running = self._running.get(run_id)
        if running is not None and running.run.is_parked and not self.is_closed:
            with anyio.move_on_after(STOP_SECONDS):  # what a decision makes of it has another log
                await running.ended.wait()
        own = self._own(run_id)
        if own is not None:
            return own.run.log.reader(after)
        return await self._follower.join(run_id, after)

    def _own(self, run_id: str) -> RunInQueue | None:
        return self._running.get(run_id) or self._queued.get(run_id)

    async def status(self, run_id: str) -> RunStatus:
        """Return how far a run has come, whoever executes it.

        Raises:
            RunNotFound: there is no such run, or none any more.
        """
        own = self._own(run_id)
        if own is not None:
            return status_of(own.run)
        return status_of_progress(await self._follower.progress(run_id))

    async def all_runs(self, session_ids: Container[str] | None = None) -> list[ListedRun]:
        """Return the runs of these sessions, or all, whichever process executes them.

        The latest first, those in queues last and in order.
        """
        await self.others.recover_dead()
        runs = await self._listed(session_ids)
        in_order = sorted(runs.values(), key=lambda run: (run.started_at, run.run_id))
        queued = [run for run in in_order if run.state == "queued"]
        return [run for run in reversed(in_order) if run.state != "queued"] + queued

    async def begun_runs(self, session_id: str) -> set[str]:
        """Return the ids of the runs of a session that are in no queue, also of those that ended.

        Raises:
            StorageError: the runs of other processes cannot be read now.
        """
        runs = await self._listed((session_id,))
        return {run_id for run_id, run in runs.items() if run.state != "queued"}

    async def _listed(self, session_ids: Container[str] | None) -> dict[str, ListedRun]:
        own: list[RunInQueue] = [*self._running.values(), *self._queued.values()]
        runs = {
            head.run_id: ListedRun(
                run_id=head.run_id,
                session_id=head.session_id,
                state=head.state,
                started_at=head.started_at,
                is_held=True,
                owner=head.owner,
            )
            for head in (one.run.head for one in own)
            if session_ids is None or head.session_id in session_ids
        }
        for one in await self._journal.runs(session_ids):
            runs.setdefault(one.run_id, one)
        return runs

    async def stop(self, run_id: str) -> RunStatus:
        """End a run as a person wants, whoever executes it; return how it has ended.

        Raises:
            RunNotFound: there is no such run, or none any more.
            SessionBusy, StorageError, ConfirmationUnavailable: a waiting run cannot be ended now.
        """
        if (running := self._running.get(run_id)) is not None:
            running.stopped = True
            running.cancel()
            with anyio.move_on_after(STOP_SECONDS):
                await running.ended.wait()
            status = running.status or status_of(running.turn.run)
            # Else it was let go just before, or another process has taken it.
            if status.state != "waiting" and not running.run.is_lost:
                return status
        if (queued := self._queued.get(run_id)) is not None:
            queued.cancel()
            with anyio.move_on_after(STOP_SECONDS):
                await queued.run.begun.wait()
            return await self.status(run_id)
        async with AsyncExitStack() as stack:
            with self._requests.subscribe() as changed:
                stack.push_async_callback(await self._requests.request_stop(run_id))
                await changed.wait()  # that was the request itself
                # To read how far a run has come takes time that other requests, and perhaps the
                # other process, need more: by then it may have ended.
                await changed.wait(WATCH_SECONDS)
            await self._stop_elsewhere(run_id)
        status = await self.status(run_id)
        if status.state == "waiting":
            raise SessionBusy(session_id=status.session_id)
        return status

    async def _stop_elsewhere(self, run_id: str) -> None:
        """End a run that waits, or wait until whoever has it ends it, whose stop was requested."""
        progress = await self._follower.progress(run_id)
        if progress.end is not None:
            return
        if progress.is_parked:
            with suppress(SessionBusy):  # by who takes it up, perhaps
                if await self._recovery.recover(run_id, STOPPED):
                    return
        with anyio.move_on_after(STOP_SECONDS):
            await self._follower.wait_for_end(run_id, STOPPED)

    def interrupt(self, session_id: str, reason: MochiError) -> bool:
        """End the session's run with an error; return whether one ran here. The first counts."""
        run_id = self._sessions.get(session_id)
        if run_id is None:
            return False
        self._end_early(self._running[run_id], reason)
        return True

    def _end_early(self, running: _Running, reason: MochiError) -> None:
        running.reason = running.reason or reason
        running.cancel()

    async def prune(self) -> None:
        """Forget runs that have ended long ago."""
        await self._journal.prune(self.retention_seconds)
        await self._requests.prune()

    async def forget_unwritten(self) -> None:
        """Forget what could not be written to the journal for long."""
        await self._journal.forget_unwritten(self.retention_seconds)

    def stop_all(self) -> None:
        """Refuse new runs and end the running ones: the server is stopping."""
        self.is_closed = True
        self._follower.close()
        for running in list(self._running.values()):
            if running.run.is_asking and running.run.can_park:
                running.park()
            else:
                self._end_early(running, ShuttingDown())

    async def wait_closed(self, seconds: float) -> None:
        """Wait until no run is left, for at most so many seconds and ``SAVE_SECONDS``."""
        tasks = [running.task for running in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds + SAVE_SECONDS)
        if self.is_closed:
            if self._watching is not None and not self._running:
                self._watching.cancel()
            await self._tasks.drain(SAVE_SECONDS)
        await self._journal.aclose()
        await self._requests.aclose()

    async def _run(self, turn: RunnableTurn) -> None:
        """Write the turn's events, and whatever ends it, into its log."""
        run = turn.run
        set_log_ids(run.head.session_id, run.run_id)
        act_for_owner(run.head.owner)
        state: RunState = "done"
        error: MochiError | None = None
        try:
            if run.before is None:
                await run.emit([run.head.start()])
                run.begun.set()
            else:  # somebody may have wanted it to stop while it was taken up
                await self._look_at_requests()
            async with aclosing(turn.events()) as batches:
                async for events in batches:
                    await run.emit(events)
        except asyncio.CancelledError:
            running = self._running[run.run_id]
            state, error = await self._cancelled(running)
            if state == "stopped" and not running.stopped:
                raise
        except MochiError as failure:
            log_failure(run.head.session_id, run.run_id, run.head.model, failure)
            state, error = await _failed(run, failure)
        except Exception:
            state, error = "failed", InternalError()
            logger.exception("Turn failed: %s code=%s", _labels_of(run.head), error.code)
        finally:
            self._running[run.run_id].is_ending = True
            if state == "waiting":
                await self._park(turn)
            else:
                await self._end(turn, state, error)

    async def _cancelled(self, running: _Running) -> tuple[RunState, MochiError | None]:
        """Return how a run has ended whose task was cancelled."""
        run, error = running.run, running.reason
        if run.complete is not None:  # its answer was being stored, and is
            await run.emit([run.complete])
            return "done", None
        if run.is_parked:
            return "waiting", error
        if error is not None:
            logger.info("Turn stopped: %s code=%s", _labels_of(run.head), error.code)
            return "interrupted", error
        if running.stopped:
            logger.info("Turn stopped: %s", _labels_of(run.head))
        else:
            logger.info("Turn interrupted, its last reader has left: %s", _labels_of(run.head))
        return "stopped", None

    async def _park(self, turn: RunnableTurn) -> None:
        """Let the run go: whoever takes it up needs its journal and its session."""
        run = turn.run
        await run.park()
        running = self._running.pop(run.run_id)
        del self._sessions[run.head.session_id]
        try:
            await turn.release()
        finally:
            running.status = status_of(run, "waiting")
            run.log.close(ShuttingDown() if self.is_closed else None)
            running.ended.set()
            logger.info("Turn waits: %s", _labels_of(run.head))
            self._tell_end(run, "waiting")
            if self.on_parked is not None:
                self.on_parked(run.run_id)

    async def _end(self, turn: RunnableTurn, state: RunState, error: MochiError | None) -> None:
        """Free the session first: who sees ``done`` may send the next message at once."""
        run = turn.run
        run.log.on_unread = None
        try:
            await turn.release()
        finally:
            running = self._running.pop(run.run_id)
            if self._sessions.get(run.head.session_id) == run.run_id:
                del self._sessions[run.head.session_id]
            await self._close(run, state, error)
            running.status = status_of(run, state, None if error is None else error.code)
            if not run.is_lost:
                self.others.note_ended(run.head.session_id, run.run_id)
            running.ended.set()
            if running.stopped:
                self._requests.send()

    async def _close(self, run: Run, state: RunState, error: MochiError | None) -> None:
        last: list[Event] = [] if error is None else [ErrorEvent.of(error)]
        last.append(Done(session_id=run.head.session_id))
        if run.log.end == run.head.first_event:  # it has not begun
            last.insert(0, run.head.start())
        code = None if error is None else error.code
        await run.end(state, last, code=code, message_id=run.message_id)
        if run.is_lost:
            self._follower.go_on(run.head, run.log)
        else:
            run.log.close(error)
        run.begun.set()
        self._tell_end(run, state, error)

    def _tell_end(self, run: Run, state: RunState, error: MochiError | None = None) -> None:
        for observer in self.observers:
            observer.on_ended(run.head, state, error)


async def _failed(run: Run, failure: MochiError) -> tuple[RunState, MochiError]:
    """Return how a run has ended that could not go on, as where another process has taken it."""
    if await run.is_given_up():  # who has taken it has taken the session, too
        return "interrupted", RunInterrupted(run_id=run.run_id)
    return "failed", failure


def _labels(session_id: str, run_id: str, model: str) -> str:
    return f"session={session_id} run={run_id} model={one_line(model)}"


def _labels_of(head: RunHead) -> str:
    return _labels(head.session_id, head.run_id, head.model)


def log_failure(session_id: str, run_id: str, model: str, error: MochiError) -> None:
    """Log that a turn failed, in one line with the message that the client gets."""
    logger.warning(
        "Turn failed: %s code=%s: %s",
        _labels(session_id, run_id, model),
        error.code,
        one_line(error.message),
    )
