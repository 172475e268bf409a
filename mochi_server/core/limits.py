"""Limits on JSON, and on how much of a model server's responses is read.

Parsers and serialisers of JSON work by recursion, and take time for each value.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any, Final, Literal

from pydantic_core import from_json

from ..errors import ProviderError
from .json_text import parse_json
from .utf8 import Utf8Stream

REQUEST_LEVELS = 64
"""Levels of nesting of a request's body, itself counted."""

REQUEST_VALUES = 10_000
"""Members of objects and elements of lists in a request's body, at most."""

HISTORY_VALUES = 250_000
"""The same of a request that carries its whole history: 25 for each of 10,000 messages."""

CALL_LEVELS = 100
"""Levels of nesting of a tool call's arguments, which become part of messages and events."""

CALL_VALUES = 10_000
"""Members of objects and elements of lists in a tool call's arguments, at most."""

STORED_LEVELS = 200
"""Levels of nesting of new content of a session file; orjson and pydantic write about 250."""


def may_be_too_deep(encoded: bytes, levels: int) -> bool:
    """Return False if JSON is surely not nested deeper, by counting its brackets."""
    return encoded.count(b"{") + encoded.count(b"[") > levels


def has_more_values(encoded: bytes, most: int) -> bool:
    """Return whether JSON has more members and elements than ``most``, without parsing it.

    An empty list or object counts as one value more.
    """
    if _count_values(encoded) <= most:
        return False  # commas within strings were counted too
    text = encoded.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in encoded else encoded
    if text.count(b'"') > 4 * most + 2:  # of each member's name and of its string
        return True
    return _count_values(b"".join(text.split(b'"')[::2])) > most


def _count_values(encoded: bytes) -> int:
    return len(encoded) - len(encoded.translate(None, b",[{"))


def is_too_deep(value: Any, levels: int) -> bool:  # noqa: ANN401 - any JSON
    row = [value]
    for _ in range(levels + 1):
        row = [each for each in row if isinstance(each, dict | list)]
        if not row:
            return False
        row = [
            inner for each in row for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return True


def complete_json(text: str) -> str:
    """Complete JSON that was cut off after its last whole value; return other text unchanged.

    A text that is open is whole if white space follows: small models that are held to a form go on
    with that until they are cut.
    """
    try:
        parse_json(text)
    except ValueError:
        stripped = text.rstrip()
        partial: Literal[True, "trailing-strings"] = True
        if text[len(stripped) :] not in {"", " "}:
            partial = "trailing-strings"
        try:
            return json.dumps(from_json(stripped, allow_partial=partial), ensure_ascii=False)
        except ValueError:
            return text
    return text


MAX_RESPONSE: Final = 4 * 2**20
"""Bytes of a response that is no stream (a list of models, an error, a structured reply), and of
one event or line of a stream. Parsing it holds the event loop."""
EVENT_VALUES: Final = CALL_VALUES + 2_000
"""Members of objects and elements of lists in one event, at most: an SDK makes objects of them,
which takes about 20 µs each and holds the event loop."""
LONG_EVENT: Final = 16 * 2**10
"""Bytes; the values of a shorter event are not counted."""
MAX_STREAM: Final = 128 * 2**20
"""Bytes of a whole stream of events, of which about a hundredth is text: calls and signatures are
kept until its end."""

INFLATED_AT_ONCE: Final = 512
"""Compressed bytes that are inflated together; they may become a thousand times as many."""
ENCODINGS: Final = "gzip, deflate"
"""Encodings that a server may use: others inflate without a bound."""

_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LINE_ENDS: Final = (b"\n",)


def too_large(limit: int) -> ProviderError:
    return ProviderError(
        f"The model server sent more than {limit // 2**20} MB at once: the rest was not read."
    )


def httpx_limits(*, is_async: bool = True, has_events: bool = True) -> dict[str, Any]:
    """Return arguments for an HTTP client whose responses are bounded, also when inflated.

    Args:
        is_async: For an asynchronous client.
        has_events: Whether its streams consist of server-sent events; else of lines.
    """
    ends = _EVENT_ENDS if has_events else _LINE_ENDS

    def bound(response: Any) -> None:  # noqa: ANN401 - the HTTP library's
        _BoundedResponse(response, ends)

    async def bound_async(response: Any) -> None:  # noqa: ANN401 - the HTTP library's
        _BoundedResponse(response, ends)

    return {
        "headers": {"Accept-Encoding": ENCODINGS},
        "event_hooks": {"response": [bound_async if is_async else bound]},
        "follow_redirects": False,
    }


class _BoundedResponse:
    """Reads one response for its HTTP client, and lets a counter fail when it is too much.

    What is read is valid UTF-8: the SDKs fail at anything else.
    """

    def __init__(self, response: Any, ends: tuple[bytes, ...]) -> None:  # noqa: ANN401
        """Replace the methods of the response that read; a ProviderError for other encodings."""
        self._counter = _Counter(ends)
        self._text = Utf8Stream()
        encoding = str(response.headers.get("content-encoding") or "identity").lower()
        if not {part.strip() for part in encoding.split(",")} <= {"identity", "gzip", "deflate"}:
            raise ProviderError(f"The model server compresses its answers with {encoding[:50]!r}.")
        self._is_compressed = encoding != "identity"
        self._raw, self._iterate = response.aiter_raw, response.aiter_bytes
        self._read, self._iterate_sync = response.aread, response.iter_bytes
        self._raw_sync, self._read_sync = response.iter_raw, response.read
        response.aiter_raw, response.aiter_bytes = self.aiter_raw, self.aiter_bytes
        response.aread, response.iter_bytes = self.aread, self.iter_bytes
        response.iter_raw, response.read = self.iter_raw, self.read

    async def aread(self) -> bytes:
        self._counter.is_whole = True
        data: bytes = await self._read()
        return data

    def read(self) -> bytes:
        self._counter.is_whole = True
        data: bytes = self._read_sync()
        return data

    async def aiter_raw(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._raw(chunk_size)) as pieces:
            async for data in pieces:
                for part in self._parts(data):
                    yield part

    def iter_raw(self, chunk_size: int | None = None) -> Generator[bytes, None, None]:
        for data in self._raw_sync(chunk_size):
            yield from self._parts(data)

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._iterate(chunk_size)) as pieces:
            async for data in pieces:
                self._counter.count(data)
                yield self._text.feed(data)
        if rest := self._text.end():
            yield rest

    def iter_bytes(self, chunk_size: int | None = None) -> Generator[bytes, None, None]:
        for data in self._iterate_sync(chunk_size):
            self._counter.count(data)
            yield self._text.feed(data)
        if rest := self._text.end():
            yield rest

    def _parts(self, data: bytes) -> list[bytes]:
        if not self._is_compressed:
            return [data]
        return [data[i : i + INFLATED_AT_ONCE] for i in range(0, len(data), INFLATED_AT_ONCE)]


class _Counter:
    """Counts the inflated bytes of one response, and the values of each event of a stream.

    The bytes come in chunks that end anywhere, also within the end of an event.
    """

    def __init__(self, ends: tuple[bytes, ...]) -> None:
        self._ends = ends
        self.is_whole = False
        """Whether the response is read as a whole, not as a stream."""
        self._left = MAX_STREAM
        self._size = 0
        """Bytes of the response if it is read as a whole, else of the present event so far."""
        self._pieces: list[bytes] = []
        """The present event so far."""
        self._last = b""
        """The last bytes, where the end of an event may begin."""

    def count(self, data: bytes) -> None:
        """Count one chunk.

        Raises:
            ProviderError: It is too much.
        """
        self._left -= len(data)
        if self.is_whole:
            self._size += len(data)
        else:
            self._count_event(data)
        if self._size > MAX_RESPONSE:
            raise too_large(MAX_RESPONSE)
        if self._left < 0:
            raise too_large(MAX_STREAM)

    def _count_event(self, data: bytes) -> None:
        # The usual chunk: the rest of a short event, or several short ones.
        if self._size + len(data) <= LONG_EVENT and data.endswith(self._ends):
            self._pieces, self._size, self._last = [], 0, data[-3:]
            return
        recent = self._last + data
        end = max(recent.rfind(end) for end in self._ends)
        if end < 0:
            self._pieces.append(data)
            self._size += len(data)
        else:
            begun = min(len(recent) - end, len(data))  # bytes from the last end of an event on
            ended = len(data) - begun
            if self._size + ended > LONG_EVENT:
                self._pieces.append(data[:ended])
                self._check_values(b"".join(self._pieces))
            self._pieces, self._size = [data[ended:]], begun
        self._last = recent[-3:]

    def _check_values(self, event: bytes) -> None:
        if has_more_values(event, EVENT_VALUES):
            raise ProviderError(
                f"The model server sent more than {EVENT_VALUES:,} values at once:"
                " they were not read."
            )
