"""The examples of the OpenAPI document have the fields of what is really sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.agents import write_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.raw import events_of
from tests.support.server import Server, running_server
from tests.support.tools import write_tools

STREAM = "/api/v1/chat/{session_id}/stream"
OPTIONAL = {"code"}  # of a tool's result: only where the failure has a name
QUESTION = re.compile(r"conf_[0-9a-f]+")
ADD = '''
def add(a: int) -> str:
    """Add."""
    return str(a)


__all__ = ["add"]
'''


def fields(text: str) -> dict[str, set[str]]:
    """The keys of each event's data, one level into the context window."""
    found: dict[str, set[str]] = {}
    for event in events_of(text):
        found[event.event] = set(event.data) - OPTIONAL
        window = event.data.get("context_window", {})
        found[event.event] |= {f"context_window.{key}" for key in window}
    return found


async def confirmed_stream(server: Server) -> str:
    """A stream that asks about a call."""
    session_id = await server.new_session(tool_settings={"tools": ["add"]})
    path = f"{server.api}/chat/{session_id}"
    text, asked = "", None
    async with server.http.post(f"{path}/stream", json={"message": "Add."}) as response:
        async for part in response.content.iter_any():
            text += part.decode()
            if asked is None and (asked := QUESTION.search(text)):
                body = {"confirmation_id": asked[0], "approved": True}
                async with server.http.post(f"{path}/confirm-tool", json=body) as answer:
                    assert answer.status == 200, await answer.text()
    return text


async def agents_stream(server: Server, ollama: FakeOllama) -> str:
    """A stream with an agent that uses its tool."""
    ollama.reply(tool_calls=[{"name": "agent", "arguments": {"agent": "one", "instruction": "Go"}}])
    ollama.reply(["Plan."])
    ollama.reply(["I work."], tool_calls=[{"name": "work", "arguments": {}}])
    ollama.reply(["It works."])
    ollama.reply(["Done."])
    session_id = await server.new_session(
        tool_settings={"execution_policy": "never_confirm"},
        agent_settings={"enabled_agents": ["one"]},
    )
    url = f"{server.api}/chat/{session_id}/stream"
    async with server.http.post(url, json={"message": "Let it work."}) as response:
        return await response.text()


async def repaired_stream(server: Server, ollama: FakeOllama) -> str:
    """A stream with a reply that has not the form that was asked for."""
    for text in ("No.", "{}"):
        ollama.reply([text])
    session_id = await server.new_session()
    url = f"{server.api}/chat/{session_id}/stream"
    body = {"message": "Any object.", "response_format": {"type": "json_object"}}
    async with server.http.post(url, json=body) as response:
        return await response.text()


async def real_stream(ollama: FakeOllama, folder: Path) -> tuple[dict[str, Any], str]:
    """The OpenAPI document, and a stream with every kind of event."""
    ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 2}}])
    ollama.reply(["The", " answer"], thinking=["Hm"])
    ollama.reply(["The"], error="out of memory")
    ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 2}}])
    ollama.reply(["Done."])
    write_tools(folder / "tools", init=ADD)
    write_agent(folder / "agents" / "one")
    async with running_server(data_dir=folder, ollama=ollama) as server:
        one = await server.new_session()
        text = ""
        for ask in ("What is 2 + 3?", "And then?"):
            body = {"message": ask, "think": True}
            async with server.http.post(f"{server.api}/chat/{one}/stream", json=body) as response:
                text += await response.text()
        text += await confirmed_stream(server)
        text += await agents_stream(server, ollama)
        text += await repaired_stream(server, ollama)
        return (await server.get("/openapi.json"))[1], text


async def test_every_example_of_an_event_has_the_fields_of_a_real_one(tmp_path: Path) -> None:
    async with FakeOllama() as ollama:
        document, text = await real_stream(ollama, tmp_path)
    content = document["paths"][STREAM]["post"]["responses"]["200"]["content"]
    examples = content["text/event-stream"]["examples"].values()
    real = fields(text)
    assert len(real) == 18
    for example in examples:
        shown = fields(example["value"])
        assert shown == {name: real[name] for name in shown}


@pytest.mark.parametrize("place", ["context_window", "message", ""])
async def test_the_example_of_a_reply_has_the_fields_of_a_real_one(
    tmp_path: Path, ollama_url: str, place: str
) -> None:
    async with running_server(data_dir=tmp_path, ollama=ollama_url) as server:
        one = await server.new_session()
        _, real = await server.post(f"/chat/{one}", {"message": "Hello"})
        _, document = await server.get("/openapi.json")
    answer = document["paths"]["/api/v1/chat/{session_id}"]["post"]["responses"]["200"]
    shown = answer["content"]["application/json"]["example"]
    assert set(shown[place] if place else shown) == set(real[place] if place else real)


async def test_every_event_of_a_stream_has_the_documented_shape(tmp_path: Path) -> None:
    async with FakeOllama() as ollama:
        document, text = await real_stream(ollama, tmp_path)
    media = document["paths"][STREAM]["post"]["responses"]["200"]["content"]["text/event-stream"]
    schema = media["x-itemSchema"]
    parts = {"components": document["components"]}  # which the schemas refer to
    frame = jsonschema_rs.validator_for(schema | parts)
    data = {
        choice["properties"]["event"]["const"]: jsonschema_rs.validator_for(
            choice["properties"]["data"]["contentSchema"] | parts
        )
        for choice in schema["oneOf"]
    }
    for event in events_of(text):
        text_of_data = json.dumps(event.data)
        assert frame.is_valid({"id": event.id, "event": event.event, "data": text_of_data})
        assert data[event.event].is_valid(event.data)
        assert not data[event.event].is_valid({})
