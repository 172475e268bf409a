"""What the fakes of the vendors' services share: a socket, scripted answers, checked requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from .http_wire import Connection, Request

SSE = {"Content-Type": "text/event-stream; charset=utf-8"}


class Refused(Exception):
    """The request breaks a rule of the protocol; the text is the service's answer."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(kw_only=True)
class Script:
    """One answer of a service."""

    pieces: Sequence[bytes] = ()
    """Sent one write each."""
    status: int = 200
    body: Mapping[str, Any] | None = None
    """A whole answer instead of a stream."""
    headers: Mapping[str, str] = field(default_factory=dict)
    then: str = "end"
    """``end`` of the body, ``cut`` the connection, or ``hold`` it until the client goes."""


class FakeVendor:
    """A service on a socket; answers chats in order from ``scripts``, and keeps the requests."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.requests: list[Request] = []
        self.chats: list[dict[str, Any]] = []
        """Bodies of the chats, those that were refused included."""
        self.left = asyncio.Event()
        """Set when a client leaves in the middle of an answer."""
        self.url = ""
        self._connections: set[Connection] = set()

    async def __aenter__(self) -> FakeVendor:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = [task for c in self._connections if (task := c.stop()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connect(self) -> Connection:
        connection = Connection(self._answer)
        connection.gone = self.left.set
        self._connections.add(connection)
        return connection

    async def _answer(self, request: Request, connection: Connection) -> None:
        self.requests.append(request)
        try:
            found = self.route(request)
        except Refused as refused:
            found = Script(status=refused.status, body=self.error(refused.status, str(refused)))
        if found.body is not None:
            connection._head(found.status, self._headers(found))
            connection.transport.write(json.dumps(found.body).encode())
            return
        await self._stream(found, connection)

    @staticmethod
    def _headers(script: Script) -> dict[str, str]:
        length = str(len(json.dumps(script.body).encode()))
        return {"Content-Type": "application/json", "Content-Length": length, **script.headers}

    async def _stream(self, script: Script, connection: Connection) -> None:
        connection.start(script.status, {**SSE, **script.headers})
        for piece in script.pieces:
            connection.chunk(piece)
            await anyio.lowlevel.checkpoint()
        if script.then == "end":
            connection.finish()
        elif script.then == "cut":
            connection.cut()
        else:
            await asyncio.get_running_loop().create_future()

    def next_script(self, body: dict[str, Any]) -> Script:
        """What was queued first, for a request that keeps the rules."""
        self.chats.append(body)
        self.check(body)
        return self.scripts.pop(0)

    def check(self, body: dict[str, Any]) -> None:
        """Raise ``Refused`` for what the service would not take."""
        raise NotImplementedError

    def route(self, request: Request) -> Script:
        """The answer to a request."""
        raise NotImplementedError

    def error(self, status: int, text: str) -> dict[str, Any]:
        """The body of an error."""
        raise NotImplementedError


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
