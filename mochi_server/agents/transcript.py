"""What an agent did, as text for the model that called it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from ..errors import JSONObject
from ..tools.execution import cut

SILENT = "(The agent said nothing.)"


SHORTEST_PART = 100


def transcript_of(session_id: str, messages: Iterable[JSONObject], most: int) -> str:
    """Return ``Session ID: …``, then messages, calls and results, for the calling model.

    If that is longer than ``most`` characters, the longest parts are shortened; the last one, the
    answer, may have half of the room.
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
