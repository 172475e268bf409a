"""What the conversations of several wires have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

import anyio.lowlevel

from mochi_server.errors import InvalidRequest
from mochi_server.protocol.messages import AssistantMessage, ToolCall, UserMessage
from mochi_server.sessions.attachments import NewAttachment, attach

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


def data_url(url: str, what: str) -> str:
    """Return the URL of a file.

    Raises:
        InvalidRequest: it is no data URL, and the server fetches none.
    """
    if not url.startswith("data:"):
        raise InvalidRequest(f"{what} must be a data URL: the server fetches none.")
    return url


def question_of(text: str, files: Sequence[NewAttachment]) -> UserMessage:
    """Return what the user says, with files."""
    question = UserMessage(content=text)
    attach(question, files)
    return question


def reply_of(
    text: str, calls: Sequence[ToolCall] = (), thinking: str | None = None
) -> AssistantMessage:
    """Return what the model has said, with its calls and thoughts."""
    reply = AssistantMessage(content=text)
    if thinking:
        reply.thinking = thinking
    if calls:
        reply.tool_calls = [call.as_stored() for call in calls]
    return reply
