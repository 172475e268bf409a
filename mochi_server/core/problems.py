"""What pydantic finds wrong in a value, for those who wrote the value and know no Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

NOT_AN_OBJECT: Final = frozenset(
    {"model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"}
)
"""Types of pydantic's errors whose texts name types and classes of Python."""
_BRANCH = re.compile(r"constrained-\w+|(list|dict|set|tuple|literal|nullable|function-\w+)\[.+\]")
"""Name of one of the types of a union, which pydantic puts into the place."""


def problem_text(problem: ErrorDetails) -> str:
    """Return what is wrong in one place, without words of Python."""
    kind = problem["type"]
    if kind in NOT_AN_OBJECT:
        return "Input should be an object"
    if kind == "tuple_type":
        return "Input should be a valid list"
    if kind == "unexpected_keyword_argument":
        return "Extra inputs are not permitted"
    return re.sub("^Tuple ", "List ", problem["msg"].removeprefix("Value error, "))


def place_of(steps: Sequence[int | str]) -> str:
    """Return a place as ``0.action``, without names of types."""
    return ".".join(str(each) for each in steps if not _BRANCH.fullmatch(str(each)))


def placed_text(problem: ErrorDetails, whole: str = "") -> str:
    """Return one problem after its place, as ``0.action: Field required``.

    ``whole`` stands for the place where all of the value is wrong.
    """
    place = place_of(problem["loc"]) or whole
    text = problem_text(problem)
    return f"{place}: {text}" if place else text


def first_problem(error: ValidationError, whole: str = "") -> str:
    """Return the first problem after its place; see ``placed_text``."""
    return placed_text(error.errors(include_url=False, include_input=False)[0], whole)
