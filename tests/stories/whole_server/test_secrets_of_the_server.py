"""What tools see of the server's environment, and others of the files that it writes."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from tests.support.agents import write_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, environment, run_command, running_server
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


@pytest.fixture
def _open_umask() -> Iterator[None]:
    """Nothing is taken from the modes that a program asks for; its children inherit that."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """The mode of everything below the folder, and of the folder itself."""
    return {
        str(path.relative_to(folder)): stat.filemode(path.lstat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }


def public(found: dict[str, str]) -> dict[str, str]:
    return {name: mode for name, mode in found.items() if mode not in {"drwx------", "-rw-------"}}


async def ask_an_agent(server: Server, data: Path) -> None:
    """Have every kind of file written; the modes while a question is open, and after it."""
    agents = {"enabled_agents": ["coder"]}
    tools = {"tools": [], "execution_policy": "always_confirm"}
    session = await server.new_session(agent_settings=agents, tool_settings=tools)
    async for event in server.stream(
        f"/chat/{session}/stream", {"message": "Do it, and say so when it is done."}
    ):
        if event.event != "tool_call_confirmation_required":
            continue
        found = modes(data)
        assert ".mochi/state.sqlite3" in found
        assert public(found) == {}
        body = {"confirmation_id": event.data["confirmation_id"], "approved": True}
        status, _ = await server.post(f"/chat/{session}/confirm-tool", body)
        assert status == 200
    assert (await server.get("/sessions?query=everything"))[0] == 200
    assert (await server.post(f"/sessions/{session}/summarize"))[0] == 200


@pytest.mark.usefixtures("_open_umask")
async def test_only_the_owner_can_read_what_the_server_and_its_commands_write(
    tmp_path: Path, ollama: FakeOllama
):
    data, agents = tmp_path / "new" / "data", tmp_path / "agents"
    write_agent(agents / "coder", tools=("work",))
    call = {"name": "agent", "arguments": {"agent": "coder", "instruction": "Work."}}
    ollama.reply(tool_calls=[call])
    ollama.reply(["A plan."])
    ollama.reply(tool_calls=[{"name": "work", "arguments": {}}])
    ollama.reply(["Worked."])
    ollama.reply(["That is everything."])
    named = {"data_dir": data, "agents_dir": agents}
    with anyio.fail_after(60):
        async with running_server(
            data_dir=tmp_path,
            ollama=ollama,
            agents_dir=agents,
            arguments=("--data-dir", str(data)),
        ) as server:
            await ask_an_agent(server, data)
    found = modes(data)
    assert sum(name.endswith(".json") for name in found) == 2  # of the session and of the agent
    assert any(name.endswith(".sqlite3") for name in found)
    assert public(found) == {}
    command = ("sessions", "export", "--all", "--output", str(tmp_path / "copies"))
    assert (await run_command(*command, cwd=tmp_path, env=environment(**named))).code == 0
    assert public(modes(tmp_path / "copies")) == {}
