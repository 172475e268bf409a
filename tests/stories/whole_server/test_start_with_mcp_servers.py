"""Servers that start with 20 MCP servers, five of them broken.

What that costs is measured by ``benchmarks/mcp_servers.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.mcp import Wire, tool, write_config
from tests.support.server import NOBODY, Server, running_server

GOOD = [f"s{number}" for number in range(15)]
TOOLS = 10
"""Of each good one."""
SECONDS = 100
BROKEN: Mapping[str, Mapping[str, Any]] = {
    "missing": {"command": "there-is-no-such-program"},
    "ends": {"command": "sh", "args": ["-c", "exit 3"]},
    "hangs": {"command": "sleep", "args": ["1000"]},
    "rubbish": {"command": "sh", "args": ["-c", "while echo hello; do sleep 0.01; done"]},
    "away": {"url": NOBODY},
}

ENDS = {
    "missing": ("failed", "there is no program 'there-is-no-such-program'"),
    "ends": ("failed", "its process ended with exit code 3"),
    "hangs": ("starting", None),
    "rubbish": ("starting", None),
    "away": ("failed", "All connection attempts failed"),
}
"""States and last errors of the broken ones."""

pytestmark = pytest.mark.slow


async def seen(server: Server, states: Mapping[str, tuple[str, str | None]]) -> None:
    """Wait until each server has been seen in its state, with its last error and its tools."""
    missing = dict(states)
    with anyio.fail_after(SECONDS):
        while missing:
            _, health = await server.get("/mcp/health")
            assert health["servers"].keys() == states.keys()
            for name, each in health["servers"].items():
                if missing.get(name) == (each["state"], each["last_error"]):
                    assert each["tools"] == (TOOLS if name in GOOD else 0)
                    del missing[name]
            await anyio.sleep(0.02)


@pytest.mark.parametrize("start", ["lazy", "eager"])
async def test_the_start_does_not_wait_for_20_servers(tmp_path: Path, start: str) -> None:
    """Also one that hangs, and one that never says anything that is MCP, hold up nobody."""
    servers: dict[str, Any] = {}
    for name in GOOD:
        wire = Wire(tmp_path / name, tools=[tool(f"t{at}") for at in range(TOOLS)])
        servers[name] = wire.entry(start=start)
    broken = {name: {**entry, "mochi": {"start": start}} for name, entry in BROKEN.items()}
    write_config(tmp_path, **servers, **broken)
    states = dict.fromkeys(GOOD, ("ready", None)) | ENDS
    async with running_server(data_dir=tmp_path) as server:
        assert (await server.get("/tools"))[0] == 200
        await seen(server, states)
    async with running_server(data_dir=tmp_path) as server:  # now it knows their tools
        status, body = await server.get("/tools")
        assert (status, len(body["tools"])) == (200, len(GOOD) * TOOLS)
