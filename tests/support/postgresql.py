"""A PostgreSQL server of a test's own: on a free port, with a folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psycopg
import pytest

from tests.support.redis import free_port

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)

needs_postgresql = pytest.mark.skipif(PROGRAMS is None, reason="there is no PostgreSQL server")

START_SECONDS = 100

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # nobody pulls a plug in a test
    "shared_buffers": "16MB",
    "max_connections": "60",
    "timezone": "Asia/Tokyo",  # leases are over by instants, not by texts
}


class PostgreSQL:
    """A server that can be stopped and started again on its port, with what it knew."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        self.settings = {**SETTINGS, **settings}
        self.port = free_port()
        self.url = f"postgres://mochi@127.0.0.1:{self.port}/postgres"
        self._process: asyncio.subprocess.Process | None = None

    async def _run(self, name: str, *arguments: str) -> asyncio.subprocess.Process:
        """Start a program of PostgreSQL, which refuses to run as root."""
        assert PROGRAMS is not None
        user = "nobody" if os.geteuid() == 0 else None
        return await asyncio.create_subprocess_exec(
            PROGRAMS.with_name(name),
            *arguments,
            cwd=self.folder,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user is not None else None,
            extra_groups=[] if user is not None else None,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    async def initialise(self) -> None:
        data = str(self.folder / "data")
        options = ("--username=mochi", "--auth=trust", "--encoding=UTF8", "--no-sync")
        process = await self._run("initdb", "-D", data, *options)
        with anyio.fail_after(START_SECONDS):
            assert await process.wait() == 0, "initdb failed"
        with (self.folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all all trust\n")

    async def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        options += [f"--port={self.port}", f"--unix_socket_directories={self.folder}"]
        self._process = await self._run("postgres", "-D", str(self.folder / "data"), *options)
        with anyio.fail_after(START_SECONDS):
            while not await self._answers():
                assert self._process.returncode is None, "postgres ended"
                await anyio.sleep(0.05)

    async def _answers(self) -> bool:
        process = await self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q")
        return await process.wait() == 0

    async def query(self, statement: str) -> list[str]:
        """Return the first column of what is there."""
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            cursor = await connection.execute(statement.encode())
            return [str(row[0]) for row in await cursor.fetchall()]

    async def stop(self) -> None:
        """End it at once, as in a crash; open connections break."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGQUIT)
            with anyio.fail_after(START_SECONDS):
                await self._process.wait()

    @property
    def is_stopped(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def hang(self) -> None:
        """Let it and all its processes stand still; the kernel goes on accepting connections."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        pid = self._process.pid
        os.kill(pid, number)  # first, so that one which is to stop has no more children
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), number)


@contextlib.asynccontextmanager
async def running_postgresql(**settings: str) -> AsyncIterator[PostgreSQL]:
    """A server until the block ends."""
    # pytest's folders are for their owner alone, and the server is another user.
    folder = Path(tempfile.mkdtemp(prefix="mochi-postgresql-"))
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    server = PostgreSQL(folder, settings)
    try:
        await server.initialise()
        await server.start()
        yield server
    finally:
        server.resume()
        await server.stop()
        shutil.rmtree(folder)
