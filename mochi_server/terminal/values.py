"""Values that a person writes."""

from __future__ import annotations

from typing import Any

from ..core.json_text import parse_json


def value_of(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON value that a text writes, or else the text."""
    try:
        return parse_json(text)
    except ValueError:
        return text
