"""Whatever the server writes of conversations is for its owner alone, under any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.support.agents import write_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, environment, run_command, running_server


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
        assert ".mochi/confirmations" in found
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
