"""Waiting for what nothing announces: another process, a file, what others have written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anyio

SECONDS = 100


async def until(
    ask: Callable[[], Any], fits: Callable[[Any], object] = bool, *, seconds: float = SECONDS
) -> Any:
    """Ask again and again until an answer fits, and return it.

    Args:
        ask: Returns the answer, or a coroutine that does.
        fits: Whether this answer is the one; without it, a true one is.
        seconds: How long to ask.

    Raises:
        AssertionError: No answer fitted; the last one is shown.
    """
    last: Any = "nothing"
    with anyio.move_on_after(seconds):
        while True:
            asked = ask()
            last = await asked if inspect.isawaitable(asked) else asked
            if fits(last):
                return last
            await anyio.sleep(0.02)
    raise AssertionError(f"never came; the last answer was {last!r}")
