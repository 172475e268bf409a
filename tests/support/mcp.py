"""MCP servers for tests: their configuration, and calls of their tools."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mochi_server.protocol.events import Event
from mochi_server.tools.base import ToolBegun, ToolContext, ToolOutput
from mochi_server.tools.mcp.config.file import McpConfigFile
from mochi_server.tools.mcp.oauth.authorizations import McpAuthorizations
from mochi_server.tools.mcp.servers.opening import TransportOpener
from mochi_server.tools.mcp.servers.registry import McpServers
from mochi_server.tools.mcp.source import McpSource, McpTool

from .server import Server
from .waiting import until

WIRE = Path(__file__).with_name("mcp_wire.py")
SECONDS = 60
"""Longest wait; the machine may be busy."""


class Wire:
    """A server of ``mcp_wire``: its plan, which may be changed while it runs, and what it noted."""

    def __init__(self, file: Path, **plan: Any) -> None:
        self.file = file
        self.plan(**plan)

    def plan(self, **plan: Any) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(plan))
        new.replace(self.file)

    def entry(self, **options: Any) -> dict[str, Any]:
        """Its entry in ``mcp.json``; with ``options`` as those of ours."""
        found = {"command": sys.executable, "args": [str(WIRE), str(self.file)]}
        return {**found, "mochi": options} if options else found

    @property
    def notes(self) -> list[dict[str, Any]]:
        log = Path(f"{self.file}.log")
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # not half a line

    @property
    def pids(self) -> list[int]:
        """Of its starts."""
        return [note["pid"] for note in self.notes if note.get("event") == "start"]

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note.get("method") == method]


def tool(name: str, description: str = "Does it.", /, **fields: Any) -> dict[str, Any]:
    """A tool as a server lists it, which takes ``text`` unless the fields say otherwise."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema, **fields}


def write_config(folder: Path, **servers: Any) -> Path:
    path = folder / "mcp.json"
    folder.mkdir(exist_ok=True)
    new = folder / "mcp.json.new"
    new.write_text(json.dumps({"mcpServers": servers}))
    new.replace(path)
    return path


async def known_to(server: Server, *names: str) -> None:
    """Wait for tools that servers list when they start, as a turn does for a while only."""

    async def are_known() -> bool:
        _, answer = await server.get("/tools")
        return {*names} <= answer["tools"].keys()

    await until(are_known)


class Source(McpSource):
    """A source with what tests want to know."""

    async def tool(self, name: str) -> McpTool:
        """Wait for a tool that is known, or will be when no server starts any more.

        Raises:
            KeyError: There is none of this name.
        """

        async def is_settled() -> bool:
            await self.wait_for([name], None)
            starting = [each for each in await self.servers.status() if each.state == "starting"]
            return name in await self.names() or not starting

        await until(is_settled)
        return {tool.name: tool for tool in await self.tools()}[name]

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.tools()]

    async def listed(self, *names: str) -> None:
        """Wait until these are the names of all tools."""
        await until(self.names, lambda found: found == [*names])

    async def call(self, name: str, session_id: str = "s1", /, **arguments: Any) -> str:
        """Call a tool and return its result; ToolFailed as it is."""
        with anyio.fail_after(SECONDS):
            return await call(await self.tool(name), session_id, **arguments)


async def steps(
    tool: McpTool, session_id: str = "s1", /, **arguments: Any
) -> list[Event | ToolBegun | ToolOutput]:
    """Everything that a call yields."""
    context = ToolContext(session_id=session_id, tool_call_id="call_1")
    running = tool.run(await tool.validate(arguments), context)
    return [step async for step in running]


async def call(tool: McpTool, session_id: str = "s1", /, **arguments: Any) -> str:
    last = (await steps(tool, session_id, **arguments))[-1]
    assert isinstance(last, ToolOutput)
    return last.content


@asynccontextmanager
async def mcp_source(folder: Path, **options: Any) -> AsyncIterator[Source]:
    """The tools of the servers in the folder's ``mcp.json``; all are ended at the end."""
    options.setdefault("cache_folder", folder / "cache")
    persons = McpAuthorizations(folder / "state", redirect_url="http://localhost/callback")
    options.setdefault("authorizations", persons)
    names = {"variables", "working_dir", "authorizations"} & options.keys()
    opener = TransportOpener(**{name: options.pop(name) for name in names})
    file = McpConfigFile(folder / "mcp.json")
    source = Source(McpServers(file, opener, default_timeout=60, **options))
    try:
        yield source
    finally:
        with anyio.fail_after(SECONDS):
            await source.aclose()


def is_running(pid: int) -> bool:
    """Whether there is a process that is no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it has just gone, or there is no such folder on this system
        return not Path("/proc/self").exists()
