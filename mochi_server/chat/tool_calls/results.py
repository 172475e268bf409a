"""What a model reads of its calls: a result of each, whatever became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import JsonValue

from ...errors import JSONObject
from ...protocol.messages import ToolCall, ToolMessage

INTERRUPTED_REASON = "the call was interrupted before it had a result."
INTERRUPTED = f"Error: {INTERRUPTED_REASON}"

Results = list[ToolMessage | None]
"""One place for each call of a reply, in call order."""


def message_of(call: ToolCall, content: str) -> ToolMessage:
    """Return the result of a call as the model reads it."""
    return ToolMessage(content=content, tool_name=call.name, tool_call_id=call.id)


def results_or_interrupted(calls: Sequence[ToolCall], results: Results) -> list[ToolMessage]:
    """Return the result of each call, else a message that it was interrupted.

    Models refuse a history with open calls.
    """
    return [
        result if result is not None else message_of(call, INTERRUPTED)
        for call, result in zip(calls, results, strict=True)
    ]


def unanswered(backwards: Iterable[JSONObject]) -> list[ToolMessage]:
    """Make results for the calls at the end of a session that have none.

    A crash leaves such calls, and a client that does not send the results of its own functions.
    """
    answered: list[JsonValue] = []
    for message in backwards:
        if message.get("role") == "tool":
            answered.append(message.get("tool_call_id"))
            continue
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        if not isinstance(calls, list):
            return []
        results = [_stored_result(call) for call in calls]
        if any(result.tool_call_id is None for result in results):  # files of old writers
            return results[len(answered) :]
        known = {each for each in answered if isinstance(each, str)}
        return [result for result in results if result.tool_call_id not in known]
    return []


def _stored_result(call: Any) -> ToolMessage:  # noqa: ANN401 - JSON of any writer
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    call_id = call.get("id")
    return ToolMessage(
        content=INTERRUPTED,
        tool_name=name if isinstance(name, str) else None,
        tool_call_id=call_id if isinstance(call_id, str) else None,
    )
