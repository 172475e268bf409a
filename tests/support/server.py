"""A real server process for tests.

In tests::

    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        status, body = await server.get("/sessions")
        async for event in server.stream(f"/chat/{session_id}/stream", {"message": "Hi"}):
            ...
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from .forked import ForkedProcess, own_environment, start_python
from .sse import ServerEvent, events

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 150
STOP_SECONDS = 100
NOBODY = "http://127.0.0.1:9"
"""An address where no Ollama answers."""

LISTENS = re.compile(r"listens on (http://\S+)")


@dataclass
class Server:
    """A server that runs; ``output`` grows with what it prints (both streams)."""

    process: asyncio.subprocess.Process | ForkedProcess
    output: list[str] = field(default_factory=list)
    url: str = ""
    http: aiohttp.ClientSession = field(init=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return "".join(self.output)

    @property
    def api(self) -> str:
        return f"{self.url}/api/v1"

    async def request(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        """Status and JSON (None for an empty body) of one request below ``/api/v1``."""
        if body is not None:
            options["json"] = body
        async with self.http.request(method, self.api + path, **options) as response:
            content = await response.read()
            return response.status, await response.json() if content else None

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        return await self.request("POST", path, body, **options)

    async def new_session(self, model: str = "qwen3:14b", **fields: Any) -> str:
        status, session = await self.post("/sessions", {"model": model, **fields})
        assert status == 201, session
        return session["session_id"]

    async def stream(
        self, path: str, body: Any = None, **options: Any
    ) -> AsyncIterator[ServerEvent]:
        """The events of a stream; leaving the loop hangs up."""
        async with self.http.post(self.api + path, json=body or {}, **options) as response:
            assert response.status == 200, await response.text()
            async for event in events(response.content.iter_any()):
                yield event

    async def events(self, path: str) -> AsyncGenerator[ServerEvent, None]:
        """The same of a stream that goes on by itself."""
        async with self.http.get(self.api + path) as response:
            assert response.status == 200, await response.text()
            async for event in events(response.content.iter_any()):
                yield event

    async def saw(self, text: str, times: int = 1) -> None:
        """Wait until the server has printed this so many times."""
        with anyio.move_on_after(START_SECONDS):
            while self.log.count(text) < times:
                assert self.process.returncode is None, self.log
                await anyio.sleep(0.02)
        assert self.log.count(text) >= times, self.log

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the end; the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        with anyio.fail_after(STOP_SECONDS):
            return await self.process.wait()


def environment(**values: Any) -> dict[str, str]:
    """This process's environment without its ``MOCHI_`` variables, and with the given ones."""
    named = {f"MOCHI_{name.upper()}": str(value) for name, value in values.items()}
    return own_environment(os.environ) | named


def connector(**options: Any) -> aiohttp.TCPConnector:
    """Return a client's connections, which it closes before uvicorn would, after 5 s.

    Of our own command they live longer.
    """
    return aiohttp.TCPConnector(keepalive_timeout=2, **options)


@contextlib.asynccontextmanager
async def running_server(
    *,
    data_dir: Path | None,
    cwd: Path | None = None,
    ollama: Any = None,
    arguments: tuple[str, ...] = (),
    command: tuple[str, ...] = ("-m", "mochi_server", "--port", "0"),
    ready: re.Pattern[str] = LISTENS,
    **settings: Any,
) -> AsyncIterator[Server]:
    """``python -m mochi_server --port 0`` with these settings, until the block ends.

    ``ollama`` is an address or has one as ``url``. The built-in model is switched off unless
    ``models_dir`` says where it is, and so are summaries in the background. It runs in ``data_dir``
    unless ``cwd`` is given; where ``data_dir`` is None, nothing names the data folder. It is forked
    (:mod:`tests.support.forked`) unless the test uses the fixture ``fresh_servers``.
    """
    folder = cwd or data_dir
    assert folder is not None
    if data_dir is not None:
        settings["data_dir"] = data_dir
    settings.setdefault("summarization_enabled", False)
    settings.setdefault("compaction", False)
    settings.setdefault("models_dir", folder / "models")
    settings.setdefault("ollama_host", getattr(ollama, "url", ollama) or NOBODY)
    process = await start_python(
        *command,
        *arguments,
        cwd=folder,
        env=environment(**settings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    server = Server(process)
    reader = asyncio.ensure_future(_read(server))
    timeout = aiohttp.ClientTimeout(total=120)
    try:
        await _wait_for(server, ready)
        http = aiohttp.ClientSession(connector=connector(limit=0), timeout=timeout)
        async with http as server.http:
            yield server
    finally:
        if process.returncode is None:
            process.terminate()
            with anyio.move_on_after(STOP_SECONDS):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reader


async def _read(server: Server) -> None:
    assert server.process.stdout is not None
    while line := await server.process.stdout.readline():
        server.output.append(line.decode(errors="replace"))


async def _wait_for(server: Server, ready: re.Pattern[str]) -> None:
    found = None
    with anyio.move_on_after(START_SECONDS):
        while (found := ready.search(server.log)) is None:
            assert server.process.returncode is None, f"the server ended:\n{server.log}"
            await anyio.sleep(0.02)
    assert found is not None, f"the server is not ready:\n{server.log}"
    server.url = found.group(1)


@dataclass
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str


def run_and_list_modules(*arguments: str, cwd: Path) -> tuple[str, set[str]]:
    """Run a command that succeeds in a fresh process; its output, and the modules it imports."""
    program = (
        "import sys\n"
        "from mochi_server.__main__ import main\n"
        f"assert main({arguments!r}) == 0\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ended.stdout, set(ended.stderr.split())


async def run_command(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Ended:
    """Run ``python -m mochi_server`` to its end, bounded."""
    process = await start_python(
        "-m",
        "mochi_server",
        *arguments,
        cwd=cwd,
        env=env or environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        with anyio.fail_after(START_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())
