"""What the conversations of several wires have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import anyio.lowlevel

FILES_OF_RESULTS = "(The files are of the results above.)"
"""What the user says with files of results, which can have none themselves."""

Item = TypeVar("Item")

AT_ONCE = 50
"""Messages that are read before other tasks run, which takes about a millisecond."""


async def let_others_run(messages: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield the messages of a long conversation, and let other tasks run meanwhile."""
    for number, message in enumerate(messages, start=1):
        yield message
        if number % AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
