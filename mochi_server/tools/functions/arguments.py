"""Arguments as a model wrote them, fitted to what a tool takes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from ...core.limits import REQUEST_LEVELS, is_too_deep
from ...errors import JSONObject
from ..base import InvalidArguments
from .results import LARGEST, clean, reason_of

ROUNDS = 4
"""How often JSON is taken out of text: a list in text in a list in text … ends somewhere."""
SHOWN_ERRORS = 5
SHOWN_CHARACTERS = 60

T = TypeVar("T")


class Arguments(ABC, Generic[T]):
    """Fits arguments to parameters, with pydantic's leniency and its words.

    Models write numbers and whole lists as text; that is read as what it stands for.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def validate(self, arguments: JSONObject) -> JSONObject:
        """Return the arguments, coerced, in JSON form; what has a default may be absent.

        Raises:
            InvalidArguments: they do not fit.
        """
        return self._fit(arguments)[1]

    @abstractmethod
    def _parse(self, arguments: JSONObject) -> T:
        """Return the parsed arguments.

        Raises:
            ValidationError: they do not fit.
        """

    @abstractmethod
    def _dump(self, parsed: T) -> JSONObject:
        """Return the parsed arguments in JSON form."""

    def _settle(self, parsed: T, dumped: JSONObject, given: JSONObject) -> JSONObject:  # noqa: ARG002
        """Return the JSON form that stands for the parsed arguments."""
        return dumped

    def _fit(self, arguments: JSONObject) -> tuple[T, JSONObject]:
        if not isinstance(arguments, dict):
            raise InvalidArguments("The arguments must be an object with a value for each name.")
        try:
            given, parsed = self._parse_with_text(arguments)
            dumped = self._dump(parsed)
            check_encodable(dumped)
            _check_flags(given, dumped)
            return parsed, self._settle(parsed, dumped, given)
        except InvalidArguments:
            raise
        except ValidationError as error:
            raise InvalidArguments(self._message(error)) from error
        except BaseException as error:  # validators of the user's own types raise anything
            raise InvalidArguments(f"The arguments were refused: {reason_of(error)}") from error

    def _parse_with_text(self, arguments: JSONObject) -> tuple[JSONObject, T]:
        """Parse, and take JSON out of text where that helps."""
        _check_depth(arguments)
        rounds = 0
        while True:
            try:
                return arguments, self._parse(arguments)
            except ValidationError as error:
                rounds += 1
                arguments = deepcopy(arguments)
                if rounds > ROUNDS or not _read_texts(arguments, error):
                    raise
            _check_depth(arguments)

    def _message(self, error: ValidationError) -> str:
        try:
            return clean(self._explain(error))
        except BaseException:  # noqa: BLE001 - an error of the user's that cannot be printed
            return "The arguments were refused, for a reason that cannot be shown."

    def _explain(self, error: ValidationError) -> str:
        missing, unknown, wrong = [], [], []
        for each in error.errors(include_url=False):
            is_own = len(each["loc"]) == 1
            if is_own and each["type"] == "missing":
                missing.append(str(each["loc"][0]))
            elif is_own and each["type"] == "extra_forbidden":
                unknown.append(str(each["loc"][0]))
            else:
                wrong.append(each)
        parts = [_line(each) for each in wrong[:SHOWN_ERRORS]]
        if missing:
            parts.append(f"Missing: {', '.join(missing)}.")
        if unknown:
            known = ", ".join(self._names) or "none"
            parts.append(f"Unknown: {_short(', '.join(unknown))}; the names are: {known}.")
        return " ".join(parts)


def _line(error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    path = ".".join(str(each) for each in error["loc"])
    value = "" if error["type"] == "missing" else f", got {_short(_repr(error['input']))}"
    return f"{_short(path) or 'arguments'}: {error['msg']}{value}."


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 - the user's own __repr__, or an infinite number
        return type(value).__name__


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _read_texts(arguments: JSONObject, error: ValidationError) -> bool:
    """Put in place what texts hold that are JSON, where the errors are; tell if there were any."""
    paths = [each["loc"] for each in error.errors(include_url=False)]
    return sum(_read_text(arguments, path) for path in paths) > 0


def _read_text(arguments: JSONObject, path: tuple[int | str, ...]) -> bool:
    value: Any = arguments
    holder: Any = None
    key: Any = None
    for step in path:  # some steps name a choice of a union, and lead nowhere
        if _has(value, step):
            holder, key, value = value, step, value[step]
    if holder is None or not isinstance(value, str):
        return False
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        return False
    if isinstance(read, str):
        return False
    holder[key] = read
    return True


def _has(value: object, step: int | str) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)


def _check_depth(arguments: JSONObject) -> None:
    if is_too_deep(arguments, REQUEST_LEVELS):
        raise InvalidArguments(f"Nested deeper than {REQUEST_LEVELS} levels.")


def _leaves(value: object) -> Iterator[object]:
    """Yield every key, and every value that is no container."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            todo += each
        else:
            yield each


def check_encodable(value: JSONObject) -> None:
    """Refuse what our JSON cannot carry.

    Raises:
        InvalidArguments: it holds lone surrogates, huge or infinite numbers.
    """
    for leaf in _leaves(value):
        if isinstance(leaf, str) and clean(leaf) != leaf:
            raise InvalidArguments("A text has letters that are no Unicode (lone surrogates).")
        if isinstance(leaf, int) and not -LARGEST <= leaf < LARGEST:
            raise InvalidArguments("A whole number is larger than 64 bits.")
        if isinstance(leaf, float) and not -float("inf") < leaf < float("inf"):
            raise InvalidArguments("A number is not finite.")


def _check_flags(given: object, dumped: object, path: str = "") -> None:
    """Refuse True as a number: a model that says so has mixed up its parameters."""
    if isinstance(given, bool):
        if isinstance(dumped, int | float) and not isinstance(dumped, bool):
            raise InvalidArguments(f"{_short(path)}: Input should be a number, got {given}.")
    elif isinstance(given, dict) and isinstance(dumped, dict):
        for key in given.keys() & dumped.keys():
            _check_flags(given[key], dumped[key], f"{path}.{key}".lstrip("."))
    elif isinstance(given, list) and isinstance(dumped, list) and len(given) == len(dumped):
        for at, (one, other) in enumerate(zip(given, dumped, strict=True)):
            _check_flags(one, other, f"{path}.{at}")
