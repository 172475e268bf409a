"""A Redis server of a test's own: on a free port, in memory only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

PROGRAM = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(PROGRAM is None, reason="there is no redis-server")

START_SECONDS = 100


_END_OF_LEASE = (
    "local left = redis.call('PTTL', KEYS[1]) if left < 0 then return 0 end "
    "local now = redis.call('TIME') return now[1] * 1000 + math.floor(now[2] / 1000) + left"
)
"""Milliseconds of the clock; 0 if there is none. Redis 6 has no command for it."""


_given: set[int] = set()
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8


def free_port() -> int:
    """One that nobody else is given in this run of the tests, so that it is free after a stop, too.

    Nor does the system give it to anybody by itself.
    """
    chance = random.SystemRandom()  # the other one begins anew, the same in each worker
    while True:
        port = chance.randrange(15_000 + 2_000 * _WORKER, 17_000 + 2_000 * _WORKER)
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            return port


PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")
"""Options with which it has all that it knew after a restart."""


class Redis:
    """A server that can be stopped and started again on its port; what it knew is gone then."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        assert PROGRAM is not None
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self.options]
        self._process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *arguments,
            cwd=self.folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        with anyio.fail_after(START_SECONDS):
            while not await self._answers():
                assert self._process.returncode is None, "redis-server ended"
                await anyio.sleep(0.02)

    async def _answers(self) -> bool:
        try:
            return await self.command("PING") == b"+PONG\r\n"
        except OSError:
            return False

    async def command(self, line: str) -> bytes:
        """The raw answer to one command, as far as it comes at once."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{line}\r\n".encode())
            with anyio.fail_after(30):
                return await reader.read(1 << 20)
        finally:
            writer.close()
            await writer.wait_closed()

    async def keys(self) -> list[str]:
        """Every key that it holds."""
        words = (await self.command("KEYS *")).decode().split("\r\n")
        return [word for word in words if word and word[0] not in "*$"]

    async def until_renewed(self, key: str, lease_seconds: float) -> None:
        """Wait until the end of a lease has moved on before it had come."""
        end = 0.0
        with anyio.fail_after(30):
            while True:
                answer = await self.command(f'EVAL "{_END_OF_LEASE}" 1 {key}')
                last, end = end, int(answer.decode().strip(":\r\n")) / 1000
                if last < end < last + lease_seconds:
                    return
                await anyio.sleep(0.02)

    @property
    def is_stopped(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def hang(self) -> None:
        """Let it accept connections, and answer nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> None:
        """End it at once; open connections break."""
        if self._process is not None and not self.is_stopped:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def running_redis(folder: Path, *options: str) -> AsyncIterator[Redis]:
    """A server until the block ends."""
    redis = Redis(folder, *options)
    try:
        await redis.start()
        yield redis
    finally:
        await redis.stop()
