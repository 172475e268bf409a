"""A strict JSON parser: Python's own also takes ``NaN`` and halves of surrogate pairs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

MOST_DIGITS: Final = 300
"""Of a whole number; more than a float can hold."""

_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
    r"|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)",
    re.DOTALL,
)
_REPLACEMENT_CHARACTER: Final = r"\ufffd"


class TooLarge(ValueError):
    """A number that no float can hold; the text has its digits."""


def first_value(text: str, integer: Callable[[int], object] = int) -> tuple[Any, str]:
    r"""Parse the JSON value at the start of a text; return it and the rest of the text.

    Half of a surrogate pair (``"\ud83d"`` alone) becomes U+FFFD, as no wire can carry it.

    Args:
        text: Text without space before the JSON.
        integer: Converts integers.

    Raises:
        json.JSONDecodeError: The text is no JSON.
        RecursionError: It is nested too deeply.
        TooLarge: A number is too large.
    """

    def whole(digits: str) -> object:
        if len(digits) > MOST_DIGITS:
            raise TooLarge(digits)
        return integer(int(digits))

    decoder = json.JSONDecoder(parse_constant=_refused, parse_float=_finite, parse_int=whole)
    text = _ESCAPE.sub(_escape, text) if "\\u" in text else text
    value, end = decoder.raw_decode(text)
    return value, text[end:]


def _escape(match: re.Match[str]) -> str:
    return _REPLACEMENT_CHARACTER if match["half"] else match[0]


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise TooLarge(digits)
    return number


def _refused(word: str) -> NoReturn:
    raise json.JSONDecodeError("no word of JSON", word, 0)
