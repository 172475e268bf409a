"""Whole replies in the shape of OpenAI, whatever provider they came from.

For programs that want whole messages instead of events (docs/how-to/use-the-simple-routes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import orjson
from typing_extensions import TypedDict

from ..core.json_text import read_json
from ..errors import JSONObject
from .messages import AssistantMessage


@dataclass(frozen=True, slots=True)
class GenericFunction:
    """The function of a call, with its arguments as text."""

    name: str
    arguments: str
    """JSON of an object; some services write an empty text for no arguments."""


@dataclass(frozen=True, slots=True)
class GenericToolCall:
    """One call of a tool."""

    id: str | None
    """Null in messages of old files."""
    function: GenericFunction
    type: Literal["function"] = "function"

    def as_json(self) -> JSONObject:
        """Return ``{"id", "type", "function": {"name", "arguments"}}``."""
        function: JSONObject = {"name": self.function.name, "arguments": self.function.arguments}
        return {"id": self.id, "type": self.type, "function": function}


class TokenUsage(TypedDict):
    """Tokens of a reply; a count is null if it is unknown."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int


@dataclass(frozen=True, slots=True)
class LlmResponse:
    """One whole reply of a model."""

    content: str | None = None
    """The text; null if the model only calls tools."""
    tool_calls: tuple[GenericToolCall, ...] | None = None
    """Null without calls."""
    finish_reason: str | None = None
    """``tool_calls``, ``stop``, …; null when unknown."""
    usage: TokenUsage | None = None
    """Null if nobody has counted."""

    @classmethod
    def of(cls, message: AssistantMessage, finish_reason: str | None = None) -> LlmResponse:
        """Convert a stored message; with calls the finish reason is always ``tool_calls``."""
        calls = tuple(_call(call) for call in message.tool_calls or ())
        return cls(
            content=message.content or None,
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else finish_reason,
            usage=_usage(message),
        )

    def has_tool_calls(self) -> bool:
        return bool(self.tool_calls)

    def get_status_text(self) -> str | None:
        """Return ``Using tools: add, subtract...``, or the content without calls."""
        if not self.tool_calls:
            return self.content
        names = ", ".join(call.function.name for call in self.tool_calls)
        return f"Using tools: {names}..."

    def to_chat_message_dict(self) -> list[JSONObject] | None:
        """Return the calls for a chat message, arguments as text; None without any."""
        return [call.as_json() for call in self.tool_calls] if self.tool_calls else None

    def get_tool_execution_data(self) -> list[JSONObject]:
        """Return ``{"id", "name", "arguments"}`` of each call, arguments as an object."""
        return [
            {
                "id": call.id,
                "name": call.function.name,
                "arguments": orjson.loads(call.function.arguments.strip() or "{}"),
            }
            for call in self.tool_calls or ()
        ]

    def as_json(self) -> JSONObject:
        """Return ``{"content", "tool_calls", "finish_reason", "usage"}``."""
        data: dict[str, Any] = {
            "content": self.content,
            "tool_calls": self.to_chat_message_dict(),
            "finish_reason": self.finish_reason,
            "usage": self.usage,
        }
        return data


def _call(stored: dict[str, Any]) -> GenericToolCall:
    function = stored["function"]
    text = orjson.dumps(read_arguments(function.get("arguments"))).decode()
    return GenericToolCall(stored.get("id"), GenericFunction(function["name"], text))


def read_arguments(arguments: object) -> dict[str, Any]:
    """Parse the arguments of a stored call, which other writers may have left as text."""
    if isinstance(arguments, str):
        arguments = read_json(arguments)
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
