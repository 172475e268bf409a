"""Type hints, taken apart."""

from __future__ import annotations

import sys
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typing_extensions


def bare(hint: Any) -> Any:  # noqa: ANN401 - hints are anything
    """The hint without ``Annotated``."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def is_union(hint: Any) -> bool:  # noqa: ANN401
    """Whether it is ``Union[…]`` or ``… | …``."""
    return get_origin(hint) in (Union, types.UnionType)


def accepts_none(hint: Any) -> bool:  # noqa: ANN401
    """Whether None is one of the choices of the hint."""
    hint = bare(hint)
    return hint in (None, type(None)) or (
        is_union(hint) and any(accepts_none(each) for each in get_args(hint))
    )


def shown(hint: Any) -> str:  # noqa: ANN401
    """The hint as its author knows it."""
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
