"""An MCP server for agents, made with the SDK: it writes, draws, asks, dies and hangs.

Its only argument is a file, in which it notes what it did.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode
from pathlib import Path

import anyio
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.context import Context
from mcp.types import ToolAnnotations

from tests.support.mcp_asking import server

PICTURE = b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAAC")


def note(text: str) -> None:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{text}\n")


@server.tool()
def save(text: str) -> str:
    """Save a text."""
    note(f"saved {text}")
    return f"saved {text} in {os.getpid()}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look() -> str:
    """Look who is there."""
    return str(os.getpid())


@server.tool()
async def draw(ctx: Context) -> Image:  # type: ignore[type-arg]
    """Draw a picture, once it was seen that this has begun."""
    await ctx.report_progress(0, 2, "line 0")
    while not Path(f"{sys.argv[1]}.seen").exists():  # noqa: ASYNC110 - made by the test
        await anyio.sleep(0.02)
    return Image(data=PICTURE, format="gif")


@server.tool()
def die() -> str:
    """Die."""
    os._exit(9)


@server.tool()
async def hang(ctx: Context) -> str:  # type: ignore[type-arg]
    """Hang until the call is cancelled."""
    await ctx.report_progress(0)
    try:
        await anyio.sleep_forever()
    finally:
        note("let go")


if __name__ == "__main__":
    server.run("stdio")
