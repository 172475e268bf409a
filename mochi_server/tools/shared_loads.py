"""A state of files in memory, loaded again when they have changed: one load for all who ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ..core.aio import BackgroundTasks, in_thread
from .base import Problem

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""Longest wait for a load where something older is there."""

CLOSE_SECONDS = 5.0
"""Longest wait at the end for a load that was given up."""

LATE = "has changed and is still being loaded; meanwhile it is used as it was before"

L = TypeVar("L")


class SharedLoads(Generic[L]):
    """Loads when something has changed; callers at one time share a load.

    Whoever asks gets a state that is as new as the question: a load that began later is new
    enough, whatever it has seen; an earlier one only if it has seen what is there now. But an
    import may take long, or never end: after some seconds what was loaded before must do.
    """

    def __init__(
        self,
        place: str,
        *,
        look: Callable[[], L],
        load: Callable[[L, bool], Awaitable[bool]],
        is_current: Callable[[L], bool],
    ) -> None:
        """Say how to look and how to load.

        Args:
            place: What is loaded, for people.
            look: What is there now; blocks. Two looks are equal when nothing has changed.
            load: Loads what a look has seen, everything where its second argument says so, and
                gives whether it has loaded everything: then nothing was taken over.
            is_current: Whether what is loaded is what a look sees.
        """
        self._place = place
        self._look = look
        self._load = load
        self._is_current = is_current
        self._tasks = BackgroundTasks()
        self._running: asyncio.Task[None] | None = None
        self._begun = 0
        """Loads that have begun; each has its number."""
        self._last = 0
        """The last load that has ended well."""
        self._last_full = 0
        """The last one of everything."""
        self._patient_until = 0.0
        """Of the loop's clock, for all who wait for the load that is running."""
        self._late = False
        """Whether somebody had to go on without it."""
        self._closed = False

    def problems(self) -> list[Problem]:
        """That a load takes long, if one does."""
        return [Problem(file=self._place, line=None, reason=LATE)] if self._late else []

    async def refresh(self, *, anew: bool = False) -> None:
        """Return when what is loaded is as new as this call, or that takes too long.

        What the load raises is raised here. The first load of all is waited for to its end.

        Args:
            anew: Load everything, changed or not, and wait for it to the end.
        """
        begun, patient_until = self._begun, _now() + PATIENCE_SECONDS
        look = await in_thread(self._look)
        while not self._closed and (self._last_full if anew else self._last) <= begun:
            if not anew and self._is_current(look):
                return
            running = self._running or self._start(look, anew=anew)
            until = None if anew or not self._last else min(patient_until, self._patient_until)
            seconds = None if until is None else max(until - _now(), 0)
            done, _ = await asyncio.wait({running}, timeout=seconds)
            if not done:
                self._be_late()
            if not done or running.cancelled():
                return
            running.result()

    def _start(self, look: L, *, anew: bool) -> asyncio.Task[None]:
        self._begun += 1
        self._patient_until = _now() + PATIENCE_SECONDS
        load = self._run(look, self._begun, anew=anew)
        self._running = self._tasks.spawn(load, name=f"load {self._place}")
        return self._running

    def _be_late(self) -> None:
        if not self._late:
            self._late = True
            logger.warning("%s %s", self._place, LATE)

    async def _run(self, look: L, number: int, *, anew: bool) -> None:
        try:
            full = await self._load(look, anew)
            self._last = number
            if full:
                self._last_full = number
        finally:
            self._running = None
            self._late = False

    async def aclose(self) -> None:
        """Load nothing any more, and give up what is being loaded; may be called again."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
        await self._tasks.drain(CLOSE_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()
