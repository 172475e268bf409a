"""Start ``mcp_oauth_server``, an MCP server that wants OAuth."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from .redis import free_port
from .waiting import until

ROOT = Path(__file__).parents[2]
SECONDS = 60


class Guarded:
    """A running server, and what it has printed."""

    def __init__(self, url: str, process: asyncio.subprocess.Process) -> None:
        self.url = url
        self.process = process

    async def said(self, count: int) -> list[str]:
        """Return its next lines."""
        assert self.process.stdout is not None
        with anyio.fail_after(SECONDS):
            return [(await self.process.stdout.readline()).decode().strip() for _ in range(count)]


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def guarded(seconds: int = 3600) -> AsyncIterator[Guarded]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.mcp_oauth_server", str(port), str(seconds)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        await until(lambda: accepts(port))
        yield Guarded(f"http://127.0.0.1:{port}/mcp", process)
    finally:
        process.kill()
        await process.wait()
