"""Recognises the session of a conversation that a client sends whole.

The id of such a session follows from the conversation's begin, and the session is the right one if
it says, message for message, what the client sends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import orjson

from ..core.aio import in_thread_if, yield_to_loop
from ..core.caller import current_caller
from ..errors import JSONObject, SessionNotFound
from ..protocol.fold import BETWEEN_REPLIES
from ..protocol.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ..sessions import ChatSession, SessionManager
from ..sessions.attachments import attachments_of
from ..sessions.messages import MANY_MESSAGES
from .conversation import calls_of

MOST_ALIKE = 50
"""Conversations with the same begin that are looked at; there is a new session beyond them."""

_YIELD_EVERY = 100
"""Messages after which a thread that reads them lets the event loop run."""


@dataclass(frozen=True, slots=True)
class RecognisedSession:
    """The session of a conversation."""

    session_id: str | None
    """None: any new id."""
    exists: bool


async def recognise(
    sessions: SessionManager,
    system: str | None,
    history: Sequence[Message],
    new: Sequence[Message],
    *,
    functions: Collection[str] | None = None,
    in_use: Collection[str] = (),
) -> RecognisedSession:
    """Find the session of a conversation, or the id of the one that is to be made.

    Args:
        sessions: All sessions.
        system: The system prompt that the client sends.
        history: What was said up to the last reply.
        new: What the client adds.
        functions: Names of the functions that the client runs, where it tells of other calls as
            well, perhaps in another order; None: all calls that it tells of are its own.
        in_use: Sessions that it must not be.

    Raises:
        SessionUnreadable, StorageError: a session with such an id cannot be read.
    """
    is_long = len(history) > MANY_MESSAGES
    own, wanted = await in_thread_if(is_long, _all_said, history, functions)
    first = next((each for each in (*history, *new) if isinstance(each, UserMessage)), None)
    begin = orjson.dumps([system, None if first is None else _of_user(first)])
    if (owner := current_caller().owner) is not None:  # others may begin in the same way
        begin += owner.encode()
    for number in range(MOST_ALIKE):
        session_id = hashlib.sha256(b"%d %b" % (number, begin)).hexdigest()[:10]
        if session_id in in_use:
            continue
        try:
            session = await sessions.get(session_id)
        except SessionNotFound:
            return RecognisedSession(session_id, exists=False)
        if await in_thread_if(is_long, _says, session, own, wanted):
            return RecognisedSession(session_id, exists=True)
    return RecognisedSession(None, exists=False)


Said = tuple[str, object]
"""The role of a message, and what it says."""


def _all_said(
    history: Sequence[Message], functions: Collection[str] | None
) -> tuple[Collection[str], Sequence[Said]]:
    """Return the ids of the client's own calls, and what it says was said."""
    replies = [each for each in history if isinstance(each, AssistantMessage)]
    calls = [call for reply in replies for call in calls_of(reply)]
    own = {call.id for call in calls if functions is None or call.name in functions}
    return own, [*_said(history, own)]


def _says(session: ChatSession, calls: Collection[str], wanted: Sequence[Said]) -> bool:
    """Return whether a session says that; it is read no further than where it differs."""
    said = _said(session.messages, calls)
    return all(ours == theirs for ours, theirs in zip_longest(said, wanted))


def _said(messages: Iterable[Message], calls: Collection[str]) -> Iterator[Said]:
    """Yield what messages say, without the calls that are not the client's own.

    What the model says before and after them is one text.
    """
    texts: list[str] = []
    asked: list[object] = []
    for number, message in enumerate(messages, start=1):
        if number % _YIELD_EVERY == 0:
            yield_to_loop()
        match message:
            case AssistantMessage():
                texts += [message.text.strip()] if message.text.strip() else []
                own = [call for call in calls_of(message) if call.id in calls]
                asked += [(call.name, call.arguments) for call in own]
            case ToolMessage() if message.tool_call_id not in calls:
                pass
            case UserMessage() | ToolMessage():
                yield from _reply(texts, asked)
                texts, asked = [], []
                yield message.role, _of_user(message) if message.role == "user" else message.text
            case _:
                pass
    yield from _reply(texts, asked)


def _reply(texts: Sequence[str], calls: Sequence[object]) -> Iterator[Said]:
    if texts or calls:
        yield "assistant", (BETWEEN_REPLIES.join(texts), [*calls])


def _of_user(message: Message) -> object:
    stored: JSONObject = message.as_stored()
    return message.text, [each["attachment_id"] for each in attachments_of(stored)]
