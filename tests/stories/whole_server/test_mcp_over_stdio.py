"""``mochi-server mcp``: a client on standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.support.mcp_clients import ERAS, Person, text_of
from tests.support.mcp_http import request, write_mcp_tools
from tests.support.server import NOBODY, environment, run_command


def parameters(folder):
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "mochi_server", "--data-dir", str(folder), "mcp"],
        env=environment(ollama_host=NOBODY),
        cwd=folder,
    )


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_uses_it(tmp_path, era):
    write_mcp_tools(tmp_path)
    person = Person()
    with anyio.fail_after(90):
        server = parameters(tmp_path)
        async with Client(server, mode=era, elicitation_callback=person) as client:
            assert text_of(await client.call_tool("echo", {"text": "Hi"})) == "Hi"
            assert text_of(await client.call_tool("note", {"text": "one"})) == "noted"
            assert (await client.list_resources()).resources == []
    assert (tmp_path / "notes.txt").read_text() == "one\n"


async def test_only_the_protocol_is_on_standard_output(tmp_path):
    write_mcp_tools(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mochi_server", "--data-dir", str(tmp_path), "mcp"),
        cwd=tmp_path,
        env=environment(ollama_host=NOBODY),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    lines = [
        request("initialize", **hello, clientInfo={"name": "test", "version": "1"}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {**request("tools/call", name="echo", arguments={"text": "Hi"}), "id": 2},
    ]
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with anyio.fail_after(60):
            for line in lines:
                process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.write(b"rubbish\n")
            answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
            process.stdin.close()
            rest, log = await process.stdout.read(), (await process.stderr.read()).decode()
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "Hi"}]
    assert (code, rest) == (0, b"")
    assert "to standard output" in log
    assert "Traceback" not in log


async def test_it_says_what_it_cannot_serve(tmp_path):
    ended = await run_command("mcp", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "is no data folder of mochi-server" in ended.err
