"""A model's reply in one shape, whatever provider it came from: OpenAI's, arguments as text.

For programs that want whole messages instead of the stream of events; the simple routes speak it
(docs/how-to/use-the-simple-routes.md).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from typing_extensions import TypedDict

from ..errors import JSONObject
from .messages import AssistantMessage, ToolMessage


@dataclass(frozen=True, slots=True)
class GenericFunction:
    """What a call is of."""

    name: str
    arguments: str
    """JSON of an object; services may write none as nothing at all."""


@dataclass(frozen=True, slots=True)
class GenericToolCall:
    """One call of a tool."""

    id: str | None
    """Null in messages of old files."""
    function: GenericFunction
    type: Literal["function"] = "function"

    def as_json(self) -> JSONObject:
        """``{"id", "type", "function": {"name", "arguments"}}``."""
        function: JSONObject = {"name": self.function.name, "arguments": self.function.arguments}
        return {"id": self.id, "type": self.type, "function": function}


class TokenUsage(TypedDict):
    """Tokens of a reply; a count is null if nobody has counted."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int


@dataclass(frozen=True, slots=True)
class LlmResponse:
    """One whole reply of a model."""

    content: str | None = None
    """The text; null where the model only calls tools."""
    tool_calls: tuple[GenericToolCall, ...] | None = None
    """Null where it calls none."""
    finish_reason: str | None = None
    """``tool_calls``, ``stop``, …; null when unknown."""
    usage: TokenUsage | None = None
    """Null if nobody has counted."""

    @classmethod
    def of(cls, message: AssistantMessage, finish_reason: str | None = None) -> LlmResponse:
        """The same as the message, which a session has stored or a reply was made into.

        Args:
            message: with tool calls of the session file's shape.
            finish_reason: as the provider says it; with calls it is always ``tool_calls``.
        """
        calls = tuple(_call(call) for call in message.tool_calls or ())
        return cls(
            content=message.content or None,
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else finish_reason,
            usage=_usage(message),
        )

    def has_tool_calls(self) -> bool:
        """Whether the model asks for tools."""
        return bool(self.tool_calls)

    def get_status_text(self) -> str | None:
        """``Using tools: add, subtract...`` where it does, else the content."""
        if not self.tool_calls:
            return self.content
        names = ", ".join(call.function.name for call in self.tool_calls)
        return f"Using tools: {names}..."

    def to_chat_message_dict(self) -> list[JSONObject] | None:
        """The calls as they stand in a chat message, arguments as text; null without any."""
        return [call.as_json() for call in self.tool_calls] if self.tool_calls else None

    def get_tool_execution_data(self) -> list[JSONObject]:
        """What to run: ``{"id", "name", "arguments"}`` each, arguments as an object."""
        return [
            {
                "id": call.id,
                "name": call.function.name,
                "arguments": orjson.loads(call.function.arguments.strip() or "{}"),
            }
            for call in self.tool_calls or ()
        ]

    def as_json(self) -> JSONObject:
        """``{"content", "tool_calls", "finish_reason", "usage"}``."""
        data: dict[str, Any] = {
            "content": self.content,
            "tool_calls": self.to_chat_message_dict(),
            "finish_reason": self.finish_reason,
            "usage": self.usage,
        }
        return data


def tool_message(message: ToolMessage) -> JSONObject:
    """A tool's result as a chat message: ``{"role", "content", "tool_call_id", "name"}``."""
    return {
        "role": "tool",
        "content": message.text,
        "tool_call_id": message.tool_call_id,
        "name": message.tool_name,
    }


def _call(stored: dict[str, Any]) -> GenericToolCall:
    function = stored["function"]
    text = orjson.dumps(_object(function.get("arguments"))).decode()
    return GenericToolCall(stored.get("id"), GenericFunction(function["name"], text))


def _object(arguments: object) -> dict[str, Any]:
    """The arguments of a stored call, which other writers may have left as text."""
    if isinstance(arguments, str):
        with suppress(orjson.JSONDecodeError):
            arguments = orjson.loads(arguments)
    return arguments if isinstance(arguments, dict) else {}


def _usage(message: AssistantMessage) -> TokenUsage | None:
    prompt, generated = message.prompt_eval_count, message.eval_count
    if prompt is None and generated is None:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": (prompt or 0) + (generated or 0),
    }
