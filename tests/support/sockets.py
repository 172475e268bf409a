"""Clients of the WebSocket, by the library ``websockets``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from .server import Server

SECONDS = 60
"""Longest wait for a frame."""

Frame = dict[str, Any]


class SocketClient:
    """One socket; ``frames`` is all that it has received."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.frames: list[Frame] = []

    async def send(self, event: str, data: Mapping[str, Any] | None = None, **more: Any) -> None:
        content = {"event": event, **({} if data is None else {"data": data}), **more}
        await self.connection.send(json.dumps(content))

    async def next(self) -> Frame:
        """The next frame."""
        with anyio.fail_after(SECONDS):
            frame: Frame = json.loads(await self.connection.recv())
        self.frames.append(frame)
        return frame

    async def until(self, event: str, fits: Callable[[Frame], Any] = bool) -> Frame:
        """The next frame of an event, that fits."""
        while True:
            frame = await self.next()
            if frame["event"] == event and fits(frame):
                return frame

    async def ask(self, event: str, data: Mapping[str, Any] | None = None) -> Frame:
        """Send a frame, and return what answers it: ``reply`` or ``error``."""
        name = f"question {len(self.frames)}"
        await self.send(event, data, id=name)
        while (frame := await self.next()).get("reply_to") != name:
            pass
        return frame

    async def say(self, message: str, **options: Any) -> list[Frame]:
        """Send a message, and return the frames of its run."""
        reply = await self.ask("message", {"message": message, **options})
        assert reply["event"] == "reply", reply
        run_id = reply["data"]["run_id"]
        while not self.is_done(run_id):
            await self.next()
        return self.of_run(run_id)

    def of_run(self, run_id: str) -> list[Frame]:
        """The frames of a run so far."""
        return [frame for frame in self.frames if frame.get("run_id") == run_id]

    def is_done(self, run_id: str) -> bool:
        return any(frame["event"] == "done" for frame in self.of_run(run_id))

    async def closed(self) -> tuple[int, str]:
        """Read to the end, and return the code and the reason of the server."""
        try:
            while True:
                await self.next()
        except ConnectionClosed as closed:
            received = closed.rcvd
        assert received is not None, "the connection was cut"
        return received.code, received.reason


def address_of(server: Server, **query: str) -> str:
    url = f"{server.url.replace('http', 'ws', 1)}/ws/chat"
    return f"{url}?{urlencode(query)}" if query else url


@asynccontextmanager
async def socket(
    server: Server, *, options: Mapping[str, Any] | None = None, **query: str
) -> AsyncIterator[SocketClient]:
    """A socket that is connected, before its first frame; ``options`` are those of the library."""
    async with connect(address_of(server, **query), **(options or {})) as connection:
        yield SocketClient(connection)


@asynccontextmanager
async def ready_socket(server: Server, **query: str) -> AsyncIterator[SocketClient]:
    """A socket that has said that it is ready."""
    async with socket(server, **query) as client:
        assert (await client.next())["event"] == "system:ready"
        yield client


def events_of(frames: list[Frame]) -> list[str]:
    return [frame["event"] for frame in frames]


def text_of(frames: list[Frame]) -> str:
    """The text of an answer."""
    return "".join(f["data"]["content"] for f in frames if f["event"] == "content_delta")
