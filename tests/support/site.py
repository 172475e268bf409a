"""A server that many tests share, and the Ollama behind it.

In a module whose tests run in one loop::

    pytestmark = pytest.mark.asyncio(loop_scope="module")


    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def shared(tmp_path_factory):
        async with running_site(tmp_path_factory.mktemp("shared")) as site:
            yield site


    @pytest_asyncio.fixture(loop_scope="module")
    async def site(shared):
        async with shared.lent():
            yield shared

Sessions of other tests stay in it: a test asks only for its own ones.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fake_ollama import FakeOllama
from .server import Server, running_server


@dataclass
class Site:
    """A server, the Ollama behind it and its data folder."""

    server: Server
    ollama: FakeOllama
    folder: Path

    def stored(self, session: str) -> list[dict[str, Any]]:
        """The messages in the file of a session."""
        path = self.folder / "chat_sessions" / f"{session}.json"
        found: list[dict[str, Any]] = json.loads(path.read_bytes())["messages"]
        return found

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """For one test: the server must not have failed at its end; Ollama forgets the test."""
        yield
        await self.ollama.renew()
        for sign in ("Traceback", "never retrieved"):
            assert sign not in self.server.log, self.server.log


@asynccontextmanager
async def running_site(
    folder: Path, *, one_at_a_time: bool = True, **settings: Any
) -> AsyncIterator[Site]:
    """A server process with these settings of `running_server`; the Ollama is in this process."""
    async with (
        FakeOllama(one_at_a_time=one_at_a_time) as ollama,
        running_server(data_dir=folder, ollama=ollama, **settings) as server,
    ):
        yield Site(server, ollama, folder)
