"""Servers over HTTP, by the SDK itself: they restart, forget sessions, and answer too much."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from mochi_server.tools.base import ToolFailed
from tests.support.mcp import SECONDS, mcp_source, write_config
from tests.support.mcp_http_server import Kind, http_server


@pytest.mark.parametrize("kind", ["modern", "sessions", "sse"])
async def test_a_server_may_restart_and_answer_too_much(kind: Kind, tmp_path: Path) -> None:
    async with http_server(kind) as server, mcp_source(tmp_path) as source:
        write_config(tmp_path, a=server.entry)
        assert await source.call("a__echo", text="one") == "one"
        with pytest.raises(ToolFailed, match=r"more than 1 MiB|larger than 10 MiB|exceeded"):
            await source.call("a__large", size=11 * 2**20)
        assert await source.call("a__echo", text="two") == "two"
        await server.stop()
        with pytest.raises(ToolFailed, match="The MCP server 'a' "):
            await source.call("a__echo", text="nobody is there")
        await server.start()
        with anyio.fail_after(SECONDS):
            while source.servers.servers["a"].is_waiting:  # noqa: ASYNC110 - nothing tells it
                await anyio.sleep(0.02)
        assert await source.call("a__echo", text="three") == "three"
        [status] = await source.servers.status()
        assert (status.state, status.last_error) == ("ready", None)
        assert server.calls == 3


@pytest.mark.parametrize("kind", ["modern", "sessions"])
async def test_a_server_that_has_forgotten_the_session_is_called_in_another(
    kind: Kind, tmp_path: Path
) -> None:
    async with http_server(kind) as server, mcp_source(tmp_path) as source:
        write_config(tmp_path, a=server.entry)
        assert await source.call("a__echo", text="one") == "one"
        await server.stop()
        await server.start()
        assert await source.call("a__echo", text="two") == "two"
        assert server.calls == 2


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from tests.support.mcp import mcp_source

async def main():
    async with mcp_source(Path(sys.argv[1])) as source:
        await source.tool("a__echo")
        texts = [f"{sys.argv[2]} {number}" for number in range(20)]
        print(json.dumps(await asyncio.gather(*(source.call("a__echo", text=t) for t in texts))))

asyncio.run(main())
"""


async def test_several_processes_use_one_server(tmp_path: Path) -> None:
    async with http_server("sessions") as server:
        write_config(tmp_path, a={**server.entry, "mochi": {"scope": "shared"}})
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, str(tmp_path), name), stdout=subprocess.PIPE
            )
            for name in ("one", "two")
        ]
        with anyio.fail_after(SECONDS):
            outputs = [(await each.communicate())[0] for each in processes]
        for name, output in zip(("one", "two"), outputs, strict=True):
            assert json.loads(output) == [f"{name} {number}" for number in range(20)]
        assert server.calls == 40
