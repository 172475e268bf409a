"""The instruction block of a message, which says what the replies to it are.

docs/reference/test-mode.md describes every field. A block of invalid JSON is ignored; valid JSON
that is no script is an error that names the place.
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

from .lorem import lorem
from .strict_json import TooLarge, first_value

START: Final = "<|instruction_start|>"
END: Final = "<|instruction_end|>"

MOST_WORDS: Final = 20_000
"""Words of one reply, which is composed at once while other requests wait."""

LONGEST_STALL: Final = 3600.0

Words = Annotated[int, Field(ge=0, le=MOST_WORDS)]

Count = Annotated[int, Field(ge=0, le=10**9)]
"""A number that every wire can carry."""

_NO_SCRIPT: Final = "The instruction block is no script"

_NOT_AN_OBJECT: Final = ("model_type", "dict_type")
"""Error types of pydantic whose texts name Python types."""


class BadScript(ValueError):
    """The block is JSON but no script; the text says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Wording(_Strict):
    """A number of words of lorem ipsum, or a literal text."""

    length: Words | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.length is None) == (self.text is None):
            raise ValueError("needs either length or text")
        return self

    def words(self, seed: str) -> str:
        return self.text if self.text is not None else lorem(self.length or 0, seed)


class Reasoning(_Wording):
    """Thinking before a text."""


def _unless_empty(value: object) -> object:
    empty = isinstance(value, dict) and all(field is None for field in value.values())
    return None if empty else value


Thinking = Annotated[Reasoning | None, BeforeValidator(_unless_empty)]


class TextMessage(_Wording):
    """Text, and the thinking before it."""

    reasoning: Thinking = None


class ScriptedCall(_Strict):
    """A tool call."""

    name: str
    args: dict[str, JsonValue] = {}
    id: str | None = None


class CallAsText(_Strict):
    """A tool call whose arguments are sent as written, even if they are invalid JSON."""

    name: str
    arguments: str = '{"broken": '
    id: str | None = None


class Interruption(_Strict):
    """Something that interrupts a reply, at its place or after a number of words."""

    after_words: Words | None = None


class ScriptedError(Interruption):
    """The provider fails: with a status before anything was sent, else within the stream."""

    status: int = Field(default=500, ge=400, le=599)
    message: str = "The test asked for this error."
    code: str | None = None
    retry_after: Count | None = None


class Stall(Interruption):
    """Pause."""

    seconds: float = Field(gt=0, le=LONGEST_STALL)


class Disconnect(Interruption):
    """The connection breaks."""


class Cancel(Interruption):
    """The stream ends too early, without an error of the connection."""


class Usage(_Strict):
    """The token counts that the provider reports."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


class Item(_Strict):
    """One entry of ``messages``: exactly one of its fields."""

    text_message: TextMessage | None = None
    tool_call: Annotated[list[ScriptedCall] | None, BeforeValidator(_as_list)] = None
    malformed_tool_call: CallAsText | None = None
    error: ScriptedError | None = None
    stall: Stall | None = None
    disconnect: Disconnect | None = None
    cancel: Cancel | None = None
    usage: Usage | None = None
    finish_reason: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Item:
        fields = [name for name in Item.model_fields if getattr(self, name) is not None]
        if len(fields) != 1:
            raise ValueError(f"needs exactly one of {', '.join(Item.model_fields)}")
        return self

    @property
    def calls(self) -> list[CallAsText]:
        """The tool calls, with their arguments as text."""
        if self.malformed_tool_call is not None:
            return [self.malformed_tool_call]
        return [
            CallAsText(name=call.name, arguments=json.dumps(call.args), id=call.id)
            for call in self.tool_call or ()
        ]

    @property
    def interruption(self) -> Interruption | None:
        return self.error or self.stall or self.disconnect or self.cancel


class Script(_Strict):
    """The content of an instruction block."""

    id_message: str | None = None
    reasoning: Thinking = None
    messages: list[Item] | None = None
    steps: list[list[Item]] = []
    lasting: bool = False
    """Whether it also applies to later messages."""

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
        """Return the items of the n-th reply, counted from 0; None after the last."""
        steps = self.steps if self.messages is None else [self.messages, *self.steps]
        return steps[number] if number < len(steps) else None


def block_in(message: str) -> tuple[Any] | None:
    """Return the JSON between the two marks, in a tuple; None if there is none.

    A string within the JSON may itself hold a block.

    Raises:
        BadScript: it has a number that is too large for a float.
    """
    _, mark, rest = message.partition(START)
    if not mark:
        return None
    try:
        value, rest = first_value(rest.lstrip())
    except (json.JSONDecodeError, RecursionError):
        return None
    except TooLarge as error:
        raise BadScript(f"{_NO_SCRIPT}: a number of it is too large") from error
    return (value,) if rest.lstrip().startswith(END) else None


def script_in(message: str) -> Script | None:
    """Return the script of a message; None if it has no block, or one of invalid JSON.

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
        if first["type"] in _NOT_AN_OBJECT:
            reason = "Input should be an object"
        raise BadScript(f"{_NO_SCRIPT}: {place}: {reason}") from error
