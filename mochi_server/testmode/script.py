"""The instruction block of a message: what the replies to it shall be.

docs/reference/test-mode.md describes every field. A block whose JSON is invalid is no block; one
whose JSON is no script is an error that names the place.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from .json_text import TooLarge, first_value
from .lorem import lorem

START: Final = "<|instruction_start|>"
END: Final = "<|instruction_end|>"

MOST_WORDS: Final = 20_000
"""Words of one reply: it is composed as a whole, and others wait."""

LONGEST_STALL: Final = 3600.0

Words = Annotated[int, Field(ge=0, le=MOST_WORDS)]

Count = Annotated[int, Field(ge=0, le=10**9)]
"""What fits into every wire."""


_NO_SCRIPT: Final = "The instruction block is no script"

_NO_OBJECT: Final = ("model_type", "dict_type")
"""Kinds of errors whose texts name types of Python."""


class BadScript(ValueError):
    """The block is JSON and no script; the text says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Wording(_Strict):
    """So many words of lorem ipsum, or the ones that are given."""

    length: Words | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.length is None) == (self.text is None):
            raise ValueError("needs either length or text")
        return self

    def words(self, seed: str) -> str:
        """What is said."""
        return self.text if self.text is not None else lorem(self.length or 0, seed)


class Reasoning(_Wording):
    """Thinking in front of a text."""


def _unless_empty(value: object) -> object:
    empty = isinstance(value, dict) and all(wanted is None for wanted in value.values())
    return None if empty else value


Thinking = Annotated[Reasoning | None, BeforeValidator(_unless_empty)]


class TextMessage(_Wording):
    """Text, and its own thinking."""

    reasoning: Thinking = None


class Call(_Strict):
    """A call of a tool."""

    name: str
    args: dict[str, JsonValue] = {}
    id: str | None = None


class CallAsText(_Strict):
    """A call whose arguments are sent as they stand here, however broken."""

    name: str
    arguments: str = '{"broken": '
    id: str | None = None


class Interruption(_Strict):
    """Something that happens to a reply, at its place or once so many words are sent."""

    after_words: Words | None = None


class Failure(Interruption):
    """The provider fails: with a status when nothing was sent yet, else in the stream."""

    status: int = Field(default=500, ge=400, le=599)
    message: str = "The test asked for this error."
    code: str | None = None
    retry_after: Count | None = None


class Stall(Interruption):
    """Silence."""

    seconds: float = Field(gt=0, le=LONGEST_STALL)


class Disconnect(Interruption):
    """The connection breaks."""


class Cancel(Interruption):
    """The stream ends too early, in good order."""


class Usage(_Strict):
    """What the provider says it has counted."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


class Item(_Strict):
    """One entry of ``messages``: exactly one of its fields."""

    text_message: TextMessage | None = None
    tool_call: Annotated[list[Call] | None, BeforeValidator(_as_list)] = None
    malformed_tool_call: CallAsText | None = None
    error: Failure | None = None
    stall: Stall | None = None
    disconnect: Disconnect | None = None
    cancel: Cancel | None = None
    usage: Usage | None = None
    finish_reason: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Item:
        given = [name for name in Item.model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(Item.model_fields)}")
        return self

    @property
    def calls(self) -> list[CallAsText]:
        """The calls, with their arguments as text."""
        if self.malformed_tool_call is not None:
            return [self.malformed_tool_call]
        return [
            CallAsText(name=call.name, arguments=json.dumps(call.args), id=call.id)
            for call in self.tool_call or ()
        ]

    @property
    def interruption(self) -> Interruption | None:
        """What it does to the reply, if that is what it is for."""
        return self.error or self.stall or self.disconnect or self.cancel


class Script(_Strict):
    """A whole block."""

    id_message: str | None = None
    reasoning: Thinking = None
    messages: list[Item] | None = None
    steps: list[list[Item]] = []
    lasting: bool = False
    """Whether it also holds for the messages after its own."""

    @model_validator(mode="after")
    def _says_something(self) -> Script:
        if self.messages is None and not self.steps:
            raise ValueError("needs messages or steps")
        if any(self._words(step) > MOST_WORDS for step in [self.messages or [], *self.steps]):
            raise ValueError(f"a reply has at most {MOST_WORDS} words of lorem ipsum")
        return self

    def _words(self, items: list[Item]) -> int:
        texts = [item.text_message for item in items if item.text_message is not None]
        thoughts = (text.reasoning or self.reasoning for text in texts)
        return sum(text.length or 0 for text in texts) + sum(
            thought.length or 0 for thought in thoughts if thought is not None
        )

    def step(self, number: int) -> list[Item] | None:
        """The items of the n-th reply, from 0; None after the last."""
        steps = self.steps if self.messages is None else [self.messages, *self.steps]
        return steps[number] if number < len(steps) else None


def block_in(message: str) -> tuple[Any] | None:
    """The JSON between the two marks; None where there is none.

    The JSON ends where it ends: a string within it may hold a block of its own.

    Raises:
        BadScript: it has a number that nothing can hold.
    """
    _, mark, rest = message.partition(START)
    if not mark:
        return None
    try:
        found, behind = first_value(rest.lstrip())
    except (json.JSONDecodeError, RecursionError):
        return None
    except TooLarge as error:
        raise BadScript(f"{_NO_SCRIPT}: a number of it is too large") from error
    return (found,) if behind.lstrip().startswith(END) else None


def script_in(message: str) -> Script | None:
    """The script of a message; None where it has no block, or one that is invalid JSON.

    Raises:
        BadScript: the JSON is no script.
    """
    block = block_in(message)
    if block is None:
        return None
    try:
        return Script.model_validate(*block)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the block"
        reason = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] in _NO_OBJECT:
            reason = "Input should be an object"
        raise BadScript(f"{_NO_SCRIPT}: {place}: {reason}") from error
