"""What a model behind Ollama is told of a tool's arguments, with what Ollama drops of a schema."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from mochi_server.protocol.completions import ModelRequest
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.providers.ollama.tools import tool_for_ollama
from mochi_server.tools.schema import ToolSchemaService
from tests.support.fake_ollama import FakeOllama

KEPT = ("anyOf", "type", "items", "description", "enum", "properties", "required")


def kept(schema: dict[str, Any]) -> dict[str, Any]:
    """A property as api.ToolProperty of Ollama reads it (0.24 and 0.33)."""
    found = {key: schema[key] for key in KEPT if schema.get(key)}
    if "anyOf" in found:
        found["anyOf"] = [kept(each) for each in found["anyOf"]]
    if "properties" in found:
        found["properties"] = {name: kept(each) for name, each in found["properties"].items()}
    return found


async def told(parameters: dict[str, Any]) -> dict[str, Any]:
    """What of the parameters' properties comes through."""
    function = {"name": "f", "description": "Do it.", "parameters": parameters}
    async with FakeOllama() as ollama:
        provider = OllamaProvider("ollama", host=ollama.url)
        request = ModelRequest(
            model="qwen3:14b",
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"type": "function", "function": function}],
        )
        async for _ in provider.stream(request):
            pass
        await provider.aclose()
        sent = ollama.chats[0]["tools"][0]["function"]
    assert {key: sent[key] for key in ("name", "description")} == {
        "name": "f",
        "description": "Do it.",
    }
    assert "$defs" not in sent["parameters"]
    assert "$ref" not in str(sent)
    return {name: kept(each) for name, each in sent["parameters"]["properties"].items()}


async def told_of(function: Callable[..., Any]) -> dict[str, Any]:
    return await told(ToolSchemaService().describe(function, "f").parameters)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: Annotated[int, Field(ge=0, le=9)]
    color: Color = Color.RED


async def test_the_choices_of_an_enum_and_of_a_nested_model_are_told() -> None:
    def paint(color: Color, at: Point, all_of: list[Color], maybe: Color | None = None) -> str:
        """Paint.

        Args:
            color: Which one.
            at: Where.
            all_of: Some.
            maybe: Perhaps.
        """
        return ""

    colors = {"enum": ["red", "blue"], "type": "string"}
    found = await told_of(paint)
    assert found["color"] == {**colors, "description": "Which one."}
    assert found["at"] == {
        "type": "object",
        "description": "Where.",
        "required": ["x"],
        "properties": {
            "x": {"type": "integer", "description": "minimum: 0; maximum: 9"},
            "color": {**colors, "description": "default: red"},
        },
    }
    assert found["all_of"]["items"] == colors
    assert found["maybe"]["anyOf"] == [colors, {"type": "null"}]


async def test_what_ollama_drops_and_matters_stands_in_the_description() -> None:
    def roll(
        sides: Annotated[int, Field(ge=2, le=100)] = 6,
        name: Annotated[str, Field(min_length=1, pattern="^[a-z]+$")] = "die",
        weights: dict[str, float] | None = None,
        pair: tuple[int, str] = (1, "a"),
        kind: Literal["fair"] = "fair",
    ) -> str:
        """Roll.

        Args:
            sides: How many.
            name: Of the die.
            weights: Of the sides.
            pair: Two.
            kind: Of die.
        """
        return ""

    found = await told_of(roll)
    assert found["sides"] == {
        "type": "integer",
        "description": "How many. (default: 6; minimum: 2; maximum: 100)",
    }
    assert found["name"]["description"] == (
        "Of the die. (default: die; pattern: ^[a-z]+$; minLength: 1)"
    )
    assert found["weights"]["description"] == "Of the sides."
    assert found["weights"]["anyOf"][0]["description"] == 'values: {"type": "number"}'
    assert found["pair"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found["kind"]["enum"] == ["fair"]


async def test_other_writers_words_for_a_choice_come_through() -> None:
    found = await told(
        {
            "type": "object",
            "$defs": {"unit": {"type": "string", "enum": ["C", "F"]}},
            "properties": {
                "all": {"allOf": [{"$ref": "#/$defs/unit"}], "default": "C"},
                "one": {"oneOf": [{"$ref": "#/$defs/unit"}, {"type": "integer", "minimum": 1}]},
                "fixed": {"const": 7},
                "properties": {"type": "string"},
            },
        }
    )
    unit = {"type": "string", "enum": ["C", "F"]}
    assert found == {
        "all": {**unit, "description": "default: C"},
        "one": {"anyOf": [unit, {"type": "integer", "description": "minimum: 1"}]},
        "fixed": {"type": "integer", "enum": [7]},
        "properties": {"type": "string"},
    }


@pytest.mark.parametrize("wide", [True, False])
async def test_a_schema_that_names_itself_ends(wide: bool) -> None:
    """Or that names others in a way that doubles at each step."""
    names = [f"d{number}" for number in range(40)]
    doubling: dict[str, Any] = {
        name: {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/{after}"}, "b": {"$ref": f"#/$defs/{after}"}},
        }
        for name, after in zip(names, [*names[1:], "d0"], strict=True)
    }
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    first = "d0" if wide else "node"
    found = await told(
        {
            "type": "object",
            "$defs": {**doubling, "node": node},
            "properties": {"value": {"$ref": f"#/$defs/{first}"}, "no": {"$ref": "#/$defs/none"}},
        }
    )
    assert found["no"] == {"type": "object"}
    if not wide:
        assert found["value"]["properties"]["next"] == {"type": "object"}


async def test_every_json_pointer_leads_somewhere() -> None:
    choice = {"type": "string", "enum": ["C", "F"]}
    pointers = {
        "slash": "#/$defs/a~1b",
        "tilde": "#/$defs/a~0b",
        "blank": "#/$defs/a%20b",
        "listed": "#/$defs/list/anyOf/1",
    }
    found = await told(
        {
            "type": "object",
            "$defs": {
                **dict.fromkeys(("a/b", "a~b", "a b"), choice),
                "list": {"anyOf": [{"type": "integer"}, choice]},
            },
            "properties": {name: {"$ref": pointer} for name, pointer in pointers.items()},
        }
    )
    assert found == dict.fromkeys(pointers, choice)


def test_a_tool_that_is_equal_is_converted_once() -> None:
    def tool(description: str) -> dict[str, Any]:
        function = {"name": "f", "description": description, "parameters": {"type": "object"}}
        return {"type": "function", "function": function}

    assert tool_for_ollama(tool("Do it.")) is tool_for_ollama(tool("Do it."))
    parameters = {"type": "object", "properties": {}}
    assert tool_for_ollama(tool("Do more.")) == tool("Do more.") | {
        "function": tool("Do more.")["function"] | {"parameters": parameters}
    }
    assert tool_for_ollama(tool("half \ud83d"))["function"]["description"] == "half \ud83d"  # type: ignore[index,call-overload]
