"""Streams byte by byte, and clients that behave badly."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from .sse import ServerEvent, parse
from .waiting import until

_ESTABLISHED = "01"


def request_bytes(host: str, path: str, body: Any, **headers: str) -> bytes:
    """A POST as it goes over the wire."""
    data = json.dumps(body).encode()
    lines = [
        f"POST /api/v1{path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


class RawClient:
    """One connection, without any HTTP library in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.port: int = writer.get_extra_info("sockname")[1]
        """Of this end."""

    @classmethod
    async def post(
        cls, url: str, path: str, body: Any, *, window: int | None = None, **headers: str
    ) -> RawClient:
        """Connect and send; ``window`` is the size of the receive buffer."""
        parts = urlsplit(url)
        sock = socket.socket()
        if window is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (parts.hostname, parts.port))
        limit = window or 2**16
        reader, writer = await asyncio.open_connection(sock=sock, limit=limit)
        client = cls(reader, writer)
        writer.write(request_bytes(parts.netloc, path, body, **headers))
        await writer.drain()
        return client

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case."""
        with anyio.fail_after(30):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.split("\r\n")[:-2]
        pairs = (line.split(":", 1) for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value.strip() for name, value in pairs}

    async def rest(self, seconds: float = 30) -> bytes:
        """Everything up to the end of the connection, as it came."""
        with anyio.fail_after(seconds):
            found = await self.reader.read()
        self.hang_up()
        return found

    def hang_up(self) -> None:
        """Leave without a word."""
        self.writer.transport.abort()


def frames_of(text: str) -> list[str]:
    """The blocks of an event stream."""
    assert text.endswith("\n\n"), repr(text[-40:])
    return text[:-2].split("\n\n")


def events_of(text: str) -> list[ServerEvent]:
    """The events of a whole stream."""
    return [event for frame in frames_of(text) if (event := parse(frame)) is not None]


async def dropped(*ports: int) -> None:
    """No socket of this machine is connected to one of these ports of ours any more."""
    await until(lambda: not _connected(set(ports)))


def _connected(ports: set[int]) -> bool:
    """Whether the kernel has an established connection whose other end is one of these."""
    fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        field[3] == _ESTABLISHED and int(field[2].rpartition(":")[2], 16) in ports
        for field in fields
    )
