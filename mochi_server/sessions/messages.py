"""The messages of a session as its file has them, each parsed only when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload

import orjson
from pydantic import JsonValue, ValidationError

from ..constants import PREVIEW_CHARACTERS
from ..core.aio import yield_to_loop
from ..errors import JSONObject
from ..protocol.messages import MESSAGE, Message, UnknownMessage
from .attachments import attachments_of
from .codec import encode, id_of, is_user

_YIELD_EVERY = 100
"""Messages after which a thread that encodes them lets the event loop run."""


class Messages(Sequence[Message]):
    """A read-only sequence of a session's messages, each parsed when it is accessed.

    The messages are copies: changing one does not change the session.
    """

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [_parse(line) for line in self._lines[index]]
        return _parse(self._lines[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # the way to say "not hashable"

    def __repr__(self) -> str:
        return f"<Messages: {len(self)}>"


def _parse(line: bytes) -> Message:
    try:
        message = MESSAGE.validate_json(line)
    except ValidationError:
        content = orjson.loads(line)
        role = content.get("role") if isinstance(content, dict) else None
        return UnknownMessage(role=role if isinstance(role, str) else "unknown", content=None)
    # A new message gets an id and a time of its own; a stored one without them must not.
    for key in type(message).model_fields.keys() & {"message_id", "timestamp"}:
        if key not in message.model_fields_set:
            setattr(message, key, None)
    return message


MANY_MESSAGES = 200
"""Number of messages above which they are encoded in a thread."""


def encode_messages(messages: Iterable[Message]) -> list[bytes]:
    lines = []
    for number, message in enumerate(messages, start=1):
        lines.append(encode(message.as_stored()))
        if number % _YIELD_EVERY == 0:
            yield_to_loop()
    return lines


class StoredMessageLines:
    """The messages of a session, to read; each is a line of JSON."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = list(lines)

    @property
    def messages(self) -> Messages:
        """A view of the messages; the system message counts."""
        return Messages(self._lines)

    def stored(self, index: int) -> JsonValue:
        message: JsonValue = orjson.loads(self._lines[index])
        return message

    def forward(self) -> Iterator[JsonValue]:
        """Yield the messages as JSON values, beginning with the first, parsed one by one."""
        return map(orjson.loads, self._lines)

    def stored_messages(self) -> list[JsonValue]:
        """Return all messages as JSON values; ``messages_json`` is much faster."""
        return [*self.forward()]

    def messages_json(self, turns: int | None = None) -> bytes:
        """Return the messages as JSON; with ``turns`` the system message and the last turns."""
        lines = self._lines if turns is None else self._lines_of_last(turns)
        return b"[" + b",".join(lines) + b"]"

    def _lines_of_last(self, turns: int) -> list[bytes]:
        found = next(islice(self._questions_from_last(), turns - 1, None), None)
        if found is None:
            return self._lines
        return [*self._lines[: int(self._has_system_prompt())], *self._lines[found[0] :]]

    def _questions_from_last(self) -> Iterator[tuple[int, JSONObject]]:
        """Yield the user's messages, the last one first, each with its index."""
        for index in range(len(self._lines) - 1, -1, -1):
            line = self._lines[index]
            if b'"user"' in line and is_user(message := orjson.loads(line)):
                yield index, message

    def tail(self) -> Iterator[JsonValue]:
        """Yield the messages as JSON values, beginning with the last, parsed one by one."""
        return map(orjson.loads, reversed(self._lines))

    @property
    def last_message_id(self) -> str | None:
        return next(map(id_of, self.tail()), None)

    def has_message(self, message_id: str | None) -> bool:
        """Return whether a message has this id; None: whether one has none."""
        return any(id_of(message) == message_id for message in self.tail())

    @property
    def last_user_message(self) -> JSONObject | None:
        """The last message of the user, as it is stored; None if there is none."""
        return next((message for _, message in self._questions_from_last()), None)

    def attachments(self) -> Iterator[JSONObject]:
        """Yield what the messages say of their attachments, in order."""
        for line in self._lines:
            if b'"attachments"' in line and isinstance(message := orjson.loads(line), dict):
                yield from attachments_of(message)

    @property
    def preview(self) -> str:
        """The first user message, cut to 100 characters with its "..."; "" when there is none."""
        for line in self._lines:
            if b'"user"' in line and is_user(message := orjson.loads(line)):
                return preview_of(message)
        return ""

    def _has_system_prompt(self) -> bool:
        first = self.stored(0) if self._lines else None
        return isinstance(first, dict) and first.get("role") == "system"


def preview_of(message: JSONObject | None) -> str:
    content = message.get("content") if message else None
    if not isinstance(content, str):
        return ""
    if len(content) <= PREVIEW_CHARACTERS:
        return content
    return content[: PREVIEW_CHARACTERS - 3] + "..."
