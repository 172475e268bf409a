"""A client that begins a run at one server and goes on at another."""

from __future__ import annotations

import asyncio

import aiohttp
import anyio

from .server import Server
from .sse import ServerEvent, events
from .waiting import until


class RunReader:
    """Reads a run of a session; what it has of it is what a browser would have."""

    def __init__(self, session_id: str, run_id: str = "") -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.events: list[ServerEvent] = []
        self.said = asyncio.Event()
        """Set when the model has begun to speak."""
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        return "".join(e.data["content"] for e in self.events if e.event == "content_delta")

    @property
    def kinds(self) -> list[str]:
        return [event.event for event in self.events]

    async def has(self, kind: str) -> ServerEvent:
        """Wait for the first event of this kind."""
        while kind not in self.kinds:
            await self._more()
        return self.events[self.kinds.index(kind)]

    async def has_more(self, words: int) -> None:
        """Wait for so many more words."""
        end = len(self.text.split()) + words
        while len(self.text.split()) < end:
            await self._more()

    async def _more(self) -> None:
        self._changed.clear()
        with anyio.fail_after(60):
            await self._changed.wait()

    async def until_written(self, other: Server, words: int = 1) -> None:
        """Wait until so many words of the run would outlive its server; another one tells it."""
        await self.has("run_start")
        path = f"/runs/{self.run_id}"
        await until(lambda: other.get(path), lambda answer: answer[1]["tokens"] >= words)

    async def send(self, server: Server, message: str) -> None:
        """Send a message and read until the stream ends or the connection breaks."""
        path = f"{server.api}/chat/{self.session_id}/stream"
        try:
            async with server.http.post(path, json={"message": message}) as response:
                assert response.status == 200, await response.text()
                self.run_id = response.headers["X-Run-Id"]
                await self._read(response)
        except (aiohttp.ClientError, OSError):
            pass

    async def go_on(self, server: Server) -> int:
        """Read the rest, which may be at another server; the status of the answer.

        Without the id of the run, read the session's last one.
        """
        path = f"/runs/{self.run_id}/events" if self.run_id else f"/chat/{self.session_id}/stream"
        headers = {"Last-Event-ID": str(self.events[-1].id)} if self.events else {}
        async with server.http.get(server.api + path, headers=headers) as response:
            if response.status == 200:
                await self._read(response)
            return response.status

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        async for event in events(response.content.iter_any()):
            self.events.append(event)
            self._changed.set()
            if event.event == "run_start":
                self.run_id = event.data["run_id"]
            elif event.event == "content_delta":
                self.said.set()

    def check_whole(self) -> None:
        """It has the run from its first event to its last, and nothing twice."""
        numbers = [int(event.id or 0) for event in self.events]
        assert numbers == sorted(set(numbers))
        assert self.kinds[0] == "run_start"
        assert self.kinds[-1] == "done"
        assert self.kinds.count("run_start") == self.kinds.count("done") == 1
