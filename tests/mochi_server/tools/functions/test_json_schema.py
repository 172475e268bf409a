"""Arguments checked against a schema, in the server, and what the function itself says of them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from mochi_server.tools.base import InvalidArguments
from mochi_server.tools.functions.json_schema import SchemaArguments
from mochi_server.tools.schema import ToolSchemaService

from .test_arguments_properties import HINTS, KEYS, VALUES, make


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
    for checker in (described.arguments, SchemaArguments(described.parameters)):
        with pytest.raises(InvalidArguments) as caught:
            checker.validate(arguments)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


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


FUNCTIONS = [make([hint], []) for hint in HINTS]
CHECKERS = [SchemaArguments(each.parameters) for each in FUNCTIONS]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, len(HINTS) - 1), arguments=st.dictionaries(KEYS, VALUES, max_size=2))
def test_the_server_refuses_nothing_that_the_function_takes(
    at: int, arguments: dict[str, Any]
) -> None:
    try:
        FUNCTIONS[at].validate(arguments)
    except InvalidArguments:
        return
    fitted = CHECKERS[at].validate(arguments)
    FUNCTIONS[at].bind(fitted)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, len(HINTS) - 1), value=VALUES)
def test_nor_for_its_one_parameter(at: int, value: Any) -> None:
    try:
        FUNCTIONS[at].validate({"a": value})
    except InvalidArguments:
        return
    if HINTS[at] == set[int] and not {True, False}.isdisjoint(value):
        return  # the function takes flags for numbers only where its set hides how many there were
    FUNCTIONS[at].bind(CHECKERS[at].validate({"a": value}))
