"""The parameters and the result of a function, with their type hints resolved."""

from __future__ import annotations

import inspect
import sys
import types
from collections import abc
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from .results import reason_of

Function = abc.Callable[..., Any]
WRAPPERS = 100
"""Most layers below a function; an object with every attribute seems wrapped for ever."""
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
    """Return the function that was written, below decorators, partials and callable objects."""
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
    """Read parameters and result with resolved hints, or raise Unsupported."""
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
    """Tell whether other programs fill such a parameter, as Open WebUI does with ``__user__``."""
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
    """Raise Unsupported if a result of this type is no text, and can be made no JSON."""
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


def bare(hint: Any) -> Any:  # noqa: ANN401 - hints are anything
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def is_union(hint: Any) -> bool:  # noqa: ANN401
    return get_origin(hint) in (Union, types.UnionType)


def accepts_none(hint: Any) -> bool:  # noqa: ANN401
    hint = bare(hint)
    return hint in (None, type(None)) or (
        is_union(hint) and any(accepts_none(each) for each in get_args(hint))
    )


def shown(hint: Any) -> str:  # noqa: ANN401
    try:
        return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    except BaseException:  # noqa: BLE001 - the user's own __repr__
        return "its hint"


def portable(hint: Any) -> Any:  # noqa: ANN401
    """The hint with each TypedDict as one that pydantic takes.

    Before Python 3.12 it refuses those of ``typing``, because they do not know which of their
    keys a parent class requires: https://errors.pydantic.dev/2/u/typed-dict-version
    """
    if sys.version_info >= (3, 12):
        return hint
    if typing_extensions.is_typeddict(hint):
        return _portable_dict(hint)
    inner = get_args(hint)
    if not inner or get_origin(hint) is Literal:
        return hint
    made = tuple(portable(each) for each in inner)
    if all(one is other for one, other in zip(made, inner, strict=True)):
        return hint
    return _with_arguments(hint, made)


def _portable_dict(hint: Any) -> Any:  # noqa: ANN401
    keys = {}
    for key, value in get_type_hints(hint, include_extras=True).items():
        while get_origin(value) in (typing_extensions.Required, typing_extensions.NotRequired):
            value = get_args(value)[0]  # noqa: PLW2901
        required = key in hint.__required_keys__
        wrap = typing_extensions.Required if required else typing_extensions.NotRequired
        keys[key] = wrap[portable(value)]
    make: Any = typing_extensions.TypedDict  # mypy knows it with literals only
    made = make(hint.__name__, keys)
    made.__doc__ = hint.__doc__
    return made


def _with_arguments(hint: Any, made: tuple[Any, ...]) -> Any:  # noqa: ANN401
    origin = get_origin(hint)
    if origin is Annotated:
        return Annotated[made]
    if is_union(hint):
        return Union[made]  # noqa: UP007 - made at run time
    if hasattr(hint, "copy_with"):
        return hint.copy_with(made)
    return origin[made]
