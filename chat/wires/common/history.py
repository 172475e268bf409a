"""What the conversations of several wires have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import TypeVar

import anyio.lowlevel

from mochi_server.chat.completions import NEW_SESSION
from mochi_server.protocol.messages import Message, ToolMessage

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


def without_results_of_server(
    messages: Sequence[Message], session_id: str | None, functions: Collection[str]
) -> Sequence[Message]:
    """Return the messages without results that the session has already.

    Args:
        messages: The whole conversation.
        session_id: The session that it continues; those of a new one, or of none, are all kept.
        functions: Names of the functions that the client runs.
    """
    if session_id in (None, NEW_SESSION):
        return messages
    return [
        message
        for message in messages
        if not isinstance(message, ToolMessage) or message.tool_name in functions
    ]
