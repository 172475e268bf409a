"""Several requests at a time, and not too many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from ..errors import MochiError

T = TypeVar("T")

SLOTS = 8
"""Requests at a time; Ollama reads a file for each."""


async def for_each(function: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Run it for all items; one that fails does not hide the others.

    Raises:
        MochiError: all of them failed; this is the first one's error.
    """
    slots = anyio.CapacityLimiter(SLOTS)
    failures: list[MochiError] = []

    async def run(item: T) -> None:
        async with slots:
            try:
                await function(item)
            except MochiError as error:
                failures.append(error)

    async with anyio.create_task_group() as group:
        for item in items:
            group.start_soon(run, item)
    if failures and len(failures) == len(items):
        raise failures[0]
