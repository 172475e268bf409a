"""Calls every tool of an MCP server through a runtime; the conformance suite drives it.

    python client.py URL

The scenario is in ``MCP_CONFORMANCE_SCENARIO``, what it wants to be sent in
``MCP_CONFORMANCE_CONTEXT``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.tools.base import Elicitation, ElicitationAnswer, Tool, ToolContext, ToolFailed

VALUES: dict[str, Any] = {
    "integer": 1,
    "number": 1.5,
    "string": "text",
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


class Person(ToolContext):
    """A caller whose person accepts what a tool asks, as it is."""

    async def elicit(self, tool: Tool, elicitation: Elicitation) -> Any:
        yield ElicitationAnswer("accept", {})


def arguments_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Something that fits a simple schema."""
    properties = schema.get("properties", {})
    return {name: _value(prop) for name, prop in properties.items()}


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return VALUES[kind[0] if isinstance(kind, list) else kind]


def planned_calls(tools: dict[str, Tool]) -> list[tuple[Tool, dict[str, Any]]]:
    """What is called: what the scenario names, else every tool once."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    named = context.get("toolCalls")
    if named is None:
        return [(tool, arguments_of(tool.parameters)) for tool in tools.values()]
    calls = [(tools.get(f"s__{each['name']}"), each.get("arguments", {})) for each in named]
    return [(tool, arguments) for tool, arguments in calls if tool is not None]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = {"mcpServers": {"s": {"url": url, "mochi": {"start": "eager"}}}}
        Path(folder, "mcp.json").write_text(json.dumps(config))
        async with Runtime(load_settings(data_dir=folder)) as runtime:
            with anyio.move_on_after(20):
                # Nothing waits for a server.
                while not (  # noqa: ASYNC110
                    tools := dict((await runtime.tools.inventory()).tools)
                ):
                    await anyio.sleep(0.05)
            for tool, arguments in planned_calls(tools):
                context = Person(session_id="a", tool_call_id="b")
                try:
                    run = tool.run(await tool.validate(arguments), context)
                    async with aclosing(run) as steps:
                        async for step in steps:
                            say(f"{tool.name}: {step}")
                except (ToolFailed, ValueError) as error:
                    say(f"{tool.name} failed: {error}")
            for problem in runtime.tools.problems:
                say(str(problem))


asyncio.run(main(sys.argv[-1]))
