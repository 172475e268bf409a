"""The runs that one socket reads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mochi_server.chat.runs.log import LogReader
from mochi_server.core.aio import BackgroundTasks
from mochi_server.errors import InvalidRequest
from mochi_server.protocol.fold import Fold

from .frames import RunEncoder
from .outlet import Outlet

MOST_RUNS = 32
"""Runs that one socket reads at the same time."""


@dataclass(slots=True)
class WatchedRun:
    """A run that a socket reads."""

    reader: LogReader
    encode: RunEncoder
    fold: Fold = field(default_factory=Fold)
    is_left: bool = False
    """Whether nothing of it is sent any more."""

    def leave(self, *, abandon: bool = True) -> None:
        """Send nothing of it any more; ``abandon``: as ``LogReader.leave`` has it."""
        self.is_left = True
        self.reader.leave(abandon=abandon)


class Watches:
    """All runs that a socket reads, each by a task of its own."""

    def __init__(self, outlet: Outlet, tasks: BackgroundTasks) -> None:
        self._outlet = outlet
        self._tasks = tasks
        self._watches: dict[str, WatchedRun] = {}
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> set[asyncio.Task[None]]:
        """The tasks that send what was read."""
        return set(self._running)

    def check_room(self) -> None:
        """Make sure that one more run can be read.

        Raises:
            InvalidRequest: the socket reads too many.
        """
        if len(self._watches) >= MOST_RUNS:
            raise InvalidRequest(
                f"This socket reads {MOST_RUNS} runs already.", details={"runs": MOST_RUNS}
            )

    def add(self, run_id: str, reader: LogReader) -> None:
        """Send what a reader reads, in the place of one that reads the same run."""
        if self._outlet.is_closed:
            reader.leave()
            return
        before = self._watches.get(run_id)
        self._watches[run_id] = watch = WatchedRun(reader, RunEncoder(run_id))
        if before is not None:
            before.leave()
        task = self._tasks.spawn(self._send(run_id, watch), name="a run on a socket")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _send(self, run_id: str, watch: WatchedRun) -> None:
        read, encode, send = watch.reader.next, watch.encode, self._outlet.send
        try:
            while (batch := await read()) is not None:
                for number, event in batch:
                    if watch.is_left:
                        return
                    watch.fold.add(event)
                    await send(encode(number, event))
        finally:
            watch.leave()
            if self._watches.get(run_id) is watch:
                del self._watches[run_id]

    def asked_about(self, call_id: str) -> dict[str, bool]:
        """Return the confirmations about a call that were read, each with whether it still waits.

        Those that were read last come last.
        """
        return {
            confirmation_id: waits
            for watch in self._watches.values()
            for confirmation_id, (about, waits) in watch.fold.confirmations.items()
            if about == call_id
        }

    def leave(self, *, abandon: bool = True) -> None:
        """Read no run any more.

        Args:
            abandon: Whether the runs may be cancelled now, if nobody else reads them.
        """
        watches, self._watches = [*self._watches.values()], {}
        for watch in watches:
            watch.leave(abandon=abandon)
