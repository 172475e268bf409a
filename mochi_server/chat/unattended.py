"""Looks after the runs that no process executes: they wait for a person, or their process died."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from datetime import timedelta

import anyio

from ..core.aio import BackgroundTasks
from ..core.clock import timestamp
from ..errors import MochiError, ServerBusy, SessionBusy, SessionNotFound, ShuttingDown
from .service import ChatService

logger = logging.getLogger(__name__)

TEND_SECONDS = 5.0
"""Pause between two searches for such runs."""

ORPHAN_AGE = timedelta(seconds=60)
"""Age of a confirmation from which its run must be in the journal."""

PRUNE_SECONDS = 60.0
"""Pause between two searches for runs that ended long ago."""


class UnattendedRuns:
    """The runs that no process executes."""

    def __init__(self, chat: ChatService) -> None:
        self._chat = chat
        self._runs = chat.runs
        self._sessions = chat.sessions
        self._confirmations = chat.inbox.store
        self._tasks = BackgroundTasks()
        self._tending: asyncio.Task[None] | None = None
        chat.runs.on_parked = self._look_again

    def resume(self, run_id: str) -> None:
        """Begin to take up a run about which somebody has decided, if no process executes it."""
        self._tasks.spawn(self._resume(run_id), name="a run that waited")

    async def _resume(self, run_id: str) -> None:
        try:
            turn = await self._chat.reopen_turn(run_id)
        except (SessionBusy, ServerBusy, ShuttingDown):  # another is at it, or it is tried again
            return
        except MochiError as error:
            logger.warning("The run %s cannot go on now: %s", run_id, error.message)
            return
        except Exception:
            logger.exception("The run %s cannot go on", run_id)
            return
        if turn is None:
            return
        if self._runs.is_closed:
            await turn.run.park()
            await turn.release()
        else:
            self._chat.start(turn)

    def _look_again(self, run_id: str) -> None:
        """Take up a run that was just let go, if somebody has decided meanwhile."""
        if not self._runs.is_closed:
            self._tasks.spawn(self._resume_decided(run_id), name="a run that waits")

    async def _resume_decided(self, run_id: str | None = None) -> None:
        """Take up a run that waits, or all, if somebody has decided."""
        decided = await self._confirmations.decided_runs()
        if decided:  # there may be thousands that wait
            for each in decided & ({run_id} if run_id else await self._runs.others.waiting_runs()):
                await self._resume(each)

    async def _settle_orphans(self) -> None:
        """Settle confirmations of runs that have ended, or that the journal does not know."""
        going_on = {run.run_id for run in await self._runs.all_runs() if run.end is None}
        before = timestamp(self._confirmations.clock() - ORPHAN_AGE)
        orphans = {
            each.confirmation.run_id: each.confirmation.session_id
            for each in await self._confirmations.stored()
            if each.confirmation.run_id not in going_on and each.confirmation.asked_at < before
        }
        for run_id, session_id in orphans.items():
            with suppress(SessionNotFound):  # of another server, which shares the Redis
                await self._sessions.check_exists(session_id)
                if not self._runs.has(run_id):
                    await self._confirmations.end_run(run_id)

    async def _end_forgotten(self) -> None:
        """End runs that wait, and about which nobody is asked any more."""
        stored = await self._confirmations.stored()
        await self._runs.others.recover_forgotten({each.confirmation.run_id for each in stored})

    def tend(self) -> None:
        """Begin to look after them, as a server does."""
        if self._tending is None:
            self._tending = self._tasks.spawn(self._tend(), name="runs without a process")

    async def _tend(self) -> None:
        pruned, pause = -math.inf, min(self._runs.retention_seconds, PRUNE_SECONDS)
        is_failing = False
        while True:
            try:
                await self._runs.others.recover_dead()
                await self._resume_decided()
                if anyio.current_time() - pruned >= pause:
                    await self._settle_orphans()
                    await self._end_forgotten()
                    await self._runs.prune()
                    pruned = anyio.current_time()
                is_failing = False
            except MochiError as error:
                if not is_failing:
                    logger.warning("Runs without a process wait: %s", error.message)
                is_failing = True
            except Exception:  # a full disk, for example: it is tried again
                if not is_failing:
                    logger.exception("Runs without a process wait")
                is_failing = True
            await self._runs.forget_unwritten()
            await anyio.sleep(TEND_SECONDS)

    def stop(self) -> None:
        """Look for no more of them: the server is stopping."""
        if self._tending is not None:
            self._tending.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait until none is being taken up, for at most so many seconds."""
        await self._tasks.drain(seconds)
