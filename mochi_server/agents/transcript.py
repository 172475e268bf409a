"""What an agent has done, in words for the model that called it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from ..errors import JSONObject
from ..tools.execution import cut

SILENT = "(The agent said nothing.)"
SHORTEST_PART = 100
"""Characters of a message that are always kept."""


def transcript(session_id: str, messages: Iterable[JSONObject], most: int) -> str:
    """``Session ID: …``, then messages, calls and results.

    Where that is too long, the longest parts are shortened; the last one, which is the answer, has
    half of the room if it needs it.

    Args:
        session_id: Of the agent's session.
        messages: As they are stored.
        most: Characters that it should have at most.
    """
    head = f"Session ID: {session_id}"
    parts = [part for message in messages for part in _lines(message)] or [SILENT]
    longest = max(map(len, parts))
    while True:
        shown = [cut(part, longest) for part in parts[:-1]]
        answer = cut(parts[-1], max(longest, most // 2))
        text = "\n\n".join([head, *shown, answer])
        if len(text) <= most or longest <= SHORTEST_PART:
            return text
        longest //= 2


def _lines(message: JSONObject) -> Iterator[str]:
    text = message.get("content")
    if message.get("role") == "tool":
        yield f"Result of {message.get('tool_name')}: {text}"
        return
    if isinstance(text, str) and text.strip():
        yield text.strip()
    calls: Any = message.get("tool_calls") or []
    for call in calls:
        function = call["function"]
        yield f"Call of {function['name']}: {orjson.dumps(function['arguments']).decode()}"
