"""What becomes of the calls in a model's reply.

Every call gets exactly one result, in call order. Only tools that were offered run; no source of
tools exists yet, so the one outcome so far is the refusal of a name that was never offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..errors import JSONObject
from ..events import Event, ToolCallStarted, ToolResultReady
from ..messages import ToolCall, ToolMessage

INTERRUPTED = "Error: the call was interrupted before it had a result."


def run_calls(calls: Sequence[ToolCall], results: list[ToolMessage]) -> Iterator[Event]:
    """Handle the calls as events; the messages for the model are put into ``results``."""
    for index, call in enumerate(calls):
        yield ToolCallStarted(
            tool_name=call.name,
            arguments=call.arguments,
            call_index=index,
            tool_call_id=call.id,
        )
    for index, call in enumerate(calls):
        reason = f"there is no tool named {call.name!r}."
        results.append(_result(call, f"Error: {reason}"))
        yield ToolResultReady(
            tool_name=call.name,
            success=False,
            result=None,
            error_message=reason,
            call_index=index,
            tool_call_id=call.id,
            code="TOOL_NOT_FOUND",
        )


def interrupted(calls: Sequence[ToolCall]) -> list[ToolMessage]:
    """Results for calls that will never have one; models refuse a history with open calls."""
    return [_result(call, INTERRUPTED) for call in calls]


def _result(call: ToolCall, content: str) -> ToolMessage:
    return ToolMessage(content=content, tool_name=call.name, tool_call_id=call.id)


def unanswered(backwards: Iterable[JSONObject]) -> list[ToolMessage]:
    """Results for calls at the end of a stored conversation that a crash left without any."""
    answered = 0
    for message in backwards:
        if message.get("role") == "tool":
            answered += 1
            continue
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        return (
            [_stored_result(call) for call in calls[answered:]] if isinstance(calls, list) else []
        )
    return []


def _stored_result(call: Any) -> ToolMessage:  # noqa: ANN401 - JSON of any writer
    function = call.get("function") or {} if isinstance(call, dict) else {}
    call_id = call.get("id") if isinstance(call, dict) else None
    return ToolMessage(content=INTERRUPTED, tool_name=function.get("name"), tool_call_id=call_id)
