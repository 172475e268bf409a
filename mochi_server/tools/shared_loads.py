"""A state of files in memory, loaded again when they have changed: one load for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ..aio import BackgroundTasks, in_thread

CLOSE_SECONDS = 5.0
"""Longest wait at the end for a load that is going on."""

L = TypeVar("L")


class SharedLoads(Generic[L]):
    """Loads when something has changed; callers at one time share a load.

    Whoever asks gets a state that is as new as the question: a load that began later is new
    enough, whatever it has seen; an earlier one only if it has seen what is there now.
    """

    def __init__(
        self,
        name: str,
        *,
        look: Callable[[], L],
        load: Callable[[L, bool], Awaitable[bool]],
        is_current: Callable[[L], bool],
    ) -> None:
        """Say how to look and how to load.

        Args:
            name: What is loaded, for the log.
            look: What is there now; blocks. Two looks are equal when nothing has changed.
            load: Loads what a look has seen, everything where its second argument says so, and
                gives whether it has loaded everything: then nothing was taken over.
            is_current: Whether what is loaded is what a look sees.
        """
        self._name = name
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
        self._closed = False

    async def refresh(self, *, anew: bool = False) -> None:
        """Return when what is loaded is as new as this call; raises what the load raises.

        Args:
            anew: Load everything, changed or not.
        """
        begun = self._begun
        look = await in_thread(self._look)
        while not self._closed and (self._last_full if anew else self._last) <= begun:
            if not anew and self._is_current(look):
                return
            if self._running is None:
                self._begun += 1
                load = self._run(look, self._begun, anew=anew)
                self._running = self._tasks.spawn(load, name=f"load {self._name}")
            await asyncio.shield(self._running)

    async def _run(self, look: L, number: int, *, anew: bool) -> None:
        try:
            full = await self._load(look, anew)
            self._last = number
            if full:
                self._last_full = number
        finally:
            self._running = None

    async def aclose(self) -> None:
        """Load nothing any more; may be called again."""
        self._closed = True
        await self._tasks.drain(CLOSE_SECONDS)
