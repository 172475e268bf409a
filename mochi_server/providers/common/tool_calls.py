"""Calls of tools, stored in messages or sent in fragments."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...core.ids import new_call_id
from ...core.limits import (
    CALL_LEVELS,
    CALL_VALUES,
    LARGEST_RESPONSE,
    has_more_values,
    is_too_deep,
    too_large,
)
from ...errors import ProviderError
from ...protocol.messages import ToolCall
from .values import plain_text, read_json

_CUT: Final = frozenset({"length", "content_filter", "refusal"})
"""Ends of replies that may lie within a call."""

TOO_DEEP: Final = f"they are nested more than {CALL_LEVELS} levels deep"
TOO_MANY: Final = f"{TOO_DEEP}, or have more than {CALL_VALUES:,} values"
"""Problems of arguments; those of many values would take long to read, and are not read."""


def stored_calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the calls of a stored message that are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


@dataclass(slots=True)
class CallFragments:
    """A call as far as it has come."""

    id: str = ""
    name: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """What the service sent beside it and wants back."""
    _pieces: list[str] = field(default_factory=list)
    _size: int = 0

    @property
    def arguments(self) -> str:
        """The text of the arguments."""
        return "".join(self._pieces)

    @property
    def has_arguments(self) -> bool:
        """Whether any text of the arguments has come."""
        return bool(self._pieces)

    @property
    def may_be_whole(self) -> bool:
        """Whether the arguments end as an object does; reading them takes long."""
        return bool(self._pieces) and self._pieces[-1].rstrip().endswith("}")

    def add(self, call_id: str | None, name: str | None, arguments: object) -> None:
        """Add a fragment. Some servers repeat the id and the name in each.

        Raises:
            ProviderError: the arguments are too large.
        """
        self.id = self.id or plain_text(call_id or "")
        if name and name != self.name and not self._pieces:
            self.name += plain_text(name)
        if arguments:
            self.add_arguments(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def add_arguments(self, text: str) -> None:
        """Add the next piece of the arguments' text.

        Raises:
            ProviderError: the arguments are too large.
        """
        self._pieces.append(text)
        self._size += len(text)
        if self._size > LARGEST_RESPONSE:
            raise too_large(LARGEST_RESPONSE)

    def drop_arguments(self) -> None:
        """Forget what has come of the arguments."""
        self._pieces.clear()
        self._size = 0

    def complete(self, reason: str | None = None) -> ToolCall:
        """Return the call; one whose arguments cannot be read has a ``problem``.

        Args:
            reason: Why the reply ended.

        Raises:
            ProviderError: the reply was cut within the call, perhaps before its arguments came:
                without any it would be another call.
        """
        text = self.arguments.strip()
        arguments, problem = _read_arguments(text)
        if reason in _CUT and (problem or not text):
            how = "reached its limit" if reason == "length" else f"ended with {reason!r}"
            raise ProviderError(
                f"The model's reply {how} within a call of {self.name!r}.",
                details={"arguments": plain_text(self.arguments[:1000]), "finish_reason": reason},
            )
        if problem:
            arguments = {"input": plain_text(self.arguments)}
        call_id = self.id or new_call_id()
        return ToolCall(id=call_id, name=self.name, arguments=arguments, problem=problem)


class FragmentedCalls:
    """The calls of one reply, from fragments that say where they belong.

    Servers may send every call at the same place, each with its own id (Ollama, LM Studio), or
    without any id.
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, list[CallFragments]] = {}
        """By place."""

    def add(
        self, place: Hashable, call_id: str | None, name: str | None, arguments: object
    ) -> CallFragments:
        """Add a fragment and return the call that it belongs to."""
        calls = self._calls.setdefault(place, [])
        if not calls or _begins_another(calls[-1], call_id, name):
            calls.append(CallFragments())
        calls[-1].add(call_id, name, arguments)
        return calls[-1]

    def __iter__(self) -> Iterator[CallFragments]:
        """Yield the calls in the order of their places."""
        for place in sorted(self._calls):  # type: ignore[type-var]
            yield from self._calls[place]


def _begins_another(last: CallFragments, call_id: str | None, name: str | None) -> bool:
    if not name or not last.name:
        return False
    if call_id and last.id:
        return call_id != last.id
    return last.may_be_whole and isinstance(read_json(last.arguments), dict)


def _read_arguments(text: str) -> tuple[Any, str | None]:
    """Return what the arguments mean, and what is wrong with them."""
    if has_more_values(text.encode("utf-8", "replace"), CALL_VALUES):
        return None, TOO_MANY
    arguments = {} if text in {"", "null"} else read_json(text)
    if isinstance(arguments, dict):
        return arguments, TOO_DEEP if is_too_deep(arguments, CALL_LEVELS) else None
    try:
        value = json.loads(text)
    except RecursionError:
        return arguments, TOO_DEEP
    except ValueError as error:
        return arguments, f"they are not JSON ({error})"
    if isinstance(value, dict):  # what Python reads and JSON does not know
        return arguments, "they have a number that is not finite"
    return arguments, "they are not a JSON object"
