"""Calls every tool of MCP servers through runtimes; the conformance suite drives it.

    python client.py SOCKET

Who connects to the socket sends the address of a server and the scenario's context as JSON
(``scenario.py`` does), and gets what was said. A person opens each page of an authorization, and
accepts what is asked as it is. One process serves all scenarios, as a start takes longer than most,
and two at once: the suite begins all together, and some wait for a few seconds only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.mcp_server.direct_call import start_call
from mochi_server.protocol.events import ConfirmationRequired, ToolInputRequired, ToolResultReady
from mochi_server.tools.base import Tool
from tests.support.waiting import until

Say = Callable[[str], None]

AT_ONCE = asyncio.Semaphore(2)

SCHEMA_TOOL, SCHEMA_ECHO = "s__json_schema_2020_12_tool", "s__json_schema_echo"
"""The schema of one is to be sent back by a call of the other."""

VALUES: dict[str, Any] = {
    "integer": 1,
    "number": 1.5,
    "string": "text",
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def arguments_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Something that fits a simple schema."""
    properties = schema.get("properties", {})
    return {name: _value(prop) for name, prop in properties.items()}


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return VALUES[kind[0] if isinstance(kind, list) else kind]


def planned_calls(
    tools: dict[str, Tool], context: dict[str, Any]
) -> list[tuple[Tool, dict[str, Any]]]:
    """What is called: what the scenario names, else every tool once."""
    named = context.get("toolCalls")
    if SCHEMA_TOOL in tools:
        return [(tools[SCHEMA_ECHO], {"schema": tools[SCHEMA_TOOL].parameters})]
    if named is None:
        return [(tool, arguments_of(tool.parameters)) for tool in tools.values()]
    calls = [(tools.get(f"s__{each['name']}"), each.get("arguments", {})) for each in named]
    return [(tool, arguments) for tool, arguments in calls if tool is not None]


async def authorize(runtime: Runtime) -> None:
    """Open each page that the server wants to be opened, as a browser does."""
    opened: set[str] = set()
    async with httpx2.AsyncClient() as browser:
        while True:
            for status in await runtime.mcp.status():
                url = status.authorization_url
                if url is not None and url not in opened:
                    opened.add(url)
                    page = await browser.get(url)
                    answer = dict(parse_qsl(urlsplit(page.headers["location"]).query))
                    state = answer.pop("state", "")
                    await runtime.mcp.complete_authorization(state, {**answer})
            await anyio.sleep(0.02)


async def call(runtime: Runtime, tool: Tool, arguments: dict[str, Any], say: Say) -> bool:
    """Call a tool, and accept whatever is asked; return whether it succeeded."""
    _, reader = start_call(runtime, tool, arguments, model="", can_ask=True)
    is_success = False
    while (batch := await reader.next()) is not None:
        for _, event in batch:
            if isinstance(event, ConfirmationRequired | ToolInputRequired):
                content: Any = {} if isinstance(event, ToolInputRequired) else None
                decide = runtime.inbox.decide
                await decide(event.confirmation_id, approved=True, arguments=content)
            elif isinstance(event, ToolResultReady):
                is_success = event.success
                say(f"{tool.name}: {event.result or event.error_message}")
    reader.leave()
    return is_success


async def play(url: str, context: dict[str, Any], say: Say) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = {"mcpServers": {"s": {"url": url, "mochi": {"start": "eager"}}}}
        Path(folder, "mcp.json").write_text(json.dumps(config))
        async with Runtime(load_settings(data_dir=folder)) as runtime:
            person = asyncio.get_running_loop().create_task(authorize(runtime))
            with anyio.move_on_after(20):
                # Nothing waits for a server.
                while not (tools := dict((await runtime.tools.inventory()).tools)):
                    await anyio.sleep(0.05)
                    [status] = await runtime.mcp.status()
                    is_authorizing = runtime.mcp.is_authorizing("s")
                    if status.state == "failed" and not is_authorizing:
                        say(f"failed: {status.last_error}")
                        if "authoriz" in str(status.last_error) and status.connections == 0:
                            break
            for tool, arguments in planned_calls(tools, context):
                if not await call(runtime, tool, arguments, say):
                    with anyio.move_on_after(5):
                        await anyio.sleep(0.1)
                        await until(lambda: not runtime.mcp.is_authorizing("s"))
            person.cancel()
            for problem in runtime.tools.problems:
                say(str(problem))


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = json.loads(await reader.read())
    lines: list[str] = []
    failed = False
    try:
        async with AT_ONCE:
            await play(asked["url"], asked["context"], lines.append)
    except Exception:  # noqa: BLE001 - the suite is told
        failed = True
        lines.append(traceback.format_exc())
    writer.write(json.dumps({"failed": failed, "lines": lines}).encode())
    await writer.drain()
    writer.close()


async def main(path: str) -> None:
    server = await asyncio.start_unix_server(answer, path)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


asyncio.run(main(sys.argv[-1]))
