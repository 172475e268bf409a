"""How deeply JSON may be nested: what reads and writes it here goes down by recursion."""

from __future__ import annotations

from typing import Any

REQUEST_LEVELS = 64
"""Of a request's body, itself counted."""

CALL_LEVELS = 100
"""Of the arguments of a model's call: they become part of messages and events."""

STORED_LEVELS = 200
"""Of what we write anew in a session file; orjson and pydantic write about 250."""


def may_be_too_deep(encoded: bytes, levels: int) -> bool:
    """Whether JSON could be nested deeper, at a glance: most of it could not."""
    return encoded.count(b"{") + encoded.count(b"[") > levels


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
