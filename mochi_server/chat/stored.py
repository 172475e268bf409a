"""What a turn reads of a stored session, and the question that it adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import JsonValue

from ..errors import JSONObject
from ..protocol.messages import ToolMessage, UserMessage
from ..services.history import estimate
from ..sessions import ChatSession
from .tool_calls import INTERRUPTED


def objects(messages: Iterable[JsonValue]) -> Iterator[JSONObject]:
    """Stored messages without what is no object: kept in the file, never sent."""
    return (message for message in messages if isinstance(message, dict))


def system_of(session: ChatSession) -> JSONObject | None:
    """The stored system prompt."""
    first = session.stored(0) if len(session.messages) else None
    return first if isinstance(first, dict) and first.get("role") == "system" else None


def usage_of(session: ChatSession, limit: int | None) -> tuple[int, str | None]:
    """Tokens of the conversation, and the model of its last reply.

    The provider's own count where there is one, plus an estimate of what came after it; reads no
    further back than that, or than ``limit`` tokens.
    """
    tokens = 0
    for message in objects(session.tail()):
        prompt, generated = message.get("prompt_eval_count"), message.get("eval_count")
        if message.get("role") == "assistant" and isinstance(prompt, int) and prompt:
            model = message.get("model")
            counted = prompt + (generated if isinstance(generated, int) else 0)
            return tokens + counted, model if isinstance(model, str) else None
        tokens += estimate(message)
        if limit is not None and tokens > limit:
            break
    return tokens, None


def add_question(session: ChatSession, message: str) -> None:
    """Add a user's message, and results for calls that a crash has left without any."""
    session.append(*unanswered(objects(session.tail())), UserMessage(content=message))


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
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return ToolMessage(
        content=INTERRUPTED,
        tool_name=_text_or_none(name),
        tool_call_id=_text_or_none(call.get("id")),
    )


def _text_or_none(value: Any) -> str | None:  # noqa: ANN401 - JSON of any writer
    return value if isinstance(value, str) else None
