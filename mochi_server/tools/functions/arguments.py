"""Arguments as a model wrote them, fitted to what a function takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ValidationError

from ...core.json_limits import REQUEST_LEVELS, is_too_deep
from ...errors import JSONObject
from ..base import InvalidArguments
from .results import LARGEST, clean, reason_of
from .signature import EMPTY, Parameter, build_model

ROUNDS = 4
"""Of taking JSON out of text: a list in text in a list in text … ends somewhere."""

SHOWN_ERRORS = 5
SHOWN_LETTERS = 60


class Arguments:
    """Checks the arguments of one function.

    Raises:
        Unsupported: (when it is made) no schema can be made of a hint.
    """

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        self.model = build_model(parameters)
        self._names = [each.name for each in parameters]
        self._injected = {f"p{at}" for at, each in enumerate(parameters) if each.default is EMPTY}

    def validate(self, arguments: JSONObject) -> JSONObject:
        """What was given, coerced, in JSON form; absent stays absent where there is a default.

        Raises:
            InvalidArguments: they do not fit.
        """
        return self._fitted(arguments)[1]

    def bind(self, arguments: JSONObject) -> dict[str, object]:
        """What was given as values of the hinted types, to be passed by name.

        Raises:
            InvalidArguments: they do not fit.
        """
        model = self._fitted(arguments)[0]
        return {
            name: getattr(model, field)
            for field, name in zip(type(model).model_fields, self._names, strict=True)
            if field in self._wanted(model)
        }

    def _wanted(self, model: BaseModel) -> set[str]:
        """Fields that were given, or that the signature itself has no default for."""
        return model.model_fields_set | self._injected

    def _fitted(self, arguments: JSONObject) -> tuple[BaseModel, JSONObject]:
        try:
            return self._fit(arguments)
        except InvalidArguments:
            raise
        except ValidationError as error:
            raise InvalidArguments(self._told(error)) from error
        except BaseException as error:  # validators of the user's own types raise anything
            raise InvalidArguments(f"The arguments were refused: {reason_of(error)}") from error

    def _fit(self, arguments: JSONObject) -> tuple[BaseModel, JSONObject]:
        if not isinstance(arguments, dict):
            raise InvalidArguments("The arguments must be an object with a value for each name.")
        given, model = self._parse(arguments)
        dumped = model.model_dump(
            mode="json", by_alias=True, include=self._wanted(model), warnings=False
        )
        _check_carried(dumped)
        _check_flags(given, dumped)
        return model, dumped if self._says_the_same(model, dumped) else _carried(given)

    def _parse(self, arguments: JSONObject) -> tuple[JSONObject, BaseModel]:
        """The model, and the arguments with JSON taken out of text where that helps."""
        _check_depth(arguments)
        rounds = 0
        while True:
            try:
                return arguments, self.model.model_validate(arguments)
            except ValidationError as error:
                rounds += 1
                arguments = deepcopy(arguments)
                if rounds > ROUNDS or not _take_out_all(arguments, error):
                    raise
            _check_depth(arguments)

    def _says_the_same(self, model: BaseModel, dumped: JSONObject) -> bool:
        """Whether the JSON form makes the same values again (a secret's does not)."""
        try:
            return bool(self.model.model_validate(dumped) == model)
        except BaseException:  # noqa: BLE001 - types of the user's own
            return False

    def _told(self, error: ValidationError) -> str:
        try:
            return clean(self._explain(error))
        except BaseException:  # noqa: BLE001 - an error of the user's that cannot be printed
            return "The arguments were refused, for a reason that cannot be shown."

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False)
        missing = [str(each["loc"][0]) for each in errors if _is_own(each, "missing")]
        unknown = [str(each["loc"][0]) for each in errors if _is_own(each, "extra_forbidden")]
        wrong = [
            each
            for each in errors
            if not (_is_own(each, "missing") or _is_own(each, "extra_forbidden"))
        ]
        parts = [_line(each) for each in wrong[:SHOWN_ERRORS]]
        if missing:
            parts.append(f"Missing: {', '.join(missing)}.")
        if unknown:
            known = ", ".join(self._names) or "none"
            parts.append(f"Unknown: {_short(', '.join(unknown))}; the names are: {known}.")
        return " ".join(parts)


def _is_own(error: Any, kind: str) -> bool:  # noqa: ANN401 - pydantic's ErrorDetails
    return error["type"] == kind and len(error["loc"]) == 1


def _line(error: Any) -> str:  # noqa: ANN401
    place = ".".join(str(each) for each in error["loc"])
    given = "" if error["type"] == "missing" else f", got {_short(_repr(error['input']))}"
    return f"{_short(place) or 'arguments'}: {error['msg']}{given}."


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 - the user's own __repr__, or a number without end
        return type(value).__name__


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}…"


def _take_out_all(arguments: JSONObject, error: ValidationError) -> bool:
    """Whether there was JSON in the text at any of the errors."""
    places = [each["loc"] for each in error.errors(include_url=False)]
    return sum(_take_out(arguments, place) for place in places) > 0


def _take_out(arguments: JSONObject, loc: tuple[int | str, ...]) -> bool:
    """Where an error is at text that holds JSON, put in what it holds."""
    at: Any = arguments
    holder: Any = None
    key: Any = None
    for step in loc:  # some steps are names of a union's choices, not of places
        if _has(at, step):
            holder, key, at = at, step, at[step]
    if holder is None or not isinstance(at, str):
        return False
    try:
        value = json.loads(at)
    except (ValueError, RecursionError):
        return False
    if isinstance(value, str):
        return False
    holder[key] = value
    return True


def _has(value: object, step: int | str) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)


def _check_depth(arguments: JSONObject) -> None:
    if is_too_deep(arguments, REQUEST_LEVELS):
        raise InvalidArguments(f"Nested deeper than {REQUEST_LEVELS} levels.")


def _leaves(value: object) -> Iterator[object]:
    """Every value that is no container, and every key."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            todo += each
        else:
            yield each


def _check_carried(value: JSONObject) -> None:
    for leaf in _leaves(value):
        if isinstance(leaf, str) and clean(leaf) != leaf:
            raise InvalidArguments("A text has letters that are no Unicode (lone surrogates).")
        if isinstance(leaf, int) and not -LARGEST <= leaf < LARGEST:
            raise InvalidArguments("A whole number is larger than 64 bits.")
        if isinstance(leaf, float) and not -float("inf") < leaf < float("inf"):
            raise InvalidArguments("A number is not finite.")


def _carried(value: JSONObject) -> JSONObject:
    _check_carried(value)
    return value


def _check_flags(given: object, made: object, place: str = "") -> None:
    """True is no 1: a model that says so has mixed up its parameters."""
    if isinstance(given, bool):
        if isinstance(made, int | float) and not isinstance(made, bool):
            raise InvalidArguments(f"{_short(place)}: Input should be a number, got {given}.")
    elif isinstance(given, dict) and isinstance(made, dict):
        for key in given.keys() & made.keys():
            _check_flags(given[key], made[key], f"{place}.{key}".lstrip("."))
    elif isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        for at, (one, other) in enumerate(zip(given, made, strict=True)):
            _check_flags(one, other, f"{place}.{at}")
