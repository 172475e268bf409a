"""JSON values one after the other: of a list, of lines, or a single one."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Final

import orjson

from ...core.json_text import parse_json
from ...core.limits import STORED_LEVELS, has_more_values, is_too_deep, may_be_too_deep
from ...errors import CannotImport
from ..codec import encode

READ_BYTES: Final = 65_536
MAX_VALUES: Final = 2_000_000
"""Members of objects and elements of lists in one value: each takes memory."""

_BOM: Final = b"\xef\xbb\xbf"
_MARKS: Final = re.compile(rb'["\[\]{},]')
_MARKS_WITHIN: Final = re.compile(rb'["\[\]{}]')
_BACKSLASH: Final = ord("\\")


@dataclass(frozen=True, slots=True)
class JSONItem:
    """A value, and where it is."""

    value: Any
    place: str
    """A line, or a JSON pointer."""
    content: bytes = b""
    """The bytes of a single value."""


class _Counted(io.RawIOBase):
    """A stream that says how far it is, and does not go on beyond a limit."""

    def __init__(self, stream: IO[bytes], limit: int, advance: Callable[[int], object]) -> None:
        self._stream, self._limit, self._advance = stream, limit, advance
        self._total = 0
        self.since = 0
        """Bytes since the last value."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self.since += len(data)
        self._total += len(data)
        if self.since > self._limit + READ_BYTES:
            raise too_large(self._limit)
        self._advance(self._total)
        return len(data)


def too_large(limit: int) -> CannotImport:
    return CannotImport(
        f"it is larger than {limit / 1_000_000:g} MB; MOCHI_MAX_BODY_MB allows more"
    )


class JSONValues:
    """The values of a file, read as they are needed."""

    def __init__(self, stream: IO[bytes], limit: int, advance: Callable[[int], object]) -> None:
        """Begin before the first byte.

        ``limit``: bytes of one value; ``advance`` takes how many bytes have been read.
        """
        self._limit = limit
        self._counted = _Counted(stream, limit, advance)
        self._stream = io.BufferedReader(self._counted, READ_BYTES)

    def __iter__(self) -> Iterator[JSONItem | CannotImport]:
        """Yield the values; of lines that are no JSON the error.

        Raises:
            CannotImport: It is no JSON, or one value is too large.
        """
        if self._stream.peek(1)[:1] == _BOM[:1] and self._stream.read(len(_BOM)) != _BOM:
            raise _not_known()
        blank_lines = 0
        while (first := self._stream.peek(1)[:1]) in {b" ", b"\t", b"\r", b"\n"} and first:
            blank_lines += self._stream.read(1) == b"\n"
        match first:
            case b"[":
                yield from self._elements(blank_lines + 1)
            case b"{":
                yield from self._lines(blank_lines)
            case b"":
                raise CannotImport("it is empty")
            case _:
                raise _not_known()

    def _elements(self, line: int) -> Iterator[JSONItem]:
        self._stream.read(1)  # the bracket that opens the list
        splitter = _Splitter()
        number = 0
        while not splitter.is_closed:
            part = self._stream.read1(READ_BYTES)
            if not part:
                raise CannotImport("not valid JSON (the list has no end)", place=f"/{number}")
            for content in splitter.feed(part):
                if content.strip() or not splitter.is_closed or number:
                    value = _parsed(content, "", line - 1)
                    if isinstance(value, CannotImport):
                        raise value
                    yield JSONItem(value, f"/{number}")
                line += content.count(b"\n")
                number += 1
            self._counted.since = splitter.waiting
        if (splitter.rest + self._stream.read()).strip():
            raise CannotImport("not valid JSON (there is more behind the list)", place=f"/{number}")

    def _lines(self, blank_lines: int) -> Iterator[JSONItem | CannotImport]:
        number = blank_lines + 1
        line = self._stream.readline()
        first = _parsed(line, f"line {number}")
        if isinstance(first, CannotImport) or not self._stream.peek(1):
            content = line + self._stream.read()
            if len(content) > self._limit:
                raise too_large(self._limit)
            value = _parsed(content, "", blank_lines)
            if isinstance(value, CannotImport):
                raise value
            yield JSONItem(value, "", content)
            return
        yield JSONItem(first, f"line {number}")
        while True:
            self._counted.since = 0
            line = self._stream.readline()
            number += 1
            if not line:
                return
            if line.strip():
                place = f"line {number}"
                value = _parsed(line, place)
                if isinstance(value, CannotImport):
                    yield value
                else:
                    yield JSONItem(value, place)


def _not_known() -> CannotImport:
    return CannotImport("it is neither JSON, nor a zip archive, nor a database")


class _Splitter:
    """Splits the content of a list at its commas, as it comes.

    An event-based parser would build every value in Python, and ``ijson`` takes quadratic time for
    deep nesting.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._buffer = bytearray()
        self._at = 0
        """Up to here it has been looked through."""
        self._depth = 0
        self._is_string = False

    @property
    def waiting(self) -> int:
        """Bytes of the element that has not ended."""
        return len(self._buffer)

    @property
    def rest(self) -> bytes:
        """What is behind the end of the list."""
        return bytes(self._buffer)

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Take more of the list, and yield the elements that are complete.

        Raises:
            CannotImport: It is nested too deeply.
        """
        self._buffer += part
        while not self.is_closed and self._next_mark():
            mark = self._buffer[self._at - 1 : self._at]
            if mark == b'"':
                self._is_string = not self._is_string
            elif mark in b"[{":
                self._depth += 1
                if self._depth > STORED_LEVELS:
                    raise CannotImport("nested too deeply")
            elif self._depth:
                self._depth -= 1
            else:
                self.is_closed = mark == b"]"
                element = bytes(self._buffer[: self._at - 1])
                del self._buffer[: self._at]
                self._at = 0
                yield element

    def _next_mark(self) -> bool:
        """Move behind the next character that counts; return whether there is one."""
        if not self._is_string:
            marks = _MARKS_WITHIN if self._depth else _MARKS
            found = marks.search(self._buffer, self._at)
            self._at = len(self._buffer) if found is None else found.end()
            return found is not None
        while (end := self._buffer.find(b'"', self._at)) >= 0:
            self._at = end + 1
            before = end
            while self._buffer[before - 1] == _BACKSLASH:  # the string begins before
                before -= 1
            if (end - before) % 2 == 0:
                return True
        self._at = len(self._buffer)
        return False


def _parsed(content: bytes, place: str, lines_before: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return the value, or the error."""
    if has_more_values(content, MAX_VALUES):
        return CannotImport(f"it has more than {MAX_VALUES:,} values", place=place)
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        try:  # it may only have halves of surrogate pairs, or NaN
            value = parse_json(content)
            if not is_too_deep(value, STORED_LEVELS):
                return orjson.loads(encode(value))
        except ValueError:
            place = place or f"line {error.lineno + lines_before}"
            reason = f"not valid JSON ({error.msg}, column {error.colno})"
            return CannotImport(reason, place=place)
    if may_be_too_deep(content, STORED_LEVELS) and is_too_deep(value, STORED_LEVELS):
        return CannotImport("nested too deeply", place=place)
    return value
