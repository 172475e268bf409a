"""Values that a person writes."""

from __future__ import annotations

import json
from typing import Any


def value_of(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON value that a text writes, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
