"""What models are told about a function, and what they may send it."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import pytest
from pydantic import Field

from mochi_server.tools.functions.python_tool import PythonTool
from mochi_server.tools.functions.signature import Unsupported
from mochi_server.tools.schema import ToolSchemaService

from .functions.hints import Colour, Options, Point, Size, tool_of


def describe(function: Any) -> PythonTool:
    return ToolSchemaService().describe(function, function.__name__)


def schema_of(hint: Any) -> Any:
    found = tool_of(hint).parameters["properties"]
    assert isinstance(found, dict)
    return found["value"]


def test_what_ollamas_converter_loses_is_put_back() -> None:
    def tool(  # noqa: PLR0917
        a: int,
        b: str | None,
        c: Literal["x", "y"] = "x",
        d: list[int] = [1],  # noqa: B006
        e: Annotated[float, Field(ge=0, description="Not below zero.")] = 0.5,
        f: int | None = None,
        g: dict[str, float] | None = None,
    ) -> str:
        """Do it.

        Args:
            a: The first.
        """

    parameters = describe(tool).parameters
    assert parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "c": {"type": "string", "enum": ["x", "y"], "default": "x"},
            "d": {"type": "array", "items": {"type": "integer"}, "default": [1]},
            "e": {
                "type": "number",
                "minimum": 0,
                "description": "Not below zero.",
                "default": 0.5,
            },
            "f": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "g": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"type": "number"}},
                    {"type": "null"},
                ],
                "default": None,
            },
        },
        "required": ["a"],
    }


def test_the_short_form_says_what_the_list_of_tools_shows() -> None:
    def tool(a: float, c: Colour, n: int | None = None, w: Literal[1, "two"] = 1) -> str:
        """Do it.

        Args:
            a: The first number to add.
        """

    assert describe(tool).short_parameters == {
        "a": {"type": "float", "description": "The first number to add."},
        "c": {"type": "str", "description": "", "choices": ["red", "blue"]},
        "n": {"type": "int", "description": "", "default": None, "required": False},
        "w": {
            "type": "int | str",
            "description": "",
            "choices": [1, "two"],
            "default": 1,
            "required": False,
        },
    }


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (list[int], "list[int]"),
        (dict[str, list[float]], "dict[str, list[float]]"),
        (int | str | None, "int | str"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Point, "Point"),
        (dt.date, "date"),
        (Any, "Any"),
        (Annotated[bool, "really"], "bool"),
    ],
)
def test_types_are_called_as_people_write_them(hint: Any, name: str) -> None:
    short = tool_of(hint).short_parameters["value"]
    assert isinstance(short, dict)
    assert short["type"] == name


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (bool, {"type": "boolean"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Path, {"type": "string", "format": "path"}),
        (Any, {}),
        (Colour, {"$ref": "#/$defs/Colour"}),
        (Point, {"$ref": "#/$defs/Point"}),
        (Size, {"$ref": "#/$defs/Size"}),
        (Options, {"$ref": "#/$defs/Options"}),
    ],
)
def test_hints_of_every_kind_have_a_schema(hint: Any, expected: dict[str, Any]) -> None:
    assert schema_of(hint) == expected


def test_models_keep_their_definitions_without_the_noise_of_titles() -> None:
    def tool(place: Point) -> str:
        """Do it."""

    definitions = describe(tool).parameters["$defs"]
    assert definitions == {
        "Point": {
            "type": "object",
            "description": "A place.",
            "properties": {
                "title": {"type": "string", "default": "here"},
                "x": {"type": "integer"},
                "near": {"type": "array", "items": {"$ref": "#/$defs/Point"}, "default": []},
            },
            "required": ["x"],
        }
    }


DOCSTRINGS = {
    "google": "Add.\n\nSlowly.\n\nArgs:\n    a (int): The\n        first.\n\nReturns:\n    It.",
    "numpy": "Add.\n\nSlowly.\n\nParameters\n----------\na : int\n    The first.\n",
    "sphinx": "Add.\n\nSlowly.\n\n:param int a: The first.\n:returns: It.",
    "ollama": "Add.\n\nSlowly.\n\nargs:\n  a (int): The first.\nreturns:\n  It.",
}


@pytest.mark.parametrize("style", DOCSTRINGS)
def test_descriptions_come_from_docstrings_of_every_style(style: str) -> None:
    def tool(a: int) -> str: ...

    tool.__doc__ = DOCSTRINGS[style]
    schema = describe(tool)
    assert schema.parameters["properties"] == {
        "a": {"type": "integer", "description": "The first."}
    }
    assert schema.description.split() == ["Add.", "Slowly."]


def test_names_that_pydantic_uses_itself_can_be_parameters() -> None:
    def tool(json: int, _hidden: int, model_config: int, copy: int, self: int) -> str:
        """Do it."""

    schema = describe(tool)
    given = {"json": 1, "_hidden": 2, "model_config": 3, "copy": 4, "self": 5}
    assert schema.arguments.bind(given) == given
    assert list(schema.short_parameters) == list(given)


def test_a_default_that_json_cannot_say_is_left_to_the_function() -> None:
    missing = object()

    def tool(a: int = missing, b: float = float("inf"), c: int = 2**70, d: str = "\ud800") -> str:  # type: ignore[assignment]
        """Do it."""

    schema = describe(tool)
    assert orjson.dumps([schema.parameters, schema.short_parameters])
    assert schema.parameters["required"] == []
    assert schema.arguments.bind({}) == {}


def test_what_a_field_brings_is_filled_in() -> None:
    def tool(a: Annotated[int, Field(5, alias="z")], b: int = Field(ge=3), c: int = None) -> str:  # noqa: RUF013
        """Do it."""

    schema = describe(tool)
    assert schema.parameters["required"] == ["b"]
    assert schema.arguments.bind({"b": 3}) == {"a": 5, "b": 3}
    assert schema.arguments.bind({"b": 3, "c": None}) == {"a": 5, "b": 3, "c": None}


class Hostile:
    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        raise SystemExit("no")


def test_a_type_that_breaks_pydantic_is_named() -> None:
    with pytest.raises(Unsupported, match="parameter 'value': no JSON schema"):
        schema_of(Hostile)
