"""Servers that start with 20 MCP servers, five of them broken, beside servers that have none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.mcp import Wire, tool, write_config
from tests.support.server import NOBODY, Server, running_server

GOOD = [f"s{number}" for number in range(15)]
TOOLS = 10
"""Of each good one."""
ROUNDS = int(os.environ.get("MOCHI_START_ROUNDS", "2"))
SECONDS = 60
LIST_BAR_SECONDS = 0.1
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

pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.timeout(300)]


@dataclass
class Starts:
    """What the starts on one data folder took, in seconds."""

    folder: Path
    health: list[float] = field(default_factory=list)
    """Until the server answered ``/health``."""
    tools: list[float] = field(default_factory=list)
    """The first ``GET /tools``."""

    async def measure(self, states: Mapping[str, tuple[str, str | None]] | None = None) -> None:
        began = time.perf_counter()
        async with running_server(data_dir=self.folder) as server:
            self.health.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert (await server.get("/tools"))[0] == 200
            self.tools.append(time.perf_counter() - began)
            if states is not None:
                await seen(server, states)
            await server.stop(signal.SIGKILL)


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


def configured(folder: Path, start: str) -> Starts:
    folder.mkdir()
    servers: dict[str, Any] = {}
    for name in GOOD:
        wire = Wire(folder / name, tools=[tool(f"t{at}") for at in range(TOOLS)])
        servers[name] = wire.entry(start=start)
    broken = {name: {**entry, "mochi": {"start": start}} for name, entry in BROKEN.items()}
    write_config(folder, **servers, **broken)
    return Starts(folder)


async def test_the_start_does_not_wait_for_20_servers(tmp_path: Path) -> None:
    """Neither for those that are started with it; the best of interleaved starts are compared."""
    (tmp_path / "none").mkdir()
    none = Starts(tmp_path / "none")
    every = [configured(tmp_path / start, start) for start in ("lazy", "eager")]
    states = dict.fromkeys(GOOD, ("ready", None)) | ENDS
    for number in range(ROUNDS):
        await none.measure()
        for each in every:  # in the first round nothing is known, so lazy ones are started, too
            await each.measure(states if number == 0 else None)
    for starts in (none, *every):
        print(starts)  # noqa: T201 - figures of a measurement
        assert min(starts.health) < 2 * min(none.health)
        assert min(starts.tools) < LIST_BAR_SECONDS
