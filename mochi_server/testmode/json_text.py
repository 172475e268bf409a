"""JSON as its grammar has it: Python's own reader also takes ``NaN``, and halves of characters."""

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
_SIGN_OF_REPLACEMENT: Final = r"\ufffd"


class TooLarge(ValueError):
    """A number that no float can hold; its digits."""


def first_value(text: str, integer: Callable[[int], object] = int) -> tuple[Any, str]:
    r"""The value that a text begins with, and the text behind it.

    Half a character (``"\ud83d"`` alone) becomes the sign of replacement: no wire can carry it.

    Args:
        text: without space before the JSON.
        integer: makes something else of a whole number.

    Raises:
        json.JSONDecodeError: it is no JSON.
        RecursionError: it is too deep.
        TooLarge: it has a number that is.
    """

    def whole(digits: str) -> object:
        if len(digits) > MOST_DIGITS:
            raise TooLarge(digits)
        return integer(int(digits))

    decoder = json.JSONDecoder(parse_constant=_refused, parse_float=_finite, parse_int=whole)
    text = _ESCAPE.sub(_escape, text) if "\\u" in text else text
    found, end = decoder.raw_decode(text)
    return found, text[end:]


def _escape(found: re.Match[str]) -> str:
    return _SIGN_OF_REPLACEMENT if found["half"] else found[0]


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise TooLarge(digits)
    return number


def _refused(word: str) -> NoReturn:
    raise json.JSONDecodeError("no word of JSON", word, 0)
