"""Calls of tools, as every adapter needs them: read from stored messages, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..errors import ProviderError
from ..messages import ToolCall, new_call_id
from ..nesting import CALL_LEVELS, is_too_deep


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls of a stored message that are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def take_call(open_calls: list[tuple[str, str]], message: Mapping[str, Any]) -> str:
    """The id of the call that a result answers: its own, else by name, else the first open one."""
    given, name = message.get("tool_call_id"), message.get("tool_name")
    if given:
        matching = [call for call in open_calls if call[0] == given]
    else:
        matching = [call for call in open_calls if call[1] == name] or open_calls
    if not matching:
        return str(given) if given else new_call_id()
    call_id = matching[0][0]
    open_calls.remove(matching[0])
    return call_id


@dataclass(slots=True)
class Fragments:
    """A call as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def add(self, call_id: str | None, name: str | None, arguments: str | None) -> None:
        """One more piece of it."""
        self.id = self.id or call_id or ""
        self.name += name or ""
        self.arguments += arguments or ""

    def whole(self) -> ToolCall:
        """The call.

        Raises:
            ProviderError: its arguments are not a JSON object.
        """
        arguments = parsed(self.arguments or "{}")
        if not isinstance(arguments, dict) or is_too_deep(arguments, CALL_LEVELS):
            raise ProviderError(
                f"The model called {self.name!r} with arguments that are not a JSON object.",
                details={"arguments": self.arguments[:1000]},
            )
        return ToolCall(id=self.id or new_call_id(), name=self.name, arguments=arguments)


def parsed(text: str) -> Any:  # noqa: ANN401 - any JSON
    """JSON that our own encoder can write again; null for what is none.

    Halves of surrogate pairs become ``?``, whole numbers beyond 64 bits become floats.
    """
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return orjson.loads(plain.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
