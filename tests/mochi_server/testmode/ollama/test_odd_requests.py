"""Requests to the stand-in for Ollama that nobody would send on purpose."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from mochi_server.testmode.script import END, START
from tests.support.own_services import standing_in

LIMIT = aiohttp.ClientTimeout(total=60)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with standing_in() as url, aiohttp.ClientSession(url, timeout=LIMIT) as session:
        yield session


async def asked(http: aiohttp.ClientSession, text: str) -> tuple[int, list[dict[str, Any]]]:
    """Status and lines of the answer to a body that is sent as it stands."""
    async with http.post("/api/chat", data=text.encode()) as response:
        return response.status, [json.loads(line) async for line in response.content]


async def said(http: aiohttp.ClientSession, message: str) -> list[dict[str, Any]]:
    """The lines of the reply to a message that stands in the body as it is, escapes and all."""
    status, lines = await asked(
        http, f'{{"model": "any", "messages": [{{"role": "user", "content": "{message}"}}]}}'
    )
    assert status == 200, lines
    return lines


async def test_half_a_character_in_a_message_is_a_sign_of_replacement(http):
    lines = await said(http, r"whole \ud83d\ude00 half \ud83d.")
    assert "".join(line["message"]["content"] for line in lines).endswith("whole 😀 half \ufffd.")
    assert lines[-1]["done"]


async def test_a_large_number_in_an_argument_is_a_float_as_everywhere_in_go(http):
    call = '{"tool_call": [{"name": "a", "args": {"x": 12345678901234567890123}}]}'
    block = f'{START}{{"messages": [{call}]}}{END}'
    lines = await said(http, json.dumps(block)[1:-1])
    assert lines[0]["message"]["tool_calls"][0]["function"]["arguments"] == {
        "x": 1.2345678901234568e22
    }
    assert lines[-1]["done"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ('"keep_alive": NaN', "invalid character 'N' looking for beginning of value"),
        (
            '"options": {"num_predict": 1e400}',
            "json: cannot unmarshal number 1e400 into Go value of type float64",
        ),
        (
            f'"options": {{"num_predict": {"9" * 400}}}',
            f"json: cannot unmarshal number {'9' * 400} into Go value of type float64",
        ),
    ],
)
async def test_a_number_that_go_cannot_hold_is_refused(http, fields, told):
    assert await asked(http, f'{{"model": "any", "messages": [], {fields}}}') == (
        400,
        [{"error": told}],
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": 5},
        {"type": "string", "minLength": "x"},
        {"type": "array", "minItems": 2.5},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"enum": 5},
        {"anyOf": {"a": 1}},
    ],
)
async def test_a_schema_that_has_no_example_is_refused(http, schema):
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "x"}],
        "format": schema,
    }
    assert await asked(http, json.dumps(body)) == (
        500,
        [{"error": "invalid JSON schema in format"}],
    )
    assert (await asked(http, '{"model": "any", "messages": []}'))[0] == 200


async def test_roles_are_read_in_any_case(http):
    body = {"model": "any", "messages": [{"role": "USER", "content": "Hello"}], "stream": False}
    _, (whole,) = await asked(http, json.dumps(body))
    assert whole["message"]["content"].endswith("\n\nHello")
