"""Clients that generators make of the OpenAPI document hold a conversation with a real server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from tests.support.fake_ollama import FakeOllama
from tests.support.server import ROOT, Server, running_server
from tests.support.tools import write_tools

CLIENTS = ROOT / "tests" / "clients"
TOKEN = "a-token-of-this-test"
LIMIT_SECONDS = 240
ADD = '''
def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


__all__ = ["add"]
'''

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_SECONDS)]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server that wants a token, has a tool, and whose model calls it first."""
    folder = tmp_path / "data"
    write_tools(folder / "tools", init=ADD)
    async with FakeOllama() as ollama:
        ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 2, "b": 3}}])
        ollama.reply(["It is ", "5."], eval_count=7)
        ollama.reply(["You are welcome."])
        ollama.reply(["Nothing ", "more."])
        async with running_server(data_dir=folder, ollama=ollama, api_token=TOKEN) as running:
            yield running


async def document_of(server: Server) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    status, document = await server.get("/openapi.json", headers=headers)
    assert status == 200
    found: dict[str, Any] = document
    return found


async def run(*command: str, cwd: Path, **variables: str) -> str:
    """Run a program to its end; what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()


TOLD = {
    "streamed": "It is 5.",
    "results": ["5"],
    "tokens": 7,
    "reply": "You are welcome.",
    "dropped": 0,
    "refused": "SESSION_NOT_FOUND",
    "title": "Sums",
    "uploaded": "a.txt",
    "pinned": True,
    "policy": "always_confirm",
    "called": ["add"],
}
ROLES = ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="openapi-python-client needs Python 3.11")
async def test_a_client_in_python_holds_a_conversation(server: Server, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(await document_of(server)))
    bin_ = Path(sys.executable).parent
    await run(
        str(bin_ / "openapi-python-client"),
        *("generate", "--path", "openapi.json", "--output-path", "generated"),
        *("--meta", "none", "--fail-on-warning"),
        cwd=tmp_path,
        PATH=f"{bin_}{os.pathsep}{os.environ['PATH']}",  # it formats by ruff
    )
    program = str(CLIENTS / "conversation.py")
    told = await run(
        sys.executable, program, server.url, TOKEN, cwd=tmp_path, PYTHONPATH=str(tmp_path)
    )
    assert json.loads(told) == TOLD | {
        "whole": "Nothing more.",
        "roles": [*ROLES, "user", "assistant"],
    }


@pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed"
)
async def test_a_client_in_typescript_holds_a_conversation(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "client"
    shutil.copytree(CLIENTS / "typescript", folder)
    (folder / "openapi.json").write_text(json.dumps(await document_of(server)))
    await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    programs = folder / "node_modules" / ".bin"
    await run(str(programs / "openapi-typescript"), "openapi.json", "-o", "api.d.ts", cwd=folder)
    await run(str(programs / "tsc"), "--project", ".", cwd=folder)
    told = await run("node", "conversation.js", server.url, TOKEN, cwd=folder)
    assert json.loads(told) == TOLD | {"roles": ROLES}
