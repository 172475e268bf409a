"""The OpenAPI document says of each event of a stream what is in it."""

from __future__ import annotations

import json

import pytest

from tests.docs.pages import REFERENCE, blocks
from tests.support.sse import events, parse
from tests.support.tools import write_tools

TOOLS = '''
__all__ = ["add"]


def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)
'''
CALL = [{"name": "add", "arguments": {"a": 2, "b": 3}, "id": "call_a"}]
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


@pytest.fixture
def service(api, ollama, mochi):
    """The API, with a tool, and its Ollama."""
    write_tools(mochi.tools_path, init=TOOLS)
    return api, ollama


async def read_document(api):
    return (await api.get("/openapi.json")).json()


def described(document, route):
    """The schema of each event's data, and the streams that are shown as examples."""
    content = document["paths"][f"/api/v1{route}"]["post"]["responses"]["200"]["content"]
    stream = content["text/event-stream"]
    schemas = {
        one["properties"]["event"]["const"]: one["properties"]["data"]["contentSchema"]
        for one in stream["x-itemSchema"]["oneOf"]
    }
    shown = [example["value"].split("\n\n") for example in stream["examples"].values()]
    return schemas, [event for frames in shown for each in frames if (event := parse(each))]


def fits(data, schema, document):
    """Whether it has the shape, and no key that the schema does not name."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    choices = schema.get("oneOf") or schema.get("anyOf")
    if choices:
        return any(fits(data, one, document) for one in choices)
    if "const" in schema:
        return data == schema["const"]
    names = schema.get("type", [])
    kinds = tuple(TYPES[name] for name in ([names] if isinstance(names, str) else names))
    if kinds and not isinstance(data, kinds):
        return False
    if isinstance(data, list):
        return all(fits(one, schema["items"], document) for one in data)
    if isinstance(data, dict) and "properties" in schema:
        known = schema["properties"]
        return (
            set(schema["required"]) <= set(data) <= set(known)
            and all(fits(value, known[name], document) for name, value in data.items())
        )  # fmt: skip
    return True


@pytest.mark.parametrize("route", ["/chat/stream", "/chat/{session_id}/stream"])
async def test_the_examples_have_the_shapes_that_are_told(api, route):
    document = await read_document(api)
    schemas, shown = described(document, route)
    assert {event.event for event in shown} <= set(schemas)
    for event in shown:
        assert fits(event.data, schemas[event.event], document), event


@pytest.mark.parametrize("route", ["/chat/stream", "/chat/{session_id}/stream"])
@pytest.mark.parametrize("error", [None, "out of memory"])
@pytest.mark.parametrize("tools", [["add"], []])
async def test_what_is_sent_has_the_shapes_that_are_told(service, route, error, tools):
    api, ollama = service
    document = await read_document(api)
    settings = {"tools": tools, "execution_policy": "never_confirm"}
    session_id = await api.new_session(tool_settings=settings)
    if tools:
        ollama.reply(tool_calls=CALL)
    ollama.reply(["Fi", "ve."], error=error)
    body = {"message": "2+3?"}
    if route == "/chat/stream":
        body |= {"session_id": session_id, "selected_tools": tools}
    response = await api.post(route.format(session_id=session_id), body)
    schemas, _ = described(document, route)
    received = [event async for event in events(response.streaming_content)]
    assert len(received) >= 2
    for event in received:
        assert fits(event.data, schemas[event.event], document), json.dumps(event.data)


async def test_the_messages_of_the_reference_are_those_of_the_document(api):
    _, examples = described(await read_document(api), "/chat/stream")
    shown = [block.text for block in blocks(REFERENCE / "http-api.md") if block.language == "json"]
    messages = [json.loads(text) for text in shown if '"finished"' in text]
    assert messages == [event.data for event in examples if event.event == "message"]
