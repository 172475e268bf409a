"""Runs that wait until the runs of their session before them have ended.

They wait in the process that has accepted them. Others know them by the journal: they list them,
follow them from before their begin, stop them by the same signal as any run, and let those begin
that were accepted before their own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import anyio

from ...core.aio import BackgroundTasks, run_to_completion
from ...core.clock import moment_of, timestamp
from ...errors import (
    InternalError,
    MochiError,
    RunInterrupted,
    ServerBusy,
    SessionBusy,
    ShuttingDown,
)
from ..journal.records import RunState
from .registry import RunnableTurn, RunRegistry
from .run import Run

logger = logging.getLogger(__name__)

RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 1.0
"""First and longest pause between two tries to open a turn whose session is busy."""


@dataclass(slots=True, kw_only=True)
class QueuedRun:
    """A run that has not begun."""

    run: Run
    open: Callable[[Run], Awaitable[RunnableTurn]]
    """Open its turn; ``SessionBusy`` while another run goes on."""
    queue: RunQueue
    is_unread: bool = False
    is_ended: bool = False

    def cancel(self) -> None:
        """End it: somebody wants it, its last reader has left, or another process has taken it."""
        run = self.run
        if run.is_lost:
            self.queue.end(self, "interrupted", RunInterrupted(run_id=run.run_id))
        else:
            self.queue.end(self, "stopped")


class RunQueue:
    """The runs that wait in this process: one after the other of each session, in their order.

    Their ``started_at`` is when they were accepted, by which processes order them.
    """

    def __init__(self, runs: RunRegistry) -> None:
        self._runs = runs
        self._queues: dict[str, deque[QueuedRun]] = {}
        self._tasks = BackgroundTasks()

    async def next_time(self, session_id: str) -> str:
        """Return when a run is accepted: later than those that wait, also if a clock is behind."""
        waiting = [one.started_at for one in await self._runs.waiting_elsewhere(session_id)]
        waiting += [one.run.head.started_at for one in self._queues.get(session_id, ())]
        later = [moment_of(each) + timedelta(microseconds=1) for each in waiting]
        return timestamp(max((datetime.now(timezone.utc), *later)))

    def has(self, session_id: str) -> bool:
        """Return whether a run of the session waits."""
        return session_id in self._queues

    async def add(self, run: Run, open_turn: Callable[[Run], Awaitable[RunnableTurn]]) -> None:
        """Let a run wait.

        Raises:
            ShuttingDown, ServerBusy: it may not.
        """
        queued = QueuedRun(run=run, open=open_turn, queue=self)
        self._runs.let_wait(queued)
        queue = self._queues.get(run.head.session_id)
        if queue is None:
            queue = self._queues[run.head.session_id] = deque()
            self._tasks.spawn(self._work(run.head.session_id, queue), name="a queue of runs")
        queue.append(queued)
        await self._runs.enqueue(queued)

    def end(self, queued: QueuedRun, state: RunState, error: MochiError | None = None) -> None:
        """End a run that waits; the first reason counts."""
        if not queued.is_ended:
            queued.is_ended = True
            self._runs.end_queued(queued.run, state, error)

    def stop_all(self) -> None:
        """End all that waits: the server is stopping."""
        for queue in self._queues.values():
            for queued in queue:
                self.end(queued, "interrupted", ShuttingDown())

    async def _work(self, session_id: str, queue: deque[QueuedRun]) -> None:
        while queue:
            pause = RETRY_SECONDS
            while self._runs.is_running(session_id) or not await self._begin(queue[0]):
                await anyio.sleep(pause)
                if not self._runs.is_running(session_id):  # one waits, or runs elsewhere
                    pause = min(2 * pause, MAX_RETRY_SECONDS)
            queue.popleft()
        del self._queues[session_id]

    async def _begin(self, queued: QueuedRun) -> bool:
        """Start a run if none waits before it; return False while it cannot begin."""
        run = queued.run
        if not queued.is_ended and await self._runs.is_awaited(run.head.session_id, run):
            return False
        if not queued.is_ended and await run.is_given_up():
            queued.cancel()
        return await self._try(queued)

    async def _try(self, queued: QueuedRun) -> bool:
        """Start a run; return False while its session is busy, or the process with other runs."""
        if queued.is_ended:
            return True
        try:
            turn = await queued.open(queued.run)
        except (SessionBusy, ServerBusy):
            return False
        except MochiError as error:
            self.end(queued, "failed", error)
            return True
        except Exception:  # those behind it run all the same
            logger.exception("The run %s could not begin", queued.run.run_id)
            self.end(queued, "failed", InternalError())
            return True
        if queued.is_ended:
            await run_to_completion(turn.release())
            return True
        queued.is_ended = True
        self._runs.start(turn)
        return True
