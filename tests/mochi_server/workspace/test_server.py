"""The program ``mochi-workspace``, as any client of MCP sees it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from mochi_server.sandbox import SandboxSpec
from mochi_server.workspace import isolated
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.waiting import until

PROGRAM = Path(sys.executable).with_name("mochi-workspace")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="needs the installed program")


def client_of(folder, **options):
    return Client(
        stdio_client(StdioServerParameters(command=str(PROGRAM), args=[str(folder)])), **options
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_of_any_version_can_use_it(tmp_path, mode):
    with anyio.fail_after(60):
        async with client_of(tmp_path, mode=mode) as client:
            assert client.server_info.name == "mochi-workspace"
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == [
                "read_file",
                "write_file",
                "edit_file",
                "list_files",
                "search_files",
                "execute_command",
            ]
            reads = [name for name, tool in tools.items() if tool.annotations.read_only_hint]
            assert reads == ["read_file", "list_files", "search_files"]
            assert tools["execute_command"].annotations.destructive_hint
            result = await client.call_tool("execute_command", {"command": "echo hello > a"})
            assert not result.is_error
            result = await client.call_tool("read_file", {"path": "a"})
            assert result.content[0].text == "hello"
            result = await client.call_tool("read_file", {"path": "../secret"})
            assert result.is_error
            assert result.content[0].text == "../secret: It leads out of the folder."
            with pytest.raises(MCPError, match="There is no tool 'nothing'"):
                await client.call_tool("nothing", {})


async def test_output_of_a_command_does_not_disturb_the_wire(tmp_path):
    with anyio.fail_after(60):
        async with client_of(tmp_path) as client:
            command = "echo '{}' > /proc/self/fd/1; echo x > /proc/$PPID/fd/1; cat /proc/$PPID/fd/0"
            await client.call_tool("execute_command", {"command": command})
            result = await client.call_tool("list_files", {})
            assert result.content[0].text == "[No files.]"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
async def test_a_command_in_a_sandbox_cannot_speak_as_the_server(tmp_path):
    """It has the same user, and could open the standard output of the server."""
    made = bubblewrap_or_skip().command(
        [str(PROGRAM), "/workspace"], SandboxSpec.of_workspace(tmp_path)
    )
    parameters = StdioServerParameters(command=made.argv[0], args=made.argv[1:], env=made.env)
    loop = "for id in 1 2 $PPID; do (: > /proc/$id/fd/1) && echo opened $id; done"
    with anyio.fail_after(60):
        async with Client(stdio_client(parameters)) as client:
            result = await client.call_tool("execute_command", {"command": f"{loop}; echo end"})
            said = result.content[0].text
            assert "opened" not in said
            assert "end" in said


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
async def test_what_commands_leave_behind_ends_with_the_last_of_them(tmp_path):
    """Also what has left the process group of its command."""
    leave = "(setsid sleep 1000 & echo $! > pid); setsid -f sh -c 'echo $$ > pid2; sleep 1001; :'"
    leave += "; until [ -s pid2 ]; do sleep 0.05; done"
    with anyio.fail_after(60):
        async with client_of(tmp_path) as client, anyio.create_task_group() as group:
            said, ended = [], anyio.Event()

            async def run_beside():
                wait = "touch waiting; until [ -e go ]; do sleep 0.05; done; echo undisturbed"
                result = await client.call_tool("execute_command", {"command": wait})
                said.append(result.content[0].text)
                ended.set()

            group.start_soon(run_beside)
            await until((tmp_path / "waiting").exists)
            await client.call_tool("execute_command", {"command": leave})
            await client.call_tool("list_files", {})
            (tmp_path / "go").touch()
            await ended.wait()
            assert said == ["Exit code: 0\nOutput:\nundisturbed"]
            for name in ("pid", "pid2"):
                process = Path("/proc", (tmp_path / name).read_text().strip())
                await until(lambda process=process: not process.exists())


def landlock_version():
    return ctypes.CDLL(None).syscall(444, None, 0, 1) if sys.platform == "linux" else -1


def test_a_program_is_run_where_the_system_has_no_such_restriction():
    """The C library of macOS has no ``prctl``."""
    as_macos = (
        "import ctypes, runpy, sys; sys.platform = 'darwin'; ctypes.CDLL = lambda name: object();"
        f" sys.argv = ['isolated.py', 'echo', 'here'];"
        f" runpy.run_path({isolated.__file__!r}, run_name='__main__')"
    )
    command = [sys.executable, "-I", "-S", "-c", as_macos]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (result.stdout, result.stderr) == ("here\n", "")


@pytest.mark.skipif(landlock_version() < 6, reason="needs Landlock of Linux 6.12")
async def test_a_command_in_a_sandbox_cannot_stop_the_server(tmp_path):
    made = bubblewrap_or_skip().command(
        [str(PROGRAM), "/workspace"], SandboxSpec.of_workspace(tmp_path)
    )
    parameters = StdioServerParameters(command=made.argv[0], args=made.argv[1:], env=made.env)
    attempts = [
        "kill -STOP $PPID",
        "for id in /proc/$PPID/task/*; do kill -KILL ${id##*/}; done",
        "kill -KILL -1",
    ]
    with anyio.fail_after(60):
        async with Client(stdio_client(parameters)) as client:
            for attempt in attempts:
                await client.call_tool("execute_command", {"command": attempt})
            result = await client.call_tool("execute_command", {"command": "echo here"})
            assert result.content[0].text == "Exit code: 0\nOutput:\nhere"


async def test_files_in_the_folder_do_not_disturb_the_program(tmp_path):
    """Python would import modules from its working directory."""
    for name in ("re", "json", "anyio", "mochi_server"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)\n")
    parameters = StdioServerParameters(command=str(PROGRAM), args=[str(tmp_path)], cwd=tmp_path)
    with anyio.fail_after(60):
        async with Client(stdio_client(parameters)) as client:
            result = await client.call_tool("search_files", {"pattern": "SystemExit"})
            assert "re.py:1: raise SystemExit(3)" in result.content[0].text


def test_a_folder_that_is_not_there_is_said(tmp_path):
    ended = subprocess.run(
        [PROGRAM, tmp_path / "nothing"], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.endswith("/nothing is no folder\n")


async def test_the_end_of_the_input_ends_the_commands_too(tmp_path):
    with anyio.fail_after(60):
        async with client_of(tmp_path) as client, anyio.create_task_group() as group:

            async def run():
                command = "echo $$ > new; mv new pid; sleep 1000"
                await client.call_tool("execute_command", {"command": command})

            group.start_soon(run)
            await until((tmp_path / "pid").exists)
            group.cancel_scope.cancel()
        pid = (tmp_path / "pid").read_text().strip()
        await until(lambda: not Path(f"/proc/{pid}").exists())
