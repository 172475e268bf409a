"""Prompts and resources of a server of the SDK, which speaks today's protocol."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mochi_server.errors import AttachmentUnsupported, McpResourceNotFound, McpServerFailed
from mochi_server.sessions.attachments import AttachmentReader
from mochi_server.tools.mcp.prompts import McpPrompts
from mochi_server.tools.mcp.resources import McpResources
from tests.support.mcp import Wire, mcp_source, tool, write_config
from tests.support.waiting import until

SERVER = """
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk")


@server.prompt()
def guide(city: str, style: str = "short") -> str:
    return f"You are a guide to {city}: {style}."


@server.resource("docs://{name}/page")
def page(name: str) -> str:
    return f"Page {name}"


@server.resource("docs://png", mime_type="image/png")
def png() -> bytes:
    return b"PNG\\0"


@server.resource("docs://broken")
def broken() -> str:
    raise RuntimeError("broken")


@server.tool()
async def grow(context: Context) -> str:
    server.prompt(name="late")(lambda: "Late.")
    await context.notify_prompts_changed()
    return "grown"


server.run()
"""


async def test_prompts_and_resources_of_todays_protocol(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    write_config(tmp_path, sdk={"command": sys.executable, "args": [str(file)]})
    async with mcp_source(tmp_path) as source:
        prompts = McpPrompts(source.servers)
        resources = McpResources(source.servers, AttachmentReader(max_bytes=1_000_000))
        guide = await prompts.get("sdk__guide")
        assert [(each.name, each.required) for each in guide.described.arguments] == [
            ("city", True),
            ("style", False),
        ]
        assert await prompts.text(guide, {"city": "Rome"}) == "You are a guide to Rome: short."

        page = await resources.list("sdk")
        assert [each.uri for each in page.templates] == ["docs://{name}/page"]
        found = await resources.read("sdk", "docs://one/page", session_id="s1")
        assert (found.content, found.name, found.server) == (b"Page one", "page", "sdk")
        for uri, error in (
            ("docs://nothing", McpResourceNotFound),
            ("docs://png", AttachmentUnsupported),
            ("docs://broken", McpServerFailed),
        ):
            with pytest.raises(error):
                await resources.read("sdk", uri, session_id="s1")

        assert await source.call("sdk__grow") == "grown"
        await until(prompts.list, lambda answer: len(answer) >= 2)
        [status] = await source.servers.status()
        assert status.protocol_version == "2026-07-28"


async def test_messages_that_are_no_blocks_of_the_protocol_are_shown(tmp_path: Path) -> None:
    contents = ["One.", {"type": "chart"}, {"type": "text", "text": "Two."}]
    messages = [{"role": "user", "content": content} for content in contents]
    wire = Wire(
        tmp_path / "plan",
        tools=[tool("t")],
        prompts=[{"name": "p.q"}, {"name": "p_q"}],
        results={"p.q": {"messages": messages}, "p_q": {"messages": None}},
    )
    write_config(tmp_path, s=wire.entry())
    async with mcp_source(tmp_path) as source:
        await source.tool("s__t")
        prompts = McpPrompts(source.servers)
        other, own = sorted(await prompts.list(), key=lambda each: each.described.name)
        assert own.name == "s__p_q"
        assert other.name.startswith("s__p_q_")
        assert await prompts.text(other, {}) == 'One.\n\n{"type":"chart"}\n\nTwo.'
        assert await prompts.text(own, {}) == ""
