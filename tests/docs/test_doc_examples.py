"""The examples of the HTTP reference have the shape of what a server answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.docs.pages import REFERENCE
from tests.support.agents import write_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.tools import write_tools

API = REFERENCE / "http-api.md"
ADD = '''
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
    write_tools(tmp_path / "tools", init=ADD)
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
