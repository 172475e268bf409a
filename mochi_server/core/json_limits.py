"""Limits on the nesting and the number of values of JSON, and the repair of JSON that was cut off.

Parsers and serialisers work by recursion, and take time for each value.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

REQUEST_LEVELS = 64
"""Levels of nesting of a request's body, itself counted."""

REQUEST_VALUES = 10_000
"""Members of objects and elements of lists in a request's body, at most."""

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
    """Complete JSON that was cut off after its last whole value; return other text unchanged."""
    try:
        json.loads(text)
    except ValueError:
        try:
            return json.dumps(from_json(text, allow_partial=True), ensure_ascii=False)
        except ValueError:
            return text
    return text
