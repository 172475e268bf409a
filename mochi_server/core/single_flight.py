"""Single flight: work that runs once for all who ask for its result at the same time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from .aio import BackgroundTasks, in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S")

PATIENCE_SECONDS = 5.0
"""Longest wait for a load where an older state is there."""

CLOSE_SECONDS = 5.0
"""Longest wait at the end for a load that was cancelled."""

LATE = "has changed and is still being loaded; meanwhile it is used as it was before"


class CachedResult(Generic[T]):
    """A result that is computed again when it is too old; once, however many ask.

    Args:
        compute: Computes it.
        tasks: Where that runs, as whoever asked may leave before its end.
        fresh_seconds: How long a result is returned again.
        name: The task's name in the log.
    """

    def __init__(
        self,
        compute: Callable[[], Coroutine[Any, Any, T]],
        *,
        tasks: BackgroundTasks,
        fresh_seconds: float,
        name: str,
    ) -> None:
        self._compute = compute
        self._fresh_seconds = fresh_seconds
        self._tasks = tasks
        self._name = name
        self._task: asyncio.Task[T] | None = None
        self._computed_at = float("-inf")

    async def read(self, *, refresh: bool = False) -> T:
        """Return the last result if it is fresh, else a new one; with ``refresh`` always a new one.

        Whoever asks while a result is being computed gets that one.
        """
        is_old = refresh or time.monotonic() - self._computed_at > self._fresh_seconds
        if self._task is None or (self._task.done() and is_old):
            self._task = self._tasks.spawn(self._run(), name=self._name)
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        result = await self._compute()
        self._computed_at = time.monotonic()
        return result


class ReloadOnChange(Generic[S]):
    """Keeps in memory what was loaded from files, and loads it again when they have changed.

    After ``refresh`` it is as new as the call: from a load that began after the call, or from an
    earlier one of the files as they are now. A load may take long, or never end: after
    ``PATIENCE_SECONDS`` callers go on with what was loaded before.

    Args:
        name: What is loaded, for people.
        snapshot: Describes the files as they are now; runs in a thread.
        load: Loads the files that a snapshot describes. It may keep what was loaded from unchanged
            files, unless its second argument is true. Returns whether it kept nothing.
        is_current: Returns whether what is loaded is what a snapshot describes.
    """

    def __init__(
        self,
        name: str,
        *,
        snapshot: Callable[[], S],
        load: Callable[[S, bool], Awaitable[bool]],
        is_current: Callable[[S], bool],
    ) -> None:
        self._name = name
        self._snapshot = snapshot
        self._load = load
        self._is_current = is_current
        self._tasks = BackgroundTasks()
        self._task: asyncio.Task[None] | None = None
        self._started = 0
        """The number of the latest load."""
        self._loaded = 0
        """The number of the latest load that succeeded."""
        self._loaded_fully = 0
        """The number of the latest load that succeeded and loaded everything."""
        self._patient_until = 0.0
        """The loop's time until which callers wait for the load that is running."""
        self._closed = False
        self.late = False
        """Whether a caller went on without the load that is running."""

    async def refresh(self, *, anew: bool = False) -> None:
        """Return when what is loaded is as new as this call, or when that takes too long.

        What the load raises is raised here. The very first load is waited for to its end.

        Args:
            anew: Load everything, changed or not, and wait for it to the end.
        """
        started, patient_until = self._started, _now() + PATIENCE_SECONDS
        snapshot = await in_thread(self._snapshot)
        while not self._closed and (self._loaded_fully if anew else self._loaded) <= started:
            if not anew and self._is_current(snapshot):
                return
            running = self._task
            if running is None or running.done():
                running = self._start(snapshot, anew=anew)
            until = None if anew or not self._loaded else min(patient_until, self._patient_until)
            seconds = None if until is None else max(until - _now(), 0)
            done, _ = await asyncio.wait({running}, timeout=seconds)
            if not done and not self.late:
                self.late = True
                logger.warning("%s %s", self._name, LATE)
            if not done or running.cancelled():
                return
            running.result()

    def _start(self, snapshot: S, *, anew: bool) -> asyncio.Task[None]:
        self._started += 1
        self._patient_until = _now() + PATIENCE_SECONDS
        work = self._run(snapshot, self._started, anew=anew)
        self._task = self._tasks.spawn(work, name=f"load {self._name}")
        return self._task

    async def _run(self, snapshot: S, number: int, *, anew: bool) -> None:
        try:
            everything = await self._load(snapshot, anew)
            self._loaded = number
            if everything:
                self._loaded_fully = number
        finally:
            self.late = False

    async def aclose(self) -> None:
        """Load nothing any more and cancel the load that is running; may be called again."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        await self._tasks.drain(CLOSE_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()
