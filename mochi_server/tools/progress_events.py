"""What calls report while they run, as events."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

import anyio

from ..core.aio import merge
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

    async def events(self) -> AsyncGenerator[ToolProgress, None]:
        """Yield what is reported, not too often, until it is closed."""
        for sent in range(MAX_EVENTS):
            event = None
            while event is None:
                await self._new.wait()
                if self._closed.is_set():
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
    steps: AsyncGenerator[T, None], reports: ProgressReports
) -> AsyncGenerator[T | ToolProgress, None]:
    """Yield the steps of a call, and what it reports meanwhile by ``report_progress``."""

    async def run() -> AsyncGenerator[T | ToolProgress, None]:
        try:
            with reporting_to(reports):  # merge runs this in a task, so in a context, of its own
                async with aclosing(steps):
                    async for step in steps:
                        yield step
        finally:
            reports.close()

    async with aclosing(merge([run(), reports.events()])) as merged:
        async for each in merged:
            yield each
