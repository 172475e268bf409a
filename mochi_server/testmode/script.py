"""Reads and writes the instruction block of a message, which says what the replies to it are.

docs/reference/test-mode.md describes every field. A block of invalid JSON is ignored; valid JSON
that is no script is an error that names the place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn

import orjson
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

from ..core.problems import first_problem
from .samples import lorem

START: Final = "<|instruction_start|>"
END: Final = "<|instruction_end|>"

MAX_WORDS: Final = 20_000
"""Words of one reply, which is composed at once while other requests wait."""

MAX_STALL: Final = 3600.0

Words = Annotated[int, Field(ge=0, le=MAX_WORDS)]

Count = Annotated[int, Field(ge=0, le=10**9)]
"""A number that every wire can carry."""

_NO_SCRIPT: Final = "The instruction block is no script"

_MAX_DIGITS: Final = 300
"""Of a whole number; more than a float can hold."""

_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
    r"|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)",
    re.DOTALL,
)


class TooLarge(ValueError):
    """A number that no float can hold; the text has its digits."""


def first_value(text: str, integer: Callable[[int], object] = int) -> tuple[Any, str]:
    r"""Parse the JSON at the start of a text strictly; return its value and the rest of the text.

    Python's parser also takes ``NaN`` and halves of surrogate pairs. Half of a pair (``"\ud83d"``
    alone) becomes U+FFFD here, as no wire can carry it. ``integer`` converts integers.

    Raises:
        json.JSONDecodeError: The text is no JSON.
        RecursionError: It is nested too deeply.
        TooLarge: A number is too large.
    """

    def whole(digits: str) -> object:
        if len(digits) > _MAX_DIGITS:
            raise TooLarge(digits)
        return integer(int(digits))

    decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=whole)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda match: r"\ufffd" if match["half"] else match[0], text)
    value, end = decoder.raw_decode(text)
    return value, text[end:]


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise TooLarge(digits)
    return number


def _refuse(word: str) -> NoReturn:
    raise json.JSONDecodeError("no word of JSON", word, 0)


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


def _unless_empty(value: object) -> object:
    empty = isinstance(value, dict) and all(field is None for field in value.values())
    return None if empty else value


Thinking = Annotated[_Wording | None, BeforeValidator(_unless_empty)]


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

    seconds: float = Field(gt=0, le=MAX_STALL)


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
    stop_sequence: str | None = None

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
        if any(self._words(step) > MAX_WORDS for step in [self.messages or [], *self.steps]):
            raise ValueError(f"a reply has at most {MAX_WORDS} words of lorem ipsum")
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


def script_in(message: str) -> Script | None:
    """Return the script of a message; None if it has no block, or one of invalid JSON.

    A string within the JSON may itself hold a block.

    Raises:
        BadScript: The JSON is no script.
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
    if not rest.lstrip().startswith(END):
        return None
    try:
        return Script.model_validate(value)
    except ValidationError as error:
        raise BadScript(f"{_NO_SCRIPT}: {first_problem(error, whole='the block')}") from error


# Writing a block, so that a test need not write JSON by hand.

Step = dict[str, Any]
"""One item of a reply, as the functions below make it."""


def text(
    length: int | None = None, *, exactly: str | None = None, reasoning: int | str | None = None
) -> Step:
    """Reply with a number of words of lorem ipsum or with exactly this text, after thinking."""
    message: Step = _wording(length if exactly is None else exactly)
    if reasoning is not None:
        message["reasoning"] = _wording(reasoning)
    return {"text_message": message}


def _wording(text: int | str | None) -> Step:
    return {"text": text} if isinstance(text, str) else {"length": text}


def call(name: str, /, **arguments: Any) -> Step:  # noqa: ANN401 - any JSON
    """Call a tool; ``calls`` is for several at once."""
    return calls((name, arguments))


def calls(*named: tuple[str, dict[str, Any]]) -> Step:
    """Call several tools side by side."""
    return {"tool_call": [{"name": name, "args": arguments} for name, arguments in named]}


def malformed_call(name: str, arguments: str) -> Step:
    """Call a tool with arguments that are sent as written, even if they are invalid JSON."""
    return {"malformed_tool_call": {"name": name, "arguments": arguments}}


def error(status: int = 500, *, after_words: int | None = None, **fields: Any) -> Step:  # noqa: ANN401
    """Let the provider fail; the fields are ``message``, ``code`` and ``retry_after``."""
    return {"error": {"status": status, "after_words": after_words, **fields}}


def stall(seconds: float, *, after_words: int | None = None) -> Step:
    """Send nothing for a while."""
    return {"stall": {"seconds": seconds, "after_words": after_words}}


def cut(kind: Literal["cancel", "disconnect"], *, after_words: int | None = None) -> Step:
    """Break the reply off: its stream ends too early, or its connection breaks."""
    return {kind: {"after_words": after_words}}


def usage(prompt_tokens: int, completion_tokens: int) -> Step:
    """Set the token counts that the provider reports."""
    return {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}}


def finish_reason(reason: str) -> Step:
    """Set the finish reason of the reply, such as ``length``."""
    return {"finish_reason": reason}


def instructions(
    *items: Step,
    then: Sequence[Sequence[Step]] = (),
    id_message: str | None = None,
    reasoning: int | str | None = None,
    lasting: bool = False,
) -> str:
    """Return an instruction block, to be put into a message.

    Args:
        items: The reply; without any, the first one of ``then``.
        then: The replies that follow, each after the results of the tools.
        id_message: Text before and after each reply's text.
        reasoning: Thinking before each text: a number of words, or exactly this.
        lasting: Whether the block also applies to later messages.

    Raises:
        ValueError: This is no script; the text names the place.
    """
    script: dict[str, Any] = {"messages": list(items), "steps": [list(step) for step in then]}
    if then and not items:
        del script["messages"]
    if id_message is not None:
        script["id_message"] = id_message
    if reasoning is not None:
        script["reasoning"] = _wording(reasoning)
    if lasting:
        script["lasting"] = True
    Script.model_validate(script)
    return f"{START}{orjson.dumps(script).decode()}{END}"
