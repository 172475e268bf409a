"""What is whole of a JSON document that was cut."""

from __future__ import annotations

import json

from pydantic_core import from_json


def closed(text: str) -> str:
    """The document, ended after its last whole value; unchanged where it is whole, or no JSON."""
    try:
        json.loads(text)
    except ValueError:
        try:
            return json.dumps(from_json(text, allow_partial=True), ensure_ascii=False)
        except ValueError:
            return text
    return text
