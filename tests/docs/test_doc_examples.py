"""The examples of the OpenAPI document and of the HTTP reference are like what is really sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import pytest_asyncio

from tests.docs.pages import REFERENCE
from tests.support.agents import write_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.raw import events_of
from tests.support.server import Server, running_server
from tests.support.tools import write_tools

pytestmark = pytest.mark.asyncio(loop_scope="module")

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


Sent = tuple[dict[str, Any], str]
"""The OpenAPI document, and a stream with every kind of event."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sent(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    async with FakeOllama() as ollama:
        return await real_stream(ollama, tmp_path_factory.mktemp("sent"))


async def test_every_example_of_an_event_has_the_fields_of_a_real_one(sent: Sent) -> None:
    document, text = sent
    content = document["paths"][STREAM]["post"]["responses"]["200"]["content"]
    examples = content["text/event-stream"]["examples"].values()
    real = fields(text)
    assert len(real) == 18
    for example in examples:
        shown = fields(example["value"])
        assert shown == {name: real[name] for name in shown}


async def test_the_example_of_a_reply_has_the_fields_of_a_real_one(tmp_path: Path) -> None:
    async with FakeOllama() as ollama, running_server(data_dir=tmp_path, ollama=ollama) as server:
        one = await server.new_session()
        _, real = await server.post(f"/chat/{one}", {"message": "Hello"})
        _, document = await server.get("/openapi.json")
    answer = document["paths"]["/api/v1/chat/{session_id}"]["post"]["responses"]["200"]
    shown = answer["content"]["application/json"]["example"]
    assert set(shown) == set(real)
    for place in ("context_window", "message"):
        assert set(shown[place]) == set(real[place]), place


async def test_every_event_of_a_stream_has_the_documented_shape(sent: Sent) -> None:
    document, text = sent
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


API = REFERENCE / "http-api.md"
ADD_NUMBERS = '''
def add_numbers(a: float, b: float) -> str:
    """Add two numbers together.

    Args:
        a: The first number to add.
        b: The second number to add.
    """
    return str(a + b)

__all__ = ["add_numbers", "missing"]
__math__ = ["add_numbers"]
__destructive__ = []
'''


def example(route: str) -> Any:
    """The JSON that the page shows for a route."""
    _, _, rest = API.read_text("utf-8").partition(f"\n### {route}\n")
    found = re.search(r"```json\n(.*?)```", rest.split("\n### ")[0], re.DOTALL)
    assert found, route
    return json.loads(found[1])


def differences(shown: Any, real: Any, place: str = "") -> list[str]:
    """Keys that only one of the two has; a null, and an empty list, can be anything."""
    if isinstance(shown, dict) and isinstance(real, dict):
        odd = [f"{place}.{key}" for key in shown.keys() ^ real.keys()]
        both = shown.keys() & real.keys()
        return odd + [
            x for key in both for x in differences(shown[key], real[key], f"{place}.{key}")
        ]
    if isinstance(shown, list) and isinstance(real, list):
        return differences(shown[0], real[0], f"{place}[]") if shown and real else []
    if shown is None or real is None or isinstance(real, type(shown)):
        return []
    return [] if isinstance(shown, int | float) and isinstance(real, int | float) else [place]


async def use_tool(server: Server, ollama: FakeOllama) -> None:
    """A turn that calls the tool."""
    enabled = {"tools": ["add_numbers"], "execution_policy": "never_confirm"}
    ollama.reply(tool_calls=[{"name": "add_numbers", "arguments": {"a": 1, "b": 2}}])
    one = await server.new_session(tool_settings=enabled)
    await server.post(f"/chat/{one}", {"message": "What is 1 + 2?"})


async def test_every_example_has_the_keys_of_a_real_answer(tmp_path: Path) -> None:
    (tmp_path / "chat_sessions").mkdir()
    (tmp_path / "chat_sessions" / "notes.json").write_text("not JSON")
    write_tools(tmp_path / "tools", init=ADD_NUMBERS)
    write_agent(tmp_path / "agents" / "coder")
    async with FakeOllama() as ollama, running_server(data_dir=tmp_path, ollama=ollama) as server:
        prompt = {"filename": "helpful.md", "content": "You are a helpful assistant."}
        await server.post("/system-prompts", prompt)
        body = {"model": "qwen3:14b", "system_prompt_source_file": "helpful.md"}
        _, created = await server.post("/sessions", body)
        one = created["session_id"]
        _, reply = await server.post(f"/chat/{one}", {"message": "Hello"})
        await use_tool(server, ollama)
        real = {
            "POST /api/v1/sessions": created,
            "POST /api/v1/chat/{session_id}": reply,
            "POST /api/v1/chat": (await server.post("/chat", {"message": "Hi", "session_id": one}))[
                1
            ],
            "GET /api/v1/agents": (await server.get("/agents"))[1],
            "GET /api/v1/health": (await server.get("/health"))[1],
            "GET /api/v1/models": (await server.get("/models"))[1],
            "GET /api/v1/sessions": (await server.get("/sessions"))[1],
            "GET /api/v1/sessions/{session_id}/status": (
                await server.get(f"/sessions/{one}/status")
            )[1],
            "GET /api/v1/tools": (await server.get("/tools"))[1],
            "GET /api/v1/tools/stats": (await server.get("/tools/stats"))[1],
            "GET /api/v1/tools/{tool_name}": (await server.get("/tools/add_numbers"))[1],
            "GET /api/v1/system-prompts": (await server.get("/system-prompts"))[1],
        }
    assert {
        route: found
        for route, answer in real.items()
        if (found := differences(example(route), answer))
    } == {}
