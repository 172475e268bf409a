"""The programs of the page about clients, each run against a real server."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from tests.support.scripts import says, scripted
from tests.support.server import ROOT, Server, running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = ROOT / "docs" / "how-to" / "write-a-client.md"
PROGRAM = re.compile(r"(?ms)^## (\w+), ([^\n]+)\n.*?^```(python|javascript)\n(.*?)^```")
PROGRAMS = [found.groups() for found in PROGRAM.finditer(PAGE.read_text())]
MOST_LINES = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("data")
    settings = {"environment": "test", "test_words_per_second": 0}
    async with running_server(data_dir=folder, **settings) as running:
        yield running


async def test_there_are_four_short_programs() -> None:
    names = [(language, wire) for language, wire, _, _ in PROGRAMS]
    wires = ["server-sent events", "WebSocket"]
    assert names == [(language, wire) for language in ("Python", "JavaScript") for wire in wires]
    assert all(code.count("\n") <= MOST_LINES for *_, code in PROGRAMS)


each_program = pytest.mark.parametrize(
    ("wire", "language", "code"),
    [pytest.param(*rest, id=f"{name} {rest[0]}") for name, *rest in PROGRAMS],
)


async def run_program(
    server: Server, folder: Path, wire: str, language: str, code: str, *, model: str, message: str
) -> tuple[int | None, str, str]:
    """Run a program and return its exit code, its output and its errors."""
    path = folder / ("client.py" if language == "python" else "client.mjs")
    path.write_text(code)
    command = [sys.executable]
    if language == "javascript":
        node = shutil.which("node")
        if node is None:
            pytest.skip("node is not installed")
        command = [node, "--experimental-websocket"]
    base = server.url.replace("http", "ws", 1) if wire == "WebSocket" else server.url
    process = await asyncio.create_subprocess_exec(
        *(*command, str(path), base, model, message),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        with anyio.fail_after(60):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), error.decode()


@each_program
async def test_a_program_shows_the_answer(
    server: Server, tmp_path: Path, wire: str, language: str, code: str
) -> None:
    message = scripted([says("It scatters blue light.")])
    done = await run_program(
        server, tmp_path, wire, language, code, model="qwen3:14b", message=message
    )
    assert done[:2] == (0, "It scatters blue light."), done


@each_program
async def test_a_program_shows_why_a_request_is_refused_and_ends(
    server: Server, tmp_path: Path, wire: str, language: str, code: str
) -> None:
    _, out, error = await run_program(
        server, tmp_path, wire, language, code, model="preset/nobody", message="Hello"
    )
    assert out == ""
    assert "There is no preset named 'nobody'." in error
