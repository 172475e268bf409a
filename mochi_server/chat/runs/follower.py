"""Reads runs that other processes execute, and ended ones, from the journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress

import anyio

from ...core.aio import BackgroundTasks, run_to_completion
from ...errors import MochiError, RunInterrupted, RunNotFound, ShuttingDown, StorageError
from ...protocol.events import Done, ErrorEvent
from ..journal.journal import RunJournal
from ..journal.records import RECOVERY_JUMP, STATE_NOTES, EventLine, Line, Note, RunHead
from .ending import EndsRuns, RunEnding
from .log import LogReader, RunLog
from .progress import RunProgress, read_run
from .requests import Leave, RunRequests

RESTORE_SECONDS = 5.0
"""Seconds after Redis was away in which a run may be missing, or seem to be without a process.

Its process writes it again.
"""


class RunFollower:
    """The runs that somebody in this process reads, and that it does not execute."""

    def __init__(
        self,
        journal: RunJournal,
        recovery: EndsRuns,
        requests: RunRequests,
        tasks: BackgroundTasks,
    ) -> None:
        self._journal = journal
        self._recovery = recovery
        self._requests = requests
        self._tasks = tasks
        self._logs: dict[str, RunLog] = {}
        """What was read so far of the runs that somebody reads."""
        self._is_closed = False

    def close(self) -> None:
        """Let all readers end: the server is stopping."""
        self._is_closed = True

    async def join(self, run_id: str, after: int = 0) -> LogReader | None:
        """Return a reader of a run's events after a number.

        None if the run has ended, and has no event after that number.

        Raises:
            RunNotFound: there is no such run, or none any more.
        """
        if (log := self._logs.get(run_id)) is not None:
            return log.reader(after)
        progress = await self.progress(run_id)
        if progress.end is not None and after >= progress.next_event - 1:
            return None
        leave = await self._requests.add_reader(run_id) if progress.end is None else None
        if (log := self._logs.get(run_id)) is not None:  # somebody else joined meanwhile
            if leave is not None:
                await leave()
            return log.reader(after)
        log = self._logs[run_id] = RunLog(progress.head.first_event)
        reader = log.reader(after)
        self._spawn_follow(progress.head, log, leave)
        return reader

    def go_on(self, head: RunHead, log: RunLog) -> None:
        """Let the readers of a run that another process has taken from this one read on.

        Readers of whole messages end with an error: what the other one stores is not told here.
        """
        for own_log in log.detach_whole_messages():
            own_log.close(_interrupt(own_log, head))
        self._spawn_follow(head, log, None)

    def _spawn_follow(self, head: RunHead, log: RunLog, leave: Leave | None) -> None:
        self._tasks.spawn(self._follow(head, log, leave), name="a run of another process")

    async def progress(self, run_id: str) -> RunProgress:
        """Read how far a run has come; one whose process has died is ended first.

        Raises:
            RunNotFound: there is no such run, or none any more.
        """
        is_recovered = False
        while (read := await read_run(self._journal, run_id)) is not None:
            part, progress = read
            if is_recovered or progress.end or part.is_held or progress.is_parked:
                return progress
            is_recovered = True
            await self._try_to_recover(run_id)
        raise RunNotFound(run_id=run_id)

    async def _try_to_recover(self, run_id: str, ending: RunEnding | None = None) -> None:
        with suppress(MochiError):  # it is tried again
            await run_to_completion(self._recovery.recover(run_id, ending))

    async def _follow(self, head: RunHead, log: RunLog, leave: Leave | None) -> None:
        """Copy a run from the journal into a log, for as long as somebody reads it."""
        run_id, has_ended = head.run_id, False
        failure: MochiError | None = None
        try:
            async with aclosing(self._lines(run_id)) as parts:
                async for lines in parts:
                    copy_lines(lines, log)
                    has_ended = _state_in(lines) == "end"
                    if not log.is_read:
                        return
                    if self._is_closed and not has_ended:
                        failure = ShuttingDown()
                        return
            failure = _failure_in(log) if has_ended else _interrupt(log, head)
        finally:
            if self._logs.get(run_id) is log:
                del self._logs[run_id]
            log.close(failure)
            if leave is not None:
                await leave()

    async def _lines(
        self, run_id: str, ending: RunEnding | None = None
    ) -> AsyncGenerator[Sequence[Line], None]:
        """Yield the lines of a run as they come, or none, up to its end; end it if it is dead.

        ``ending``: how it ends if it is dead; see ``RunRecovery.recover``.
        """
        position: object = None
        state = None
        restored_until = 0.0
        while True:
            try:
                part = await self._journal.read(run_id, position)
            except StorageError:  # whoever executes the run writes it again
                restored_until = anyio.current_time() + RESTORE_SECONDS
                part = None
            if part is None and anyio.current_time() >= restored_until:
                return
            lines = () if part is None else part.lines
            yield lines
            state = _state_in(lines) or state
            if state == "end":
                return
            if part is not None:
                position = part.position
                is_dead = not (lines or part.is_held or (state == "waiting" and ending is None))
                if is_dead and anyio.current_time() >= restored_until:
                    await self._try_to_recover(run_id, ending)
            if not lines:
                await anyio.sleep(self._journal.follow_seconds)

    async def wait_for_end(self, run_id: str, ending: RunEnding) -> None:
        """Wait until a run has ended; if its process dies meanwhile, end it like this."""
        async with aclosing(self._lines(run_id, ending)) as parts:
            async for _ in parts:
                pass


def copy_lines(lines: Iterable[Line], log: RunLog) -> None:
    """Add events to a log, with their numbers."""
    for line in lines:
        if isinstance(line, EventLine):
            events = list(line.events(log.end))
            if events and events[-1][0] == log.end + len(events) - 1:
                log.extend([event for _, event in events])
                continue
            for number, event in events:  # with gaps: the numbers have jumped, or some are unknown
                if number != log.end:
                    log.jump(number)
                log.append(event)


def _interrupt(log: RunLog, head: RunHead) -> MochiError:
    """Add the last events of a run of which nothing more can be read; return its error."""
    error = RunInterrupted(run_id=head.run_id)
    if log.end == head.first_event:
        log.append(head.start())
    log.jump(log.end + RECOVERY_JUMP)  # the process that has taken it may have used the next ones
    log.extend([ErrorEvent.of(error), Done(session_id=head.session_id)])
    return error


def _failure_in(log: RunLog) -> MochiError | None:
    """Return the error with which a run has ended, which comes before ``done``."""
    errors = [event for _, event in log.since(log.end - 2) if isinstance(event, ErrorEvent)]
    return errors[0].error() if errors else None


def _state_in(lines: Iterable[Line]) -> str | None:
    """Return the last note about the run's state: ``waiting``, ``resumed`` or ``end``."""
    names = [line.name for line in lines if isinstance(line, Note)]
    return next((name for name in reversed(names) if name in STATE_NOTES), None)
