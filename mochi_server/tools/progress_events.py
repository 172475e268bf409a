"""What calls report while they run, as events."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import anyio

from ..core.aio import end_task, start_task
from ..core.logs import one_line
from ..protocol.events import ToolProgress
from .base import ToolContext
from .progress import reporting_to

T = TypeVar("T")

PAUSE_SECONDS = 0.1
"""Shortest time between two events of a call; of what is reported meanwhile, the last counts."""
EARLY_EVENTS = 100
LATER_PAUSE_SECONDS = 1.0
"""The same after the first ``EARLY_EVENTS``."""
MAX_EVENTS = 2_000


class ProgressReports:
    """What one call reports, from any thread; only the latest report is kept."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._latest: tuple[float, float | None, str | None] | None = None
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()
        self._new, self._closed = asyncio.Event(), asyncio.Event()

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._latest = progress, total, message
        if not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_scheduled = False
        self._new.set()

    def close(self) -> None:
        self._closed.set()
        self._new.set()

    async def wait(self) -> bool:
        """Wait for a report; return whether there is one, or else it is closed."""
        await self._new.wait()
        return not self._closed.is_set()

    async def events(self) -> AsyncGenerator[ToolProgress, None]:
        """Yield what is reported, not too often, until it is closed."""
        for sent in range(MAX_EVENTS):
            event = None
            while event is None:
                if not await self.wait():
                    return
                self._new.clear()
                event = self._event()
            yield event
            with anyio.move_on_after(PAUSE_SECONDS if sent < EARLY_EVENTS else LATER_PAUSE_SECONDS):
                await self._closed.wait()

    def _event(self) -> ToolProgress | None:
        latest, self._latest = self._latest, None
        if latest is None or not math.isfinite(latest[0]):
            return None
        progress, total, message = latest
        return ToolProgress(
            tool_call_id=self._context.tool_call_id,
            progress=progress,
            total=total if total is not None and math.isfinite(total) else None,
            message=None if message is None else one_line(str(message)),
            agent_name=self._context.agent_name,
            agent_call_id=self._context.agent_call_id,
        )


async def with_progress(
    call: Callable[[], Awaitable[T]], context: ToolContext
) -> AsyncGenerator[T | ToolProgress, None]:
    """Yield what a call reports by ``report_progress``, as it comes, and its result, last.

    Closing the generator cancels the call, and waits for its end.
    """
    reports = ProgressReports(context)

    async def run() -> T:
        try:
            return await call()
        finally:
            reports.close()

    with reporting_to(reports):  # the task has a copy of this context
        task = start_task(run())
    try:
        if await reports.wait():  # most calls report nothing
            async with aclosing(reports.events()) as events:
                async for event in events:
                    yield event
        yield await task
    finally:
        await end_task(task)
