"""``mcp list|add|remove|test``."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from django.core.management import CommandError, call_command

from tests.support.guarded import guarded
from tests.support.mcp import SECONDS, Wire, tool, write_config
from tests.support.redis import free_port
from tests.support.server import Ended, environment, run_command


async def mcp(folder: Path, *arguments: str) -> Ended:
    return await run_command("mcp", *arguments, cwd=folder, env=environment(data_dir=folder))


async def test_the_command_named_by_add_works_as_it_is(tmp_path: Path) -> None:
    added = await run_command(
        *("--data-dir", "my data", "mcp", "add", "a", "--", "no-such-program"), cwd=tmp_path
    )
    assert added.code == 0, added.err
    words = shlex.split(added.out.partition("Try it: ")[2])
    assert words[-5:] == ["--data-dir", "my data", "mcp", "test", "a"]


async def test_a_server_is_added_listed_and_removed(tmp_path: Path) -> None:
    added = await mcp(
        tmp_path,
        *("add", "time", "--env", "KEY=secret", "--trusted"),
        *("--", "uvx", "mcp-server-time", "--token", "secret", "a b"),
    )
    assert added.code == 0, added.err
    assert added.out.startswith("Added time. Try it: ")
    await mcp(tmp_path, "add", "web", "--header", "X-Key: secret", "https://a.example/mcp")
    stored = json.loads((tmp_path / "mcp.json").read_text())
    assert stored == {
        "mcpServers": {
            "time": {
                "command": "uvx",
                "args": ["mcp-server-time", "--token", "secret", "a b"],
                "env": {"KEY": "secret"},
                "mochi": {"trusted": True},
            },
            "web": {"url": "https://a.example/mcp", "headers": {"X-Key": "secret"}},
        }
    }
    stored["mcpServers"] |= {"off": {"command": "x", "disabled": True}, "bad": 1}
    (tmp_path / "mcp.json").write_text(json.dumps(stored))
    listed = await mcp(tmp_path, "list")
    assert listed.out.splitlines() == [
        "NAME  TYPE   ENABLED  TRUSTED  COMMAND OR ADDRESS",
        "time  stdio  yes      yes      uvx mcp-server-time --token … 'a b'",
        "web   http   yes      no       https://a.example/mcp",
        "off   stdio  no       no       x",
    ]
    assert "problem: " in listed.err
    assert "The server 'bad' cannot be used: it is no object." in listed.err
    printed = await mcp(tmp_path, "list", "--json")
    assert json.loads(printed.out)["servers"]["web"] == {
        "url": "https://a.example/mcp",
        "headers": {"X-Key": "…"},
    }
    removed = await mcp(tmp_path, "remove", "web")
    assert (removed.code, removed.out) == (0, "Removed web.\n"), removed.err
    assert "web" not in json.loads((tmp_path / "mcp.json").read_text())["mcpServers"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["add", "time", "--", "uvx"], "There is an MCP server 'time' already."),
        (["add", "a b", "--", "uvx"], "a name has letters, digits"),
        (["add", "a", "http://a.example", "b"], "An address stands alone"),
        (["add", "a", "--env", "KEY", "--", "uvx"], "env: each is a name, '=' and a value."),
        (["add", "a", "--type", "http", "--", "uvx"], "needs 'url'"),
        (["remove", "none"], "There is no MCP server 'none'."),
        (["test", "none"], "There is no MCP server 'none' to start."),
        (["test", "off"], "It is disabled."),
    ],
)
def test_what_is_not_possible_is_said(mochi: Any, arguments: list[str], text: str) -> None:
    off = {"command": "x", "disabled": True}
    path = write_config(mochi.data_dir, time={"command": "x"}, off=off)
    before = path.read_bytes()
    with pytest.raises(CommandError) as failed:
        call_command("mcp", *arguments)
    assert failed.value.returncode == 1
    assert text in str(failed.value)
    assert path.read_bytes() == before


async def test_a_server_is_tried(tmp_path: Path) -> None:
    wire = Wire(tmp_path / "wire.json", tools=[tool("read", "Read\x1b it.")])
    other = Wire(tmp_path / "other.json")
    write_config(tmp_path, wire=wire.entry(), other=other.entry())
    ended = await mcp(tmp_path, "test", "wire")
    assert ended.code == 0, ended.err
    first, second, *rest = ended.out.splitlines()
    assert first == "wire: ready. It is wire 1, and speaks MCP 2025-06-18."
    assert re.fullmatch(r"1 tool, listed within \d+(\.\d)? ms\.", second)
    assert rest[:2] == ["TOOL  DESCRIPTION", "read  Read  it."]
    assert other.pids == []
    report = json.loads((await mcp(tmp_path, "test", "wire", "--json")).out)
    assert (report["state"], report["tools"], report["last_error"]) == ("ready", ["read"], None)


async def test_a_server_that_fails_shows_why(tmp_path: Path) -> None:
    wire = Wire(tmp_path / "wire.json", start="exit")
    write_config(tmp_path, wire=wire.entry())
    ended = await mcp(tmp_path, "test", "wire")
    assert ended.code == 1
    assert ended.out.startswith("wire: failed: ")
    assert "no, I am not" in ended.err


async def test_a_person_can_authorize_while_the_command_waits(tmp_path: Path) -> None:
    async with guarded() as server, aiohttp.ClientSession() as http:
        write_config(tmp_path, guarded={"url": server.url})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mochi_server", "mcp", "test", "guarded"),
            cwd=tmp_path,
            env=environment(data_dir=tmp_path, port=free_port()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        with anyio.fail_after(SECONDS):
            page = ""
            while not page.startswith("http"):
                page = (await process.stderr.readline()).decode().strip()
            async with http.get(page, allow_redirects=False) as response:
                back = response.headers["Location"]
            async with http.get(back.replace("state=", "state=x")) as response:
                assert response.status == 400
            async with http.get(back) as response:
                assert response.status == 200
            out, _ = await process.communicate()
        assert process.returncode == 0
        assert out.decode().startswith("guarded: ready. It is guarded")
        assert (await mcp(tmp_path, "remove", "guarded")).code == 0
        assert json.loads((tmp_path / ".mochi" / "mcp-oauth.json").read_text()) == {}
