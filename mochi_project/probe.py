"""Questions about others, such as whether they are there: asked seldom, and not for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from mochi_server.core.aio import BackgroundTasks

T = TypeVar("T")


class Remembered(Generic[T]):
    """What was found out last, and is found out again when it is old; once, however many ask."""

    def __init__(
        self,
        find_out: Callable[[], Coroutine[Any, Any, T]],
        *,
        tasks: BackgroundTasks,
        fresh: float,
        name: str,
    ) -> None:
        """Ask nothing yet.

        Args:
            find_out: asks.
            tasks: where that runs, for whoever wants to know may leave before.
            fresh: seconds for which an answer is given again.
            name: of the task, in the log.
        """
        self._find_out = find_out
        self._tasks = tasks
        self._fresh = fresh
        self._name = name
        self._last: asyncio.Task[T] | None = None
        self._at = float("-inf")

    async def read(self, *, refresh: bool = False) -> T:
        """Return the last answer if it is fresh, else ask again; with ``refresh`` always ask.

        Whoever asks while a question is open gets its answer.
        """
        task = self._last
        is_old = refresh or time.monotonic() - self._at > self._fresh
        if task is None or (task.done() and is_old):
            task = self._last = self._tasks.spawn(self._ask(), name=self._name)
        return await asyncio.shield(task)

    async def _ask(self) -> T:
        found = await self._find_out()
        self._at = time.monotonic()
        return found


async def ask_all(
    questions: Mapping[str, Coroutine[Any, Any, T]], *, tasks: BackgroundTasks, limit: float
) -> dict[str, asyncio.Task[T]]:
    """Ask side by side, and give up after so many seconds what has not been answered.

    Args:
        questions: by a name for the log, where one that fails is named.
        tasks: where they run.
        limit: in seconds.

    Returns:
        All tasks by name. What was given up is cancelled and not waited for, since it may take its
        time over that as well: then ``done()`` is false.
    """
    asked = {name: tasks.spawn(question, name=name) for name, question in questions.items()}
    if asked:
        _, late = await asyncio.wait(asked.values(), timeout=limit)
        for task in late:
            task.cancel()
    return asked


def answer_of(task: asyncio.Task[T]) -> T | None:
    """What it answered; None for one that was given up or has failed."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()
