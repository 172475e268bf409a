"""Tells sockets of the runs that others begin in their sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import anyio

from mochi_project.runtime import get_runtime
from mochi_server.chat.journal.base import ListedRun
from mochi_server.core.aio import BackgroundTasks
from mochi_server.errors import MochiError

if TYPE_CHECKING:
    from .commands import Commands
    from .consumer import ChatConsumer

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Pause between two looks at the runs of all processes."""


class NewRuns:
    """Looks for runs, while any socket of this process has a session."""

    def __init__(self, sockets: AbstractSet[ChatConsumer], tasks: BackgroundTasks) -> None:
        self._sockets = sockets
        self._tasks = tasks
        self._looking: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin to look; there is a socket."""
        if self._looking is None:
            self._looking = self._tasks.spawn(self._watch(), name="runs for sockets")

    def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _watch(self) -> None:
        is_failing = False
        try:
            while self._sockets:
                await anyio.sleep(LOOK_SECONDS)
                try:
                    await self._look()
                    is_failing = False
                except MochiError as error:
                    if not is_failing:
                        logger.warning("Sockets are not told of new runs: %s", error.message)
                    is_failing = True
        finally:
            self._looking = None

    async def _look(self) -> None:
        by_session: dict[str, list[Commands]] = {}
        for socket in self._sockets:
            if (session_id := socket.commands.session_id) is not None:
                by_session.setdefault(session_id, []).append(socket.commands)
        if not by_session:
            return
        runs: dict[str, list[ListedRun]] = {session_id: [] for session_id in by_session}
        for run in reversed(await get_runtime().runs.all_runs(by_session)):
            if run.state != "queued":
                runs[run.session_id].append(run)
        for session_id, sockets in by_session.items():
            for commands in sockets:
                await commands.follow(session_id, runs[session_id])
