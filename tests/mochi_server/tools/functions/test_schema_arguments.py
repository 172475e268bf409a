"""Arguments checked against a schema, in the server, and what the function itself says of them."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from mochi_server.tools.base import InvalidArguments
from mochi_server.tools.functions.arguments import SchemaArguments
from mochi_server.tools.schema import ToolSchemaService

from .test_arguments_properties import HINTS, KEYS, NAMES, VALUES, Box, Keys, Level, Node, make


def tool(  # noqa: PLR0917
    a: int,
    b: list[int],
    c: dict[str, int] | None = None,
    d: dt.date | None = None,
    e: Annotated[str, Field(pattern="^[^x]*$", max_length=3)] = "",
    f: Annotated[float, Field(gt=0)] | bool = 1,
) -> str:
    """Do it."""
    return ""


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": "x", "b": "[1"},
        {"b": 1, "z": 2},
        {"a": True, "b": []},
        {"a": 1.5, "b": [1, True]},
        {"a": 1, "b": [], "c": {"x": "y"}, "d": "no"},
        {"a": 1, "b": [], "e": "abcd"},
        {"a": 1, "b": "[1, 2]", "f": -1},
        {"a": "\ud800", "b": []},
        [],
    ],
)
def test_a_refusal_has_the_words_of_the_function(arguments: Any) -> None:
    described = ToolSchemaService().describe(tool, "tool")
    messages = []
    for check in (described.bind, SchemaArguments(described.parameters).validate):
        with pytest.raises(InvalidArguments) as caught:
            check(arguments)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("number", [0, 1.5, 1e22])
def test_a_number_is_not_taken_for_bytes(number: float) -> None:
    with pytest.raises(InvalidArguments, match="Input should be a valid"):
        make([bytes], []).validate({NAMES[0]: number})
    assert make([bytes], []).bind({NAMES[0]: "text"})[NAMES[0]] == b"text"


def test_what_fits_is_given_in_json_form_without_defaults() -> None:
    checker = SchemaArguments(ToolSchemaService().describe(tool, "tool").parameters)
    fitted = checker.validate({"a": "7", "b": '[1, "2"]', "d": "2024-02-29", "e": "abc"})
    assert fitted == {"a": 7, "b": [1, 2], "d": "2024-02-29", "e": "abc"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "integer", "minimum": "low"}}},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}},
        {"properties": {"a": {"type": "nonsense"}, "b": {"anyOf": []}, "c": {"enum": []}}},
        {"properties": {"a": True, "b": {"type": ["string", "null"]}}, "required": "a"},
        {"properties": {"a": {"type": "string", "pattern": "("}}},
    ],
)
def test_what_a_schema_says_in_no_known_way_is_left_to_the_function(schema: Any) -> None:
    checker = SchemaArguments(schema)
    assert checker.validate({"a": "x"}) == {"a": "x"}
    with pytest.raises(InvalidArguments, match="Unknown: z"):
        checker.validate({"a": "x", "z": 1})


class Shade(enum.Enum):
    """Found in any case."""

    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Shade | None:
        return cls.RED if str(value).lower() == "red" else None


class Rights(enum.IntFlag):
    """Can be combined."""

    READ = 1
    WRITE = 2


class Alias(BaseModel):
    """Takes two names."""

    model_config = ConfigDict(populate_by_name=True)
    size: int = Field(alias="theSize")


class AnyAlias(BaseModel):
    """Takes one of two names."""

    model_config = ConfigDict(extra="forbid")
    size: int = Field(validation_alias=AliasChoices("size", "length"))


class Prepared(BaseModel):
    """Takes a text as well."""

    size: int

    @model_validator(mode="before")
    @classmethod
    def from_text(cls, value: Any) -> Any:
        """Count the letters of a text."""
        return {"size": len(value)} if isinstance(value, str) else value


class Tidy(BaseModel):
    """Strips its texts."""

    model_config = ConfigDict(str_strip_whitespace=True, str_max_length=3)
    name: str


class Noted(BaseModel):
    """Has a schema with words of its author's."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})
    size: int = 0


class Pair(NamedTuple):
    """Has a default."""

    one: int
    other: str = "b"


def _split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Shade, "RED"),
        (Rights, 3),
        (list[Shade], ["Red"]),
        (Annotated[list[str], BeforeValidator(_split)], "a,b"),
        (Annotated[int, WrapValidator(lambda value, _: len(value))], "abc"),
        (Annotated[str, Field(json_schema_extra={"format": "date"})], "tomorrow"),
        (Annotated[str, Field(json_schema_extra={"enum": ["a", "b"]})], "c"),
        (Annotated[str, WithJsonSchema({"type": "integer"})], "many"),
        (Annotated[str, StringConstraints(strip_whitespace=True, max_length=3)], " abc "),
        (Annotated[set[int], Field(max_length=2)], [1, 1, 1]),
        (Alias, {"size": 1}),
        (dict[str, AnyAlias], {"a": {"length": 1}}),
        (Prepared, "abc"),
        (Tidy, {"name": " abc "}),
        (Noted, {"size": 1, "more": 2}),
        (Pair, [1]),
        (Pair | None, {"one": 1}),
        (decimal.Decimal, 9007199254740993),
    ],
)
def test_what_only_the_code_of_a_type_can_check_is_left_to_it(hint: Any, value: Any) -> None:
    """The schema says less of such a type than it takes."""
    described = make([hint], [])
    checker = SchemaArguments(described.parameters, described.unchecked)
    taken = described.bind({"a": value})
    assert described.bind(checker.validate({"a": value})) == taken
    with pytest.raises(InvalidArguments, match="Unknown: z"):
        checker.validate({"a": value, "z": 1})


@pytest.mark.parametrize(
    "hint",
    [
        int,
        float,
        bytes,
        Any,
        set[int],
        tuple[int, ...],
        int | str | None,
        Literal[1, "a"],
        dt.date,
        uuid.UUID,
        Level,
        Node,
        Box,
        Keys,
        Annotated[int, Field(ge=1, description="How many", examples=[3])],
        Annotated[str, Field(json_schema_extra={"examples": ["a"]})],
        list[dict[str, int]] | None,
    ],
)
def test_other_types_are_checked(hint: Any) -> None:
    assert make([hint], []).unchecked == []


FUNCTIONS = [make([hint], []) for hint in HINTS]
CHECKERS = [SchemaArguments(each.parameters) for each in FUNCTIONS]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, len(HINTS) - 1), arguments=st.dictionaries(KEYS, VALUES, max_size=2))
def test_the_server_refuses_nothing_that_the_function_takes(
    at: int, arguments: dict[str, Any]
) -> None:
    try:
        FUNCTIONS[at].bind(arguments)
    except InvalidArguments:
        return
    fitted = CHECKERS[at].validate(arguments)
    FUNCTIONS[at].bind(fitted)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, len(HINTS) - 1), value=VALUES)
def test_nor_for_its_one_parameter(at: int, value: Any) -> None:
    try:
        FUNCTIONS[at].bind({"a": value})
    except InvalidArguments:
        return
    if HINTS[at] == set[int] and not {True, False}.isdisjoint(value):
        return  # the function takes flags for numbers only where its set hides how many there were
    FUNCTIONS[at].bind(CHECKERS[at].validate({"a": value}))
