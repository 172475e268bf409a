"""A way to Redis that a test can cut, also between a command and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tests.support.redis import Redis


class Line:
    """Connections to a Redis through a port of its own."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        self.refused = 0
        """How many connections were not made since."""
        self.is_mute = False
        """Whether connections break as soon as Redis answers: what was sent is executed."""
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
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._redis.port)
        except OSError:  # Redis is stopped
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
async def line_to(redis: Redis) -> AsyncIterator[Line]:
    line = Line(redis)
    server = await asyncio.start_server(line.open, "127.0.0.1", 0)
    line.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    try:
        yield line
    finally:
        server.close()
        line.cut()
        await server.wait_closed()
