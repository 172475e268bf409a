"""Messages that say what the model of the test mode answers (docs/reference/test-mode.md)."""

from __future__ import annotations

import json
from typing import Any


def scripted(*replies: list[dict[str, Any]]) -> str:
    """Return a message; each reply is a list of items, and those after the first follow calls."""
    first, *others = replies
    script = json.dumps({"messages": first, "steps": others})
    return f"<|instruction_start|>{script}<|instruction_end|>"


def says(text: str) -> dict[str, Any]:
    return {"text_message": {"text": text}}


def thinks(thought: str, text: str) -> dict[str, Any]:
    return {"text_message": {"text": text, "reasoning": {"text": thought}}}


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": [{"name": name, "args": arguments, "id": f"call_{name}"}]}


def fails(status: int, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"status": status, "message": message, **more}}
