"""The bytes of a session file.

What we write has the metadata indented and each message on a line of its own::

    {
      "metadata": {
        ...
      },
      "messages": [
        {"role":"user",...},
        {"role":"assistant",...}
      ]
    }

So the head can be read without the messages, a message without the others, and untouched messages
are written back byte for byte. Any other layout of the same JSON is read as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import orjson

from ..core.aio import yield_to_loop
from ..core.limits import STORED_LEVELS, is_too_deep, may_be_too_deep
from ..errors import JSONObject

_START = b'{\n  "metadata": {'
_MESSAGES = b'\n  },\n  "messages": ['
_INDENT = b"\n    "
_BETWEEN = b",\n    "
_END = b"\n  ]"
_BOM = b"\xef\xbb\xbf"
_YIELD_EVERY = 512
"""Lines handled before other threads may run, about a millisecond."""


TOO_DEEP = f"nested more than {STORED_LEVELS} levels deep"


class NotASession(ValueError):
    """The bytes are no session; the text says why."""


@dataclass(frozen=True, slots=True)
class Document:
    """The parts of one file. Shared between sessions, so never changed."""

    head: bytes
    lines: list[bytes]
    rest: bytes = b"{}"
    """An object of the other top-level keys, encoded."""

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + 40 * len(self.lines) + len(self.head) + len(self.rest)


def encode(value: object) -> bytes:
    """Encode as compact JSON; what that cannot hold is replaced.

    Half a surrogate pair becomes U+FFFD, a number that is infinite or none becomes null.
    """
    try:
        # A copy: what orjson returns keeps its buffer of 4 KiB, and these are kept by thousands.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def assemble(document: Document) -> Iterator[bytes]:
    head = orjson.dumps(orjson.loads(document.head), option=orjson.OPT_INDENT_2)
    yield b'{\n  "metadata": ' + head.replace(b"\n", b"\n  ")
    yield b',\n  "messages": ['
    if document.lines:
        yield _INDENT
        yield _BETWEEN.join(document.lines)
        yield b"\n  "
    yield b"]"
    for key, value in orjson.loads(document.rest).items():
        yield b",\n  " + encode(key) + b": " + encode(value)
    yield b"\n}\n"


def disassemble(data: bytes) -> Document:
    """Split the content of a file into its parts, and check that every message is JSON.

    Raises:
        NotASession: it is no JSON, or no session.
    """
    data = data.removeprefix(_BOM)
    return _by_lines(data) or _as_a_whole(data)


def _by_lines(data: bytes) -> Document | None:
    """Split a file in our own layout line by line: one parse call would block the event loop."""
    head_end = data.find(_MESSAGES)
    if head_end < 0 or not data.startswith(_START):
        return None
    start = head_end + len(_MESSAGES)
    if data.startswith(b"]", start):
        lines, end = [], start + 1
    else:
        end = data.find(_END, start)
        if end < 0 or not data.startswith(_INDENT, start):
            return None
        lines = data[start + len(_INDENT) : end].split(_BETWEEN)
        end += len(_END)
    head = data[len(_START) - 1 : head_end + 4]
    tail = data[end:].strip()
    if tail != b"}" and not tail.startswith(b","):
        return None
    rest = b"{" + tail.removeprefix(b",")
    if tail.startswith(b",") and rest[1:].lstrip() == b"}":
        return None
    return _checked(Document(head, lines, rest))


def is_bottomless(encoded: bytes) -> bool:
    """Return whether it is nested too deeply to be encoded again."""
    if not may_be_too_deep(encoded, STORED_LEVELS):
        return False
    return is_too_deep(orjson.loads(encoded), STORED_LEVELS)


def _checked(document: Document) -> Document | None:
    try:
        if not isinstance(orjson.loads(document.head), dict):
            return None
        if is_bottomless(document.head) or is_bottomless(document.rest):
            return None
        if not orjson.loads(document.rest).keys().isdisjoint({"metadata", "messages"}):
            return None
        for number, line in enumerate(document.lines, start=1):
            orjson.loads(line)
            if number % _YIELD_EVERY == 0:
                yield_to_loop()
    except orjson.JSONDecodeError:
        return None
    return document


def _as_a_whole(data: bytes) -> Document:
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotASession(f"not valid JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        raise NotASession("not an object with 'metadata'")
    messages = content.pop("messages", [])
    if not isinstance(messages, list):
        raise NotASession("'messages' is not a list")
    metadata = content.pop("metadata")
    if any(is_too_deep(part, STORED_LEVELS) for part in (metadata, content, *messages)):
        raise NotASession(TOO_DEEP)
    return Document(encode(metadata), [encode(message) for message in messages], encode(content))


@dataclass(frozen=True, slots=True)
class Opening:
    """What the beginning of a file tells about it."""

    head: JSONObject
    first_user: JSONObject | None


def open_prefix(data: bytes) -> Opening | None:
    """Read metadata and first user message from the beginning of a file, if it has them."""
    head_end = data.find(_MESSAGES)
    if head_end < 0 or not data.startswith(_START):
        return None
    try:
        encoded = data[len(_START) - 1 : head_end + 4]
        if is_bottomless(encoded):
            return None
        head = orjson.loads(encoded)
        if data.startswith(b"]", start := head_end + len(_MESSAGES)):
            return Opening(head, None)
        return _first_user(head, data, start)
    except orjson.JSONDecodeError:
        return None


def _first_user(head: JSONObject, data: bytes, start: int) -> Opening | None:
    while data.startswith(_INDENT, start):
        start += len(_INDENT)
        end = data.find(b"\n", start)
        if end < 0:
            return None
        message = orjson.loads(data[start:end].removesuffix(b","))
        if is_user(message):
            return Opening(head, message)
        start = end
    return Opening(head, None) if data.startswith(_END, start) else None


def is_user(message: object) -> TypeGuard[JSONObject]:
    return isinstance(message, dict) and message.get("role") == "user"


def id_of(message: object) -> str | None:
    """Return the id of a stored message."""
    message_id = message.get("message_id") if isinstance(message, dict) else None
    return message_id if isinstance(message_id, str) else None
