"""Questions about others, such as whether they are there: asked seldom, and not for long."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from mochi_server.core.aio import BackgroundTasks

T = TypeVar("T")


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
