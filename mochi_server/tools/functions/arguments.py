"""Arguments as a model wrote them, fitted to what a tool takes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from ...core.limits import REQUEST_LEVELS, is_too_deep
from ...core.problems import place_of, problem_text
from ...errors import JSONObject
from ..base import InvalidArguments
from .results import LARGEST, clean, reason_of

ROUNDS = 4
"""How often JSON is taken out of text: a list in text in a list in text … ends somewhere."""
SHOWN_ERRORS = 5
SHOWN_CHARACTERS = 60
SHOWN_DESCRIPTION = 150


class Arguments(ABC):
    """Fits arguments to parameters, with pydantic's leniency and its words.

    Models write numbers and whole lists as text; that is read as what it stands for. They write
    null for what they leave out.

    Args:
        names: What the schema says of each parameter, by its name: a model reads it again.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    @abstractmethod
    def _parse(self, arguments: JSONObject) -> Any:  # noqa: ANN401 - a model's values
        """Return the parsed arguments, or raise a ValidationError."""

    @abstractmethod
    def _dump(self, parsed: Any) -> JSONObject:  # noqa: ANN401
        """Return the parsed arguments in JSON form."""

    def _fit(self, arguments: JSONObject) -> tuple[Any, JSONObject]:
        """Return the parsed arguments and their JSON form, or raise InvalidArguments."""
        if not isinstance(arguments, dict):
            raise InvalidArguments("The arguments must be an object with a value for each name.")
        try:
            given, parsed = self._parse_with_text(arguments)
            dumped = self._dump(parsed)
            _check_encodable(dumped)
            _check_numbers(given, dumped)
        except InvalidArguments:
            raise
        except ValidationError as error:
            raise InvalidArguments(self._message(error)) from error
        except BaseException as error:  # validators of the user's own types raise anything
            raise InvalidArguments(f"The arguments were refused: {reason_of(error)}") from error
        return parsed, dumped

    def _parse_with_text(self, arguments: JSONObject) -> tuple[JSONObject, Any]:
        _check_depth(arguments)
        rounds = 0
        while True:
            try:
                return arguments, self._parse(arguments)
            except ValidationError as error:
                rounds += 1
                if rounds > ROUNDS:
                    raise
                arguments = deepcopy(arguments)
                has_changed = False
                for each in error.errors(include_url=False):
                    if _read_text(arguments, each["loc"]):
                        has_changed = True
                if not has_changed:
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
                missing.append(self._described(str(each["loc"][0])))
            elif is_own and each["type"] == "extra_forbidden":
                unknown.append(str(each["loc"][0]))
            else:
                wrong.append(each)
        parts = [self._line(each) for each in wrong[:SHOWN_ERRORS]]
        if missing:
            parts.append(f"Missing: {', '.join(missing)}.")
        if unknown:
            known = ", ".join(self._names) or "none"
            parts.append(f"Unknown: {_short(', '.join(unknown))}; the names are: {known}.")
        return " ".join(parts)

    def _line(self, error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
        path = _short(place_of(error["loc"])) or "arguments"
        value = "" if error["type"] == "missing" else f", got {_short(_repr(error['input']))}"
        name = str(error["loc"][0]) if error["loc"] else ""
        return f"{self._described(name, path)}: {problem_text(error)}{value}."

    def _described(self, name: str, path: str | None = None) -> str:
        """Return a parameter, or a path into it, with what the schema says of it."""
        description = _short(self._names.get(name, ""), SHOWN_DESCRIPTION)
        return f"{path or name} ({description})" if description else path or name


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 - the user's own __repr__, or an infinite number
        return type(value).__name__


def _short(text: str, most: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _read_text(arguments: JSONObject, path: tuple[int | str, ...]) -> bool:
    """Replace the text at a path by the JSON in it; return False if it is no such text."""
    value: Any = arguments
    holder: Any = None
    key: Any = None
    for step in path:  # some steps name a choice of a union, and lead nowhere
        if _has(value, step):
            holder, key, value = value, step, value[step]
    if holder is None or not isinstance(value, str):
        return False
    try:
        read = json.loads(value, strict=False)
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
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            todo += each
        else:
            yield each


def _check_encodable(value: JSONObject) -> None:
    for leaf in _leaves(value):
        if isinstance(leaf, str) and clean(leaf) != leaf:
            raise InvalidArguments("A text has letters that are no Unicode (lone surrogates).")
        if isinstance(leaf, int) and not -LARGEST <= leaf < LARGEST:
            raise InvalidArguments("A whole number is larger than 64 bits.")
        if isinstance(leaf, float) and not -float("inf") < leaf < float("inf"):
            raise InvalidArguments("A number is not finite.")


def _check_numbers(given: object, dumped: object, path: str = "") -> None:
    """Refuse True as a number, a sign of confused parameters, and numbers that are not finite."""
    if isinstance(given, bool):
        if isinstance(dumped, int | float) and not isinstance(dumped, bool):
            raise InvalidArguments(f"{_short(path)}: Input should be a number, got {given}.")
    elif isinstance(given, float) and dumped is None:
        raise InvalidArguments("A number is not finite.")
    elif isinstance(given, dict) and isinstance(dumped, dict):
        for key in given.keys() & dumped.keys():
            _check_numbers(given[key], dumped[key], f"{path}.{key}".lstrip("."))
    elif isinstance(given, list) and isinstance(dumped, list):
        if len(given) != len(dumped):  # a set, in which equal values count once
            has_bools = any(isinstance(each, bool) for each in dumped)
            dumped = [] if has_bools else dumped[:1] * len(given)
        for at, (one, other) in enumerate(zip(given, dumped)):  # noqa: B905 - or none at all
            _check_numbers(one, other, f"{path}.{at}")
