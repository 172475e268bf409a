"""What pydantic finds wrong in a value, for those who wrote the value and know no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

NOT_AN_OBJECT: Final = frozenset(
    {"model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"}
)
"""Types of pydantic's errors whose texts name types and classes of Python."""


def problem_text(problem: ErrorDetails) -> str:
    """Return what is wrong in one place, without words of Python."""
    if problem["type"] in NOT_AN_OBJECT:
        return "Input should be an object"
    return problem["msg"].removeprefix("Value error, ")


def placed_text(problem: ErrorDetails, whole: str = "") -> str:
    """Return one problem after its place, as ``0.action: Field required``.

    Args:
        problem: What pydantic found.
        whole: What stands for the place where all of the value is wrong.
    """
    place = ".".join(map(str, problem["loc"])) or whole
    text = problem_text(problem)
    return f"{place}: {text}" if place else text


def first_problem(error: ValidationError, whole: str = "") -> str:
    """Return the first problem after its place; see ``placed_text``."""
    return placed_text(error.errors(include_url=False, include_input=False)[0], whole)
