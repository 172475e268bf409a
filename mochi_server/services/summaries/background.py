"""Writes summaries in the background, while nobody waits for the model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import anyio

from ...core.aio import BackgroundTasks
from ...errors import ShuttingDown
from ...providers.registry import ProviderRegistry
from .schedule import SummaryScheduler

AGAIN_SECONDS: Final = 0.25
"""Shortest wait after a summary was preempted."""
PATIENCE_PAUSES = 20
"""Longest wait of a summary for a pause in the turns, as a multiple of that wait. Then it runs
beside a turn; whenever a chat preempts it there, the next wait is twice as long."""
LONGER_QUIET: Final = 20
"""Multiple of the quiet time for a server that goes on reading cancelled prompts."""
CLOSE_SECONDS: Final = 5.0
"""Longest wait for the end of summaries that were stopped."""


class BackgroundWriting:
    """Jobs that write summaries, one for each key, and requests that somebody waits for."""

    def __init__(
        self, scheduler: SummaryScheduler, providers: ProviderRegistry, interval: float
    ) -> None:
        self._scheduler = scheduler
        self._providers = providers
        self._interval = interval
        """Seconds of quiet before a summary, and between two attempts."""
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._requests: set[anyio.CancelScope] = set()
        self._tasks = BackgroundTasks()
        self._closed = False

    @property
    def pending(self) -> int:
        """Number of keys in this process whose summary waits, or is written now."""
        return len(self._jobs)

    def _begin(self, key: str, job: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
        """Run a job in the place of the key's present one; none when the server stops."""
        if self._closed:
            return
        self._cancel(key)
        task = self._jobs[key] = self._tasks.spawn(job(), name=name)
        task.add_done_callback(lambda task: self._forget(key, task))

    def _cancel(self, key: str) -> bool:
        """Cancel the job of a key, and return whether there was one."""
        job = self._jobs.pop(key, None)
        if job is not None:
            job.cancel()
        return job is not None

    def _forget(self, key: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]

    async def _write_when_quiet(
        self,
        session_id: str | None,
        choose: Callable[[], Awaitable[str | None]],
        write: Callable[[str], Awaitable[object]],
    ) -> bool:
        """Write by the model that is chosen, and return whether one was.

        It begins again, with the choice, whenever a chat goes first. Without a session, it is work
        that no queue has.
        """
        patience: float | None = None
        while (model := await choose()) is not None:
            slow = await self._providers.resolve(model)[0].reads_cancelled_prompts()
            quiet = LONGER_QUIET * self._interval if slow else 0.0
            pause = max(quiet, self._interval, AGAIN_SECONDS)
            patience = patience or PATIENCE_PAUSES * pause
            memory, work = self._providers.memory_key(model), partial(write, model)
            async with self._scheduler.slot(memory, patience, quiet) as idle:
                if await self._scheduler.run_exclusively(session_id, memory, work):
                    return True
            if not idle:
                patience *= 2
            await anyio.sleep(pause)
        return False

    @contextmanager
    def _request(self) -> Iterator[None]:
        """End what is done within, which somebody waits for, when the server stops.

        Raises:
            ShuttingDown: it stops.
        """
        if self._closed:
            raise ShuttingDown
        scope = anyio.CancelScope()
        self._requests.add(scope)
        try:
            with scope:
                yield
        finally:
            self._requests.discard(scope)
        if scope.cancelled_caught:
            raise ShuttingDown

    def stop(self) -> None:
        """Stop all that is under way; nothing new is begun."""
        self._closed = True
        for key in [*self._jobs]:
            self._cancel(key)
        for scope in self._requests:
            scope.cancel()

    async def aclose(self) -> None:
        self.stop()
        await self._tasks.drain(CLOSE_SECONDS)
