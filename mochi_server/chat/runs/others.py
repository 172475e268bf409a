"""The runs that this process does not execute: whether they are over, and the end of dead ones."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Container, Sequence

import anyio

from ...core.caller import may_see
from ...errors import MochiError, SessionBusy, StorageError
from ..journal.journal import RunJournal
from .ending import EndsRuns
from .progress import read_run

logger = logging.getLogger(__name__)

WATCH_SECONDS = 0.075
"""Seconds between two writes of the journal, and between two looks at what others have written.

A kill loses at most what was said since.
"""

STOP_SECONDS = 15.0
"""Longest wait for another process to end a run, or until its lease has expired."""

REMEMBERED_SESSIONS = 10_000
"""Number of sessions of which it is known that their last run has ended."""


class RunsOfOthers:
    """Finds out whether the last runs of sessions are over, and ends those that nobody ends.

    ``own``: ids of the runs that this process executes.
    """

    def __init__(self, journal: RunJournal, recovery: EndsRuns, own: Container[str]) -> None:
        self._journal = journal
        self._recovery = recovery
        self._own = own
        self._ended: OrderedDict[str, str] = OrderedDict()
        """Last runs by session that are known to have ended, the latest last."""
        self._recovering = anyio.Lock()
        self._unrecovered: set[str] = set()
        """Runs without a process that could not be recovered; the log was told of them."""

    async def check_left(self, session_id: str, run_id: str | None) -> None:
        """Refuse a session whose last run another process executes.

        Raises:
            SessionBusy: it does.
        """
        if run_id is None or self._ended.get(session_id) == run_id or run_id in self._own:
            return
        try:
            read = await read_run(self._journal, run_id)
        except StorageError:
            return  # it cannot be known now; turns go on
        if read is None or read.progress.end is not None or not read.part.is_held:
            return
        progress = read.progress
        if may_see(progress.head.owner) and (
            session_id in {progress.head.session_id, *progress.agent_sessions}
        ):
            raise SessionBusy(session_id=session_id)

    async def settle(self, session_id: str, run_id: str | None) -> None:
        """Make sure that a session's last run is over; the caller has claimed the session.

        Raises:
            SessionBusy: it waits for a person, or its end cannot be written.
            StorageError: its process has died, and the session cannot be written.
        """
        if run_id is None or self._ended.get(session_id) == run_id or run_id in self._own:
            return
        deadline = anyio.current_time() + STOP_SECONDS
        while True:
            try:
                read = await read_run(self._journal, run_id)
            except StorageError:
                return  # it cannot be known now; turns go on
            if read is None or read.progress.end is not None:
                break
            part, progress = read
            if not may_see(progress.head.owner):
                return  # of somebody else, whose run an imported file names
            is_agents = progress.head.session_id != session_id
            if is_agents and (part.is_held or session_id not in progress.agent_sessions):
                return  # an agent's session, which the run does not use now, or not any more
            if not part.is_held and await self._recovery.recover(run_id, claimed=session_id):
                break
            if progress.is_parked or anyio.current_time() > deadline:
                raise SessionBusy(session_id=session_id)
            await anyio.sleep(WATCH_SECONDS)  # somebody writes its last lines
        self.note_ended(session_id, run_id)

    def note_ended(self, session_id: str, run_id: str) -> None:
        """Note that the session's last run has ended."""
        self._ended[session_id] = run_id
        self._ended.move_to_end(session_id)
        if len(self._ended) > REMEMBERED_SESSIONS:
            self._ended.popitem(last=False)

    async def recover_dead(self) -> None:
        """End the runs of processes that have died, unless they wait for a person.

        Returns when this process recovers none of them any more.
        """
        async with self._recovering:
            dead = [each for each in await self._journal.dead_runs() if each not in self._own]
            self._unrecovered.intersection_update(dead)
            await self._recover_each(dead)

    async def recover_forgotten(self, asked: Container[str]) -> None:
        """End the runs that wait and that no process executes, but for those that have asked."""
        async with self._recovering:
            waiting = await self.waiting_runs()
            await self._recover_each([each for each in waiting if each not in asked])

    async def _recover_each(self, run_ids: Sequence[str]) -> None:
        """Recover runs; one that cannot be recovered now keeps no other from it."""
        for run_id in run_ids:
            is_logged = run_id in self._unrecovered
            self._unrecovered.add(run_id)
            try:
                await self._recovery.recover(run_id)
            except MochiError as error:
                if not is_logged:
                    text = "The run %s cannot be recovered now: %s"
                    logger.warning(text, run_id, error.message)
            except Exception:
                if not is_logged:
                    logger.exception("The run %s cannot be recovered", run_id)
            else:
                self._unrecovered.discard(run_id)

    async def waiting_runs(self) -> set[str]:
        """Return the ids of the runs that wait and that no process executes."""
        return {run.run_id for run in await self._journal.runs() if run.waits}
