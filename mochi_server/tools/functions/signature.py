"""The parameters of a function, with their hints resolved, and the model that checks them."""

from __future__ import annotations

import inspect
from collections import abc
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Optional, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .hints import accepts_none, bare, portable, shown
from .results import reason_of

Function = abc.Callable[..., Any]
WRAPPERS = 100
"""Looked below; an object that answers to every name seems to be wrapped for ever."""
EMPTY = inspect.Parameter.empty


class Unsupported(ValueError):
    """The function cannot be a tool; the text tells its author why."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a model may fill."""

    name: str
    hint: Any
    default: Any = EMPTY
    """The signature's; what a ``Field`` brings stays in the hint."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What goes in and what comes out."""

    parameters: tuple[Parameter, ...]
    result: Any


def unwrapped(function: Function) -> Function:
    """The function that was written, below decorators, partials and callable objects.

    Raises:
        Unsupported: it never ends.
    """
    for _ in range(WRAPPERS):
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function) or isinstance(function, type):
            return function
        else:
            function = type(function).__call__
    raise Unsupported("is wrapped too often to be looked at")


def read_signature(function: Function) -> Signature:
    """Parameters and result with resolved hints.

    Raises:
        Unsupported: something has no hint, or cannot be filled by name.
    """
    hints = _hints(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise Unsupported(f"its signature cannot be read: {reason_of(error)}") from error
    parameters = tuple(
        _parameter(each, hints)
        for each in signature.parameters.values()
        if each.default is EMPTY or not is_filled_elsewhere(each.name)
    )
    result = hints.get("return", EMPTY)
    if result is EMPTY:
        raise Unsupported("has no hint for its result; write `-> str`")
    if result in (None, type(None)):
        raise Unsupported("returns nothing that a model could read; write `-> str`")
    return Signature(parameters, result)


def is_filled_elsewhere(name: str) -> bool:
    """Whether other programs fill a parameter of this name themselves, not the model.

    Those that Open WebUI hands to its tools are such: ``__user__``, ``__event_emitter__``.
    """
    return len(name) > 4 and name.startswith("__") and name.endswith("__")  # noqa: PLR2004


def _hints(function: Function) -> dict[str, Any]:
    source = unwrapped(function)
    try:
        return get_type_hints(source, include_extras=True)
    except BaseException as error:  # a hint may be any code of the user's
        raise Unsupported(f"its type hints cannot be resolved: {reason_of(error)}") from error


def _parameter(parameter: inspect.Parameter, hints: dict[str, Any]) -> Parameter:
    name = parameter.name
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise Unsupported(f"parameter {name!r} is positional-only; models pass names")
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise Unsupported(
            f"takes {parameter}, which no schema can describe; name the parameters "
            "(a decorator needs functools.wraps)"
        )
    if name not in hints:
        raise Unsupported(f"parameter {name!r} has no type hint")
    hint, default = portable(hints[name]), parameter.default
    if isinstance(default, FieldInfo):
        return Parameter(name, Annotated[hint, default])
    if default is None and not accepts_none(hint):
        hint = Optional[hint]  # noqa: UP045 - the hint may be anything
    return Parameter(name, hint, default)


TEXT = (str, int, float, bool, dict, list, Any)
STREAMS = (
    abc.Iterator,
    abc.Generator,
    abc.AsyncIterator,
    abc.AsyncGenerator,
    abc.AsyncIterable,
    abc.Awaitable,
    abc.Coroutine,
)


def check_result(hint: Any) -> None:  # noqa: ANN401
    """Hold that a result of this type is text, or can be made JSON.

    Raises:
        Unsupported: it cannot.
    """
    hint = bare(portable(hint))
    if hint in TEXT:
        return
    if (get_origin(hint) or hint) in STREAMS:
        raise Unsupported(f"returns {shown(hint)}, which is no text; return it whole, as `str`")
    try:
        TypeAdapter(hint).json_schema(mode="serialization")
    except BaseException as error:
        raise Unsupported(
            f"returns {shown(hint)}, which is neither text nor JSON; write `-> str`"
        ) from error


CONFIG = ConfigDict(
    extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False, protected_namespaces=()
)


def build_model(parameters: tuple[Parameter, ...]) -> type[BaseModel]:
    """A model with one field for each, called ``p0``, ``p1``, … and known by the name.

    Raises:
        Unsupported: no schema can be made of a hint.
    """
    fields = {f"p{at}": (each.hint, _field(each)) for at, each in enumerate(parameters)}
    try:
        return create_model("Arguments", __config__=CONFIG, **fields)  # type: ignore[call-overload,no-any-return]
    except BaseException as error:  # also the user's own hooks for pydantic
        raise Unsupported(culprit(parameters) or reason_of(error)) from error


def _field(parameter: Parameter) -> Any:  # noqa: ANN401 - as pydantic has it
    name = parameter.name
    default: Any = PydanticUndefined
    if parameter.default is not EMPTY:
        default = parameter.default
    elif accepts_none(parameter.hint) and not _has_own_default(parameter.hint):
        default = None
    return Field(default=default, alias=name, validation_alias=name, serialization_alias=name)


def _has_own_default(hint: Any) -> bool:  # noqa: ANN401
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(each, FieldInfo) and not each.is_required() for each in extras)


def culprit(parameters: tuple[Parameter, ...]) -> str | None:
    """Which parameter no schema can be made of, in words; None when each for itself is fine."""
    for each in parameters:
        try:
            TypeAdapter(each.hint).json_schema()
        except BaseException:  # noqa: BLE001, PERF203 - the same hooks
            return f"parameter {each.name!r}: no JSON schema can be made of {shown(each.hint)}"
    return None
