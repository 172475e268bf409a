"""Reads JSON that models, other programs and persons have written."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

DECODER: Final = json.JSONDecoder(strict=False)
"""Reads a bare line break in a text as it is meant."""
_MOST_OBJECTS = 50
"""A text with more of them is one that goes on without end."""


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON that may be nested without end.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def value_of(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON value that a text writes, or else the text."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def read_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON into values that our own encoder can write again; None for other text.

    Texts in it may have bare line breaks and other control characters, as models write them. Halves
    of surrogate pairs become ``?``, whole numbers beyond 64 bits become floats.
    """
    try:
        plain = json.dumps(json.loads(text, strict=False), ensure_ascii=False)
        return orjson.loads(plain.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def objects_in(text: str, *, in_full: bool = True) -> list[dict[str, Any]]:
    """Return the JSON objects of a text which may have words before and between them.

    None are looked for behind a brace at which there is none: they may be parts of it. A text that
    was cut off there has none.
    """
    found: list[dict[str, Any]] = []
    start = text.find("{")
    while start >= 0 and len(found) <= _MOST_OBJECTS:
        try:
            _, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            if not in_full:
                return []
            break
        if (value := read_json(text[start:end])) is None:
            break
        found.append(value)
        start = text.find("{", end)
    return found if len(found) <= _MOST_OBJECTS else []


_MOST_REPAIRED = 10_000
"""Characters of a text that is repaired; a longer one would hold the loop for too long."""
_MOST_LEVELS = 50
_ENDINGS = ("}", "]}", "}}")
"""What may be missing at the end."""


def repair_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse what is nearly JSON: single quotes, a comma too many, the last braces missing.

    None for other text. A text that was cut within a value is not completed: the value would be
    another one.
    """
    text = text.strip()
    if len(text) > _MOST_REPAIRED or text.count("{") + text.count("[") > _MOST_LEVELS:
        return None
    for ending in _ENDINGS:
        if (value := read_json(text + ending)) is not None:
            return value
    if not text.endswith(("}", "]")):
        return None
    import json_repair  # noqa: PLC0415 - seldom needed

    try:
        return read_json(json.dumps(json_repair.loads(text, skip_json_loads=True)))
    except (ValueError, TypeError, RecursionError):
        return None
