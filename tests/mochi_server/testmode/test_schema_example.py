"""What a model in test mode answers to a JSON schema."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from mochi_server.providers.base import ModelRequest
from mochi_server.testmode.provider import ScriptedProvider
from mochi_server.testmode.samples import NoExample, example_of


class Colour(Enum):
    RED = "red"


class Leaf(BaseModel):
    size: float = Field(gt=2)
    word: str = Field(min_length=20, max_length=30)


class Tree(BaseModel):
    """Something of everything."""

    name: str = Field(max_length=5)
    age: int = Field(ge=3)
    colour: Colour
    kind: Literal["oak", "elm"]
    leaves: list[Leaf] = Field(min_length=2)
    owner: str | None
    dead: bool
    tags: dict[str, str]
    parent: Tree | None = None


async def test_a_structured_reply_validates():
    provider = ScriptedProvider("test", words_per_second=0)
    asked = ModelRequest(model="any", messages=[{"role": "user", "content": "Describe a tree."}])
    tree = await provider.structured(asked, Tree)
    assert tree.age == 3
    assert len(tree.leaves) == 2
    assert tree.colour is Colour.RED
    await provider.aclose()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, None),
        ({"type": ["string", "null"]}, "Lorem ipsum"),
        ({"const": 4}, 4),
        ({"oneOf": [{"type": "boolean"}]}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}}, None),
        ({"$ref": "#/nowhere"}, None),
        ({"$ref": "#"}, None),
        ({"properties": {"a": {"examples": [1, 2]}}}, {"a": 1}),
    ],
)
def test_each_word_of_a_schema_is_obeyed(schema, expected):
    assert example_of(schema) == expected


def test_a_schema_that_branches_into_itself_has_a_small_example():
    either = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    node = {"type": "object", "properties": dict.fromkeys("abcd", either)}
    found = example_of({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    assert len(str(found)) < 10_000
    assert set(found["a"]) == set("abcd")


def test_what_need_not_be_there_ends_where_a_schema_goes_on_for_ever():
    """As of a type whose fields may be missing, and are of that same type."""
    node = {"type": "object", "properties": {name: {"$ref": "#/$defs/node"} for name in "abcd"}}
    found = example_of({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    assert len(str(found)) < 200_000
    assert set(found["a"]) == set("abcd")


def test_a_schema_that_asks_for_too_much_has_no_example():
    node = {
        "type": "object",
        "properties": {name: {"$ref": "#/$defs/node"} for name in "abcd"},
        "required": list("abcd"),
    }
    with pytest.raises(NoExample):
        example_of({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    lists = {"type": "integer"}
    for _ in range(9):
        lists = {"type": "array", "minItems": 10, "items": lists}
    with pytest.raises(NoExample):
        example_of(lists)
