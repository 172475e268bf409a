from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.agents import AgentDefinition, AgentDiscoveryService
from mochi_server.server.initialise import initialise
from mochi_server.tools.base import ToolContext, ToolOutput
from mochi_server.tools.process.loader import ProcessLoader

Call = Callable[..., Awaitable[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder as ``mochi-server init`` writes it, for all tests."""
    folder = tmp_path_factory.mktemp("examples") / "data"
    initialise(folder)
    return folder


@pytest.fixture
def data(folder: Path) -> Path:
    """That folder without what other tests have written."""
    for name in ("workspace", "files"):
        shutil.rmtree(folder / name, ignore_errors=True)
    initialise(folder)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agents(folder: Path) -> AsyncIterator[dict[str, AgentDefinition]]:
    """The examples, as a server finds them."""
    loader = ProcessLoader()
    discovery = AgentDiscoveryService(folder / "agents", loader=loader, default_timeout=60)
    yield dict(await discovery.agents())
    await discovery.aclose()
    await loader.aclose()


@pytest.fixture
def call_of(agents: dict[str, AgentDefinition], data: Path) -> Callable[[str], Call]:
    """Calls the tools of one agent as a server does."""

    def of(agent: str) -> Call:
        async def call(name: str, /, **arguments: Any) -> str:
            tool = agents[agent].tools[name]
            given = await tool.validate(arguments)
            context = ToolContext(session_id="a1b2c3d4e5", tool_call_id="call_1")
            with anyio.fail_after(30):
                steps = [step async for step in tool.run(given, context)]
            assert isinstance(steps[-1], ToolOutput)
            return steps[-1].content

        return call

    return of
