"""A small HTTP/1.1 server on raw sockets: exact chunks, drops, resets, and who has gone."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 500: "Error"}


@dataclass
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes

    @property
    def body(self) -> Any:
        """The parsed JSON; None for an empty body."""
        return json.loads(self.raw) if self.raw else None


class Connection(asyncio.Protocol):
    """One client's connection; requests are answered one after the other."""

    def __init__(self, answer: Callable[[Request, Connection], Awaitable[None]]) -> None:
        self._answer = answer
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Event | None = None
        self._close_after = False
        self.transport: asyncio.Transport
        self.streaming = False
        self.gone: Callable[[], None] = lambda: None
        """Called when the client leaves in the middle of an answer."""
        self.closed: Callable[[], None] = lambda: None

    @property
    def answering(self) -> bool:
        """Whether a request is being answered."""
        return self._task is not None

    def stop(self) -> asyncio.Task[None] | None:
        """Drop the connection; the task that was answering is cancelled."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self.transport.abort()
        return task

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        if self._task is None and (request := self._take()) is not None:
            self._close_after = request.headers.get("connection", "").lower() == "close"
            self._task = asyncio.get_running_loop().create_task(self._run(request))

    async def _run(self, request: Request) -> None:
        try:
            await self._answer(request, self)
        finally:
            self._task = None
        if self._close_after:
            self.transport.close()
        self._next()

    def _take(self) -> Request | None:
        head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            taken = _dechunk(rest)
        else:
            length = int(headers.get("content-length", 0))
            taken = (rest[:length], length) if len(rest) >= length else None
        if taken is None:
            return None
        del self._buffer[: len(head) + 4 + taken[1]]
        method, target, _ = first.split(" ", 2)
        return Request(method, target.partition("?")[0], headers, taken[0])

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed()
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
            self.gone()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self._writable is not None:
            await self._writable.wait()

    def send(
        self, status: int, body: bytes, content_type: str | None, *, head: bool = False
    ) -> None:
        """A whole answer with its length; to a ``HEAD`` without the body."""
        headers = {"Content-Type": content_type} if content_type else {}
        self._head(status, headers | {"Content-Length": str(len(body))})
        if not head:
            self.transport.write(body)

    def start(self, status: int, headers: dict[str, str]) -> None:
        """The head of a chunked answer."""
        self.streaming = True
        self._head(status, headers | {"Transfer-Encoding": "chunked"})

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Date: {formatdate(usegmt=True)}")
        self.transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def chunk(self, data: bytes) -> None:
        """One HTTP chunk in one write."""
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        """The clean end of a chunked answer."""
        self.streaming = False
        self.transport.write(b"0\r\n\r\n")

    def cut(self, *, reset: bool = False) -> None:
        """Drop the connection without the end of the body."""
        self._task = None
        if reset:
            linger = struct.pack("ii", 1, 0)
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        else:
            self.transport.close()


def _dechunk(data: bytes) -> tuple[bytes, int] | None:
    body, position = b"", 0
    while True:
        end = data.find(b"\r\n", position)
        if end < 0:
            return None
        size = int(data[position:end].split(b";")[0], 16)
        if len(data) < end + 4 + size:
            return None
        body += data[end + 2 : end + 2 + size]
        position = end + 4 + size
        if size == 0:
            return body, position
