"""How deeply JSON may be nested, and how many values it may have.

What reads and writes it here goes down by recursion, and takes time for each value.
"""

from __future__ import annotations

from typing import Any

REQUEST_LEVELS = 64
"""Of a request's body, itself counted."""

REQUEST_VALUES = 10_000
"""Most members of objects and elements of lists in a request's body, all together."""

CALL_LEVELS = 100
"""Of the arguments of a model's call: they become part of messages and events."""

CALL_VALUES = 10_000
"""Most members of objects and elements of lists in the arguments of a model's call."""

STORED_LEVELS = 200
"""Of what we write anew in a session file; orjson and pydantic write about 250."""


def may_be_too_deep(encoded: bytes, levels: int) -> bool:
    """Whether JSON could be nested deeper, at a glance: most of it could not."""
    return encoded.count(b"{") + encoded.count(b"[") > levels


def has_more_values(encoded: bytes, most: int) -> bool:
    """Whether JSON has more members and elements than that; counted without reading it.

    An empty list or object counts as one value more.
    """
    if _count_values(encoded) <= most:
        return False  # commas within texts were counted as well
    text = encoded.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in encoded else encoded
    if text.count(b'"') > 4 * most + 2:  # of each member's name, and of its text
        return True
    return _count_values(b"".join(text.split(b'"')[::2])) > most


def _count_values(encoded: bytes) -> int:
    return len(encoded) - len(encoded.translate(None, b",[{"))


def is_too_deep(value: Any, levels: int) -> bool:  # noqa: ANN401 - any JSON
    """Whether objects and lists are nested deeper than that many levels."""
    row = [value]
    for _ in range(levels + 1):
        row = [each for each in row if isinstance(each, dict | list)]
        if not row:
            return False
        row = [
            inner for each in row for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return True
