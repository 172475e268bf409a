"""What every adapter reads: calls of tools, stored or in fragments, texts and counts."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ...core.http_limits import LARGEST_RESPONSE, too_large
from ...core.ids import new_call_id
from ...core.json_limits import CALL_LEVELS, CALL_VALUES, has_more_values, is_too_deep
from ...errors import ProviderError
from ...protocol.messages import ToolCall

_MOST: Final = 2**53
_CUT: Final = frozenset({"length", "content_filter", "refusal"})
"""Ends of replies that may lie within a call."""

TOO_DEEP: Final = f"they are nested more than {CALL_LEVELS} levels deep"
"""What is wrong with the arguments of such a call."""

TOO_MANY: Final = f"{TOO_DEEP}, or have more than {CALL_VALUES:,} values"
"""The same of arguments that would take long to read, which are not."""


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls of a stored message that are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


@dataclass(slots=True)
class Fragments:
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
        """Whether any text of them has come."""
        return bool(self._pieces)

    @property
    def may_be_whole(self) -> bool:
        """Whether the arguments end as an object does; reading them takes long."""
        return bool(self._pieces) and self._pieces[-1].rstrip().endswith("}")

    def add(self, call_id: str | None, name: str | None, arguments: object) -> None:
        """One more piece of it. Some servers repeat the id and the name in each.

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
            ProviderError: they are too large.
        """
        self._pieces.append(text)
        self._size += len(text)
        if self._size > LARGEST_RESPONSE:
            raise too_large(LARGEST_RESPONSE)

    def drop_arguments(self) -> None:
        """Forget what has come of the arguments."""
        self._pieces.clear()
        self._size = 0

    def whole(self, reason: str | None = None) -> ToolCall:
        """Return the call; one whose arguments cannot be read says so in its ``problem``.

        Args:
            reason: why the reply ended.

        Raises:
            ProviderError: the reply was cut within the call, perhaps before its arguments came:
                without any it would be another call.
        """
        text = self.arguments.strip()
        arguments, problem = _read(text)
        if reason in _CUT and (problem or not text):
            raise ProviderError(
                self._fault(reason),
                details={"arguments": plain_text(self.arguments[:1000]), "finish_reason": reason},
            )
        if problem:
            arguments = {"input": plain_text(self.arguments)}
        call_id = self.id or new_call_id()
        return ToolCall(id=call_id, name=self.name, arguments=arguments, problem=problem)

    def _fault(self, reason: str | None) -> str:
        if reason == "length":
            return f"The model's reply reached its limit within a call of {self.name!r}."
        return f"The model's reply ended with {reason!r} within a call of {self.name!r}."


class CallAssembly:
    """The calls of one reply, from fragments that say where they belong.

    Servers may send every call at the same place, each with its own id (Ollama, LM Studio), or
    without any id.
    """

    def __init__(self) -> None:
        self._at: dict[Hashable, list[Fragments]] = {}

    def add(
        self, place: Hashable, call_id: str | None, name: str | None, arguments: object
    ) -> Fragments:
        """One more fragment; the call that it belongs to."""
        calls = self._at.setdefault(place, [])
        if not calls or _begins(calls[-1], call_id, name):
            calls.append(Fragments())
        calls[-1].add(call_id, name, arguments)
        return calls[-1]

    def __iter__(self) -> Iterator[Fragments]:
        """The calls in the order of their places."""
        for place in sorted(self._at):  # type: ignore[type-var]
            yield from self._at[place]


def _begins(last: Fragments, call_id: str | None, name: str | None) -> bool:
    """Whether a fragment is the first of another call."""
    if not name or not last.name:
        return False
    if call_id and last.id:
        return call_id != last.id
    return last.may_be_whole and isinstance(parsed(last.arguments), dict)


def _read(text: str) -> tuple[Any, str | None]:
    """Read the text of arguments; what it means, and what is wrong with it."""
    if has_more_values(text.encode("utf-8", "replace"), CALL_VALUES):
        return None, TOO_MANY
    arguments = {} if text in {"", "null"} else parsed(text)
    return arguments, _problem_of(arguments, text)


def _problem_of(arguments: object, text: str) -> str | None:
    """Say what is wrong with the arguments that were made of a text."""
    if isinstance(arguments, dict):
        return TOO_DEEP if is_too_deep(arguments, CALL_LEVELS) else None
    try:
        value = json.loads(text)
    except RecursionError:
        return TOO_DEEP
    except ValueError as error:
        return f"they are not JSON ({error})"
    if isinstance(value, dict):  # what Python reads and JSON does not know
        return "they have a number that is not finite"
    return "they are not a JSON object"


def plain_text(text: object) -> str:
    """What a service calls a text, as one that can be stored: halves of characters become ``?``."""
    return str(text).encode("utf-8", "replace").decode()


def count_of(value: object) -> int | None:
    """A number of tokens that a service tells; None for what is no such number."""
    return value if isinstance(value, int) and 0 <= value < _MOST else None


def parsed(text: str) -> Any:  # noqa: ANN401 - any JSON
    """JSON that our own encoder can write again; null for what is none.

    Halves of surrogate pairs become ``?``, whole numbers beyond 64 bits become floats.
    """
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return orjson.loads(plain.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
