"""MCP servers that their configuration confines."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.mcp import write_config
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.turns import Bench, bench
from tests.support.waiting import until


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Bench]:
    async with FakeOllama() as ollama, bench(tmp_path, ollama) as found:
        yield found


def entry(folder: Path, sandbox: str) -> dict[str, Any]:
    """A server that runs commands, as a server of somebody else might."""
    return {
        "command": sys.executable,
        "args": ["-I", "-m", "mochi_server.workspace", "."],
        "cwd": str(folder),
        "env": {"OWN": "value"},
        "mochi": {"sandbox": sandbox},
    }


async def run(engine: Bench, command: str) -> str:
    server = (await engine.runtime.mcp.refresh())["shell"]
    result = await server.request(
        lambda client: client.call_tool("execute_command", {"command": command})
    )
    text: str = result.content[0].text
    return text


async def test_a_server_in_a_sandbox_sees_its_folder_its_variables_and_nothing_else(
    tmp_path: Path, engine: Bench
) -> None:
    bubblewrap_or_skip()
    folder = tmp_path / "own"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    write_config(tmp_path, shell=entry(folder, "bubblewrap"))
    assert await run(engine, f"pwd; cat {tmp_path}/secret; echo $OWN; touch made; id -un") == (
        f"Exit code: 0\nOutput:\n{folder}\nvalue\nsandbox\n"
        f"Errors:\ncat: {tmp_path}/secret: No such file or directory"
    )
    assert (folder / "made").exists()
    assert "Exit code: 0" not in await run(engine, "exec 3<>/dev/tcp/1.1.1.1/53")


async def test_a_server_whose_sandbox_confines_nothing_is_warned_about_once(
    tmp_path: Path, engine: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    write_config(tmp_path, shell=entry(tmp_path, "process"))
    engine.runtime.start()
    await until(lambda: "shell" in engine.runtime.mcp.servers)
    await engine.runtime.mcp.refresh()
    warnings = [
        record.getMessage() for record in caplog.records if "confines" in record.getMessage()
    ]
    assert warnings == [
        "The sandbox 'process' of the MCP server 'shell' confines nothing: it can do what you can."
    ]


@pytest.mark.parametrize(
    ("sandbox", "reason"),
    [
        ("nothing", "there is no sandbox 'nothing', only auto, bubblewrap, docker, process"),
        (
            "docker",
            "the sandbox 'docker' does not work here: neither docker nor podman is installed",
        ),
    ],
)
async def test_a_server_whose_sandbox_does_not_work_is_not_started_without_it(
    tmp_path: Path, engine: Bench, monkeypatch: pytest.MonkeyPatch, sandbox: str, reason: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write_config(tmp_path, shell=entry(tmp_path, sandbox))
    server = (await engine.runtime.mcp.refresh())["shell"]
    await until(lambda: server.last_error is not None)
    assert server.last_error == reason
    assert not (await engine.runtime.tools.inventory()).tools
