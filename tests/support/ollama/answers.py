"""Whole answers of Ollama's, and JSON as Go writes it."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from mochi_server.testmode.script import TooLarge, first_value

JSON: Final = "application/json; charset=utf-8"
BARE_JSON: Final = "application/json"
"""Of an error that would have been the first line of a stream."""
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"

Body = dict[str, Any]

_ESCAPED: Final = {sign.encode(): f"\\u{ord(sign):04x}".encode() for sign in "<>&\u2028\u2029"}


class FakeResponse(Exception):
    """A whole answer; refusals are raised."""

    def __init__(self, status: int, body: bytes | str | Body, content_type: str = JSON) -> None:
        """Encode the body: bytes as they are, an object, or the text of an error.

        No ``content_type`` is sent where the body is empty.
        """
        whole = {"error": body} if isinstance(body, str) else body
        self.body = whole if isinstance(whole, bytes) else go_json(whole)
        self.status = status
        self.content_type = content_type if self.body else None
        super().__init__(status, self.body.decode())


def go_json(value: object) -> bytes:
    """Compact, with ``<``, ``>``, ``&`` and the line separators of Unicode escaped."""
    data = orjson.dumps(value)
    for sign, escaped in _ESCAPED.items():
        data = data.replace(sign, escaped)
    return data


def as_go_reads(text: str, at_end: str = "unexpected EOF") -> Any:
    """The first value of a text, whatever follows it.

    Args:
        text: that begins with JSON.
        at_end: what is said where the text is cut.

    Raises:
        ValueError: it is no JSON; the text says so as Go does, about as exactly.
    """
    try:
        return first_value(text.lstrip(" \t\r\n"), _as_go_counts)[0]
    except TooLarge as error:
        problem = f"json: cannot unmarshal number {error} into Go value of type float64"
        raise ValueError(problem) from error
    except json.JSONDecodeError as error:
        rest = error.doc[error.pos :]
        if comma := "trailing comma" in error.msg:  # where Python 3.13 says it
            rest = rest[1:].lstrip()
        wrong, key = rest[:1], "property name" in error.msg or (comma and rest[:1] == "}")
        if not wrong or error.msg.startswith("Unterminated"):
            raise ValueError(at_end) from error
        where = "beginning of object key string" if key else "beginning of value"
        raise ValueError(f"invalid character '{wrong}' looking for {where}") from error
    except RecursionError as error:
        raise ValueError("exceeded max depth") from error


def _as_go_counts(number: int) -> float:
    """A whole number; what no 64 bits can hold is a float there."""
    return number if -(2**63) <= number < 2**63 else float(number)


def encoded(line: Body) -> bytes:
    """A line of a stream."""
    return go_json(line) + b"\n"


def kind_of(value: object) -> str:
    """What Go calls a value of JSON."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object" if isinstance(value, dict) else "null"
