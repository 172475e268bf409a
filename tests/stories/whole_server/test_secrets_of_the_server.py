"""What a tool of a real server sees of the environment of others, and of the server's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.tools import write_tools

pytestmark = pytest.mark.usefixtures("fresh_servers")

TOOLS = '''
import glob
import os
import socket
from pathlib import Path

__all__ = ["names", "peek", "search", "sockets"]
__destructive__ = []


def names() -> list[str]:
    """Name the variables."""
    return sorted(os.environ)


def peek() -> str:
    """Read the environment of the process that started this one."""
    return Path(f"/proc/{os.getppid()}/environ").read_text()


def search(word: str) -> list[str]:
    """Name the processes that have a word, here written backwards, among their variables."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            if word[::-1] in Path(path, "environ").read_text(errors="replace"):
                found.append(Path(path, "cmdline").read_text())
        except OSError:
            continue
    return found


def sockets() -> list[str]:
    """Name the sockets that are open here and listen."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as each:
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.append(str(each.getsockname()))
        except OSError:
            continue
    return found
'''
AS_AN_ORDINARY_USER = (
    "import ctypes, os, sys\n"
    "for right in range(64): ctypes.CDLL(None).prctl(24, right, 0, 0, 0)\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'mochi_server', '--port', '0', *sys.argv[1:]])"
)
"""Root could read everything: PR_CAPBSET_DROP, and what is started has no such right."""


async def result_of(
    server: Server, ollama: FakeOllama, name: str, **arguments: Any
) -> dict[str, Any]:
    policy = {"tools": [name], "execution_policy": "never_confirm"}
    session = await server.new_session(tool_settings=policy)
    ollama.reply(tool_calls=[{"name": name, "arguments": arguments}])
    ollama.reply(["Well."])
    stream = server.stream(f"/chat/{session}/stream", {"message": "Look."})
    (found,) = [event.data async for event in stream if event.event == "tool_result"]
    return found


async def test_tools_get_a_few_variables_and_those_that_are_named(
    tmp_path: Path, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "WEATHER_KEY", "TZ"):
        monkeypatch.setenv(name, "UTC")
    write_tools(tmp_path / "tools", init=TOOLS)
    async with running_server(
        data_dir=tmp_path, ollama=ollama, api_token="", tool_env="WEATHER_KEY,MISSING"
    ) as server:
        found = set(json.loads((await result_of(server, ollama, "names"))["result"]))
    assert {"PATH", "HOME", "TZ", "WEATHER_KEY"} <= found
    assert not found & {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "MISSING"}
    assert not [name for name in found if name.startswith("MOCHI_")]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_a_tool_cannot_read_the_environment_of_the_server(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    write_tools(tmp_path / "tools", init=TOOLS)
    async with running_server(
        data_dir=tmp_path, ollama=ollama, command=("-c", AS_AN_ORDINARY_USER)
    ) as server:
        found = await result_of(server, ollama, "peek")
    assert not found["success"], "it has read the variables"
    assert "Permission" in found["error_message"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_tools_of_several_workers_have_neither_their_variables_nor_their_sockets(
    tmp_path: Path, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tools(tmp_path / "tools", init=TOOLS)
    secret = uuid4().hex
    monkeypatch.setenv("WEATHER_KEY", secret)
    async with running_server(
        data_dir=tmp_path,
        ollama=ollama,
        command=("-c", AS_AN_ORDINARY_USER),
        arguments=("--workers", "2"),
    ) as server:
        variables = await result_of(server, ollama, "search", word=secret[::-1])
        sockets = await result_of(server, ollama, "sockets")
    assert (variables["result"], sockets["result"]) == ("[]", "[]")
