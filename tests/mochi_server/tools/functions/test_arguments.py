"""What models may send a function, and what it gets."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import typing
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import pytest
import typing_extensions
from pydantic import BaseModel, SecretStr, field_validator

from mochi_server.tools.base import InvalidArguments
from mochi_server.tools.schema import ToolSchemaService


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    title: str = "here"
    x: int
    near: list[Point] = []


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


class Options(typing.TypedDict, total=False):
    depth: int
    size: Size


class Marked(typing.TypedDict):
    a: typing_extensions.Required[int]
    b: typing_extensions.NotRequired[Options]


class Unspeakable(ValueError):
    def __str__(self) -> str:
        raise SystemExit


class Odd(BaseModel):
    value: int

    @field_validator("value")
    @classmethod
    def refuse(cls, value: int) -> int:
        raise {
            0: KeyError,
            1: SystemExit,
            2: KeyboardInterrupt,
            3: RecursionError,
            5: Unspeakable,
        }.get(value, ValueError)("odd")


def arguments_of(hint: Any) -> Any:
    def tool(value): ...

    tool.__doc__ = "Do it."
    tool.__annotations__ = {"value": hint, "return": str}
    return ToolSchemaService().describe(tool, "tool")


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (int, "7", 7),
        (int, 7.0, 7),
        (float, "7.5", 7.5),
        (bool, "true", True),
        (str, 7, "7"),
        (str, 1.5, "1.5"),
        (list[str], [1, 2], ["1", "2"]),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '[1, "2"]', [1, 2]),
        (list[list[int]], '["[1]", [2]]', [[1], [2]]),
        (list[int] | None, "[1]", [1]),
        (int | None, "null", None),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (str | list[int], "[1]", "[1]"),
        (Literal[1, 2], "2", 2),
        (Colour, "red", Colour.RED),
        (Point, '{"x": "1"}', Point(x=1)),
        (Size, {"width": 2}, Size(2, 1)),
        (Options, {"size": '{"width": 2}'}, {"size": Size(2, 1)}),
        (list[Options], '[{"depth": "1"}]', [{"depth": 1}]),
        (Annotated[dict[str, Options | None], "by name"], {"a": None}, {"a": None}),
        (typing.List[Options], [{"depth": "1"}], [{"depth": 1}]),  # noqa: UP006
        (Marked, {"a": "1", "b": {"depth": "2"}}, {"a": 1, "b": {"depth": 2}}),
        (dt.date, "2024-02-29", dt.date(2024, 2, 29)),
        (
            uuid.UUID,
            "12345678123456781234567812345678",
            uuid.UUID(int=0x12345678 * 0x1000000010000000100000001),
        ),
        (Path, "a/b", Path("a/b")),
        (Decimal, "1.10", Decimal("1.10")),
        (set[int], [1, 1], {1}),
        (tuple[int, str], [1, "a"], (1, "a")),
    ],
)
def test_arguments_are_fitted_to_the_hint(hint: Any, given: Any, value: Any) -> None:
    arguments = arguments_of(hint)
    bound = arguments.bind({"value": given})["value"]
    assert bound == value
    assert type(bound) is type(value)
    shown = arguments.validate({"value": given})
    assert json.loads(orjson.dumps(shown)) == shown
    assert arguments.bind(shown)["value"] == value


@pytest.mark.parametrize(
    ("hint", "given", "said"),
    [
        (int, "x", "value: Input should be a valid integer"),
        (int, True, "got True"),
        (int, "true", "got True"),
        (float, False, "got False"),
        (list[int], [1, True], "value.1: "),
        (int, 1.5, "value: "),
        (int, "9" * 30, "64 bits"),
        (int, "9" * 9000, "value: "),
        (float, "NaN", "finite"),
        (float, "1e999", "finite"),
        (str, "\ud800", "lone surrogates"),
        (Any, "\ud800", "lone surrogates"),
        (str, None, "value: "),
        (Colour, "green", "'red' or 'blue'"),
        (list[int], "[1", "value: "),
        (list[int], "[" * 20000, "value: "),
        (list, "[" * 100 + "]" * 100, "deeper than 64"),
        (Odd, {"value": 0}, "KeyError"),
        (Odd, {"value": 1}, "SystemExit"),
        (Odd, {"value": 2}, "KeyboardInterrupt"),
        (Odd, {"value": 3}, "RecursionError"),
        (Odd, {"value": 4}, "odd"),
        (Odd, {"value": 5}, "refused"),
        (Marked, {}, "Field required"),
    ],
)
def test_what_does_not_fit_is_said_in_few_words(hint: Any, given: Any, said: str) -> None:
    arguments = arguments_of(hint)
    for method in (arguments.validate, arguments.bind):
        with pytest.raises(InvalidArguments) as caught:
            method({"value": given})
        assert said in str(caught.value)
        assert len(str(caught.value)) < 400
        assert str(caught.value).encode()


def test_names_are_told_when_some_are_missing_or_unknown() -> None:
    def tool(a: int, b: int, c: int = 1) -> str:
        """Do it."""

    described = ToolSchemaService().describe(tool, "tool")
    for method in (described.validate, described.bind):
        with pytest.raises(InvalidArguments) as caught:
            method({"a": 1, "d": 1})
        assert str(caught.value) == "Missing: b. Unknown: d; the names are: a, b, c."


def test_a_secret_is_not_lost_on_its_way() -> None:
    arguments = arguments_of(SecretStr)
    shown = arguments.validate({"value": "word"})
    assert arguments.bind(shown)["value"].get_secret_value() == "word"


def test_a_secret_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        arguments_of(SecretStr).validate({"value": "\ud800"})


def test_what_was_given_is_not_changed() -> None:
    given = {"value": ["[1]"]}
    assert arguments_of(list[list[int]]).bind(given) == {"value": [[1]]}
    assert given == {"value": ["[1]"]}


def test_something_other_than_an_object_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="must be an object"):
        arguments_of(int).validate([1])
