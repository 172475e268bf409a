"""A way to a server that a test can cut, also between a command and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tests.support.postgresql import PostgreSQL
from tests.support.redis import Redis


class Line:
    """Connections to a server through a port of its own."""

    def __init__(self, server: Redis | PostgreSQL) -> None:
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        self.refused = 0
        """How many connections were not made since."""
        self.is_mute = False
        """Whether connections break as soon as the server answers: what was sent is executed."""
        self.break_at = 0
        """How many answers from now on the next one that breaks its connection is; 0: none."""
        self.before_break: Callable[[], Awaitable[object]] | None = None
        """What happens between an answer that is lost and the break."""
        self.url = ""

    async def open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            self.refused += 1
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:  # it is stopped
            writer.close()
            return
        self._writers |= {writer, far_writer}
        await asyncio.gather(
            self._copy(reader, far_writer), self._copy(far_reader, writer, is_answer=True)
        )

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_answer: bool = False,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if is_answer and self._is_lost():
                    if self.before_break is not None:
                        await self.before_break()
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    def _is_lost(self) -> bool:
        if self.break_at:
            self.break_at -= 1
            return self.break_at == 0
        return self.is_mute

    def cut(self) -> None:
        """Break all connections, and let none be made."""
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self.is_cut = False


@asynccontextmanager
async def line_to(server: Redis | PostgreSQL) -> AsyncIterator[Line]:
    line = Line(server)
    listening = await asyncio.start_server(line.open, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    line.url = server.url.replace(f":{server.port}/", f":{port}/")
    try:
        yield line
    finally:
        listening.close()
        line.cut()
        await listening.wait_closed()
