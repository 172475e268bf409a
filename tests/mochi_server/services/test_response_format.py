"""What a response format may be, and which replies have it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mochi_server.errors import ResponseFormatInvalid
from mochi_server.protocol.response_format import JsonObjectFormat, JsonSchemaFormat
from mochi_server.services.response_format import TOO_LONG, check_format, problem_in

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/person"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"person": {"$ref": "#"}},
}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "place", "reason"),
    [
        ({"properties": {"a": {"type": "strin"}}}, ".properties.a.type", "'strin'"),
        ({"properties": {"a": {"pattern": "("}}}, ".properties.a.pattern", "'('"),
        ({"items": [{"type": "string"}]}, ".items", "is not of type"),
        ({"$schema": 5}, ".$schema", "no text"),
        ({"anyOf": [{"$ref": "#/$defs/x"}]}, ".anyOf.0.$ref", "leads to no place"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, ".$ref", "leads to no place"),
        ({"$ref": "file:///etc/passwd"}, ".$ref", "leads to no place"),
        (nested(60), "", "50 levels"),
        ({"enum": ["x" * 100_000]}, "", "100,000 bytes"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_refused_with_the_place(
    schema: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(ResponseFormatInvalid, match="json_schema") as error:
        await check_format(JsonSchemaFormat.of(schema))
    assert error.value.details["field"] == f"response_format.json_schema.schema{place}"
    assert reason in str(error.value.details["reason"])


async def test_replies_are_told_apart() -> None:
    """Schemas of other drafts, references to the schema itself, and what is no JSON at all."""
    person, old = JsonSchemaFormat.of(PERSON), "http://json-schema.org/draft-04/schema#"
    least = JsonSchemaFormat.of({"$schema": old, "minimum": 1, "exclusiveMinimum": True})
    endless = JsonSchemaFormat.of({"$ref": "#"})
    any_object = JsonObjectFormat(type="json_object")
    cases = [
        (person, '{"name": "Ann", "friends": [{"name": "Bob"}]}', None),
        (person, '{"name": "Ann", "friends": [{"name": "bob"}]}', "$.friends[0].name: 'bob' "),
        (person, '{"name": "Ann", "age": 3}', "$: Additional properties"),
        (person, '{"name": "Ann"', "it is not JSON"),
        (person, '```json\n{"name": "Ann"}\n```', "it is not JSON"),
        (person, "", "it is empty"),
        (person, "[" * 100_000, "nested too deeply"),
        (least, "1", "$: 1 is less than"),
        (endless, "1", "refers to itself without end"),
        (any_object, '{"a": [1, null]}', None),
        (any_object, "[1]", "$: [1] is not of type 'object'"),
        (any_object, '{"a": NaN}', "NaN is no word of JSON"),
        (any_object, f'["{"x" * 10_000}"]', "$: ["),
    ]
    for response_format, text, problem in cases:
        await check_format(response_format)
        found = await problem_in(text, response_format)
        if problem is None:
            assert found is None, (text, found)
        else:
            assert problem in (found or ""), text
            assert len(found or "") < 600


async def test_a_check_that_takes_for_ever_is_ended_and_holds_nobody_up() -> None:
    """The pattern backtracks without end."""
    response_format = JsonSchemaFormat.of({"pattern": "^(a+)+$"})
    found: list[str | None] = []
    ticks = 0

    async def check() -> None:
        found.append(await problem_in(f'"{"a" * 60}b"', response_format))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check)
            while not found:
                await anyio.sleep(0.01)
                ticks += 1
    assert found == [TOO_LONG]
    assert ticks > 10
