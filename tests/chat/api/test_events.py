"""The OpenAPI document says of each event of a stream what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from mochi_project.runtime import get_runtime
from mochi_server.tools.mcp.servers import feed
from tests.docs.pages import REFERENCE, blocks
from tests.support.mcp import SECONDS, Wire, tool, write_config
from tests.support.sse import ServerEvent, events, parse
from tests.support.tools import write_tools
from tests.support.waiting import until

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


# Changes of MCP servers


pytestmark = pytest.mark.usefixtures("ollama_url")


async def test_servers_that_come_change_and_go_are_told(
    api: Any, mochi: Any, settings: Any, tmp_path: Path
) -> None:
    settings.MOCHI = mochi.model_copy(update={"api_token": SecretStr("token")})
    old = Wire(tmp_path / "old", tools=[tool("read")])
    write_config(mochi.data_dir, old=old.entry())
    response = await api.get("/mcp/events")
    received = events(response.streaming_content)

    async def until(kind: str, **data: Any) -> ServerEvent:
        with anyio.fail_after(SECONDS):
            async for event in received:
                if event.event == kind and event.data.items() >= data.items():
                    return event
        raise AssertionError("the stream has ended")

    new = Wire(tmp_path / "new", tools=[tool("read")])
    added = await api.post("/mcp/add", {"name": "new", "config": new.entry()})
    assert added.status_code == 201, added.content
    first = await until("mcp_added", server="new")
    if first.data["state"] != "ready":  # it starts as soon as it is added
        await until("mcp_state", server="new", state="ready", last_error=None)
    new.plan(start="exit")
    await api.post("/mcp/new/restart")
    await until("mcp_state", server="new", state="failed")
    write_config(mochi.data_dir, old=old.entry())  # as an editor, or another process, does
    await until("mcp_removed", server="new", state=None)
    old.plan(tools=[tool("read"), tool("write")])
    await api.post("/tools/reload")
    await until("tools_changed", server="old", state="ready")
    get_runtime().stop()
    with anyio.fail_after(SECONDS):
        assert [event async for event in received] == []


async def test_a_restart_between_two_looks_is_told(
    api: Any, mochi: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has asked in between believes that the server is starting."""
    settings.MOCHI = mochi.model_copy(update={"api_token": SecretStr("token")})
    monkeypatch.setattr(feed, "LOOK_SECONDS", 5.0)  # a restart takes less
    write_config(mochi.data_dir, wire=Wire(tmp_path / "wire", tools=[tool("read")]).entry())

    async def until_ready() -> None:
        await until(
            lambda: api.get("/mcp/servers"),
            lambda answer: answer.json()["servers"]["wire"]["state"] == "ready",
        )

    assert (await api.post("/mcp/wire/restart")).status_code == 200
    await until_ready()
    response = await api.get("/mcp/events")
    received = events(response.streaming_content)
    assert (await api.post("/mcp/wire/restart")).status_code == 200
    await until_ready()
    with anyio.fail_after(SECONDS):
        async for event in received:
            if event.event == "mcp_state" and event.data["state"] == "ready":
                break
        else:
            raise AssertionError("the stream has ended")
    get_runtime().stop()
