"""A real browser, and a proxy in front of a server that cuts its connections."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

# The headless shell draws the page in the same way, with half of the CPU.
CHROMIUM = (
    shutil.which("chromium-headless-shell")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@asynccontextmanager
async def chromium(url: str, folder: Path) -> AsyncIterator[None]:
    """Show a page in a browser without a window, until the block ends."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        f"--user-data-dir={folder}",
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
        await process.wait()


class CuttingProxy:
    """Forwards each request on a connection of its own, and cuts what lasts too long.

    ``GET /page`` is answered with the page; what is sent to ``/report`` is the report.
    """

    def __init__(self, url: str, page: str, *, seconds: float) -> None:
        parts = urlsplit(url)
        self._upstream = (parts.hostname, parts.port)
        self._page = page.encode()
        self._seconds = seconds
        self.url = ""
        self.report: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers: list[tuple[str, int]] = []
        """The paths of what was forwarded, with the status of the answer once it has begun."""
        self.cuts = 0

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            if path == "/report":
                found = re.search(rb"(?i)content-length: *(\d+)", head)
                assert found is not None
                self.report.set_result(json.loads(await reader.readexactly(int(found[1]))))
            if path.split("?")[0] in {"/page", "/report", "/favicon.ico"}:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(self._page), self._page)
                )
                await writer.drain()
            else:
                head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"\r\nConnection: close", head)
                await self._forward(path, head, writer)
        writer.close()

    async def _forward(self, path: str, head: bytes, writer: asyncio.StreamWriter) -> None:
        answer, request = await asyncio.open_connection(*self._upstream)
        request.write(head)
        try:
            with anyio.fail_after(self._seconds):
                data = await answer.readuntil(b"\r\n")
                self.answers.append((path, int(data.split()[1])))
                while data:
                    writer.write(data)
                    await writer.drain()
                    data = await answer.read(65536)
        except TimeoutError:
            self.cuts += 1
            writer.transport.abort()
        finally:
            request.transport.abort()
