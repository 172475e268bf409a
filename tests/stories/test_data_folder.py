"""Which folder is taken for the data folder where nobody has named one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import shlex
import sys

import anyio
import pytest

from mochi_server import MochiServerSettings, Runtime
from mochi_server.config import SettingsError
from mochi_server.server.initialise import initialise
from tests.support.server import LISTENS, ROOT, environment, run_command, running_server

UNKNOWN = "is no data folder of mochi-server"
PROJECT = "from pathlib import Path\n(Path(__file__).parent.parent / 'ran').touch()\n"


@pytest.fixture
def project(tmp_path):
    """Somebody's project, whose packages are named like ours."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "__init__.py").write_text(PROJECT)
    return folder


def files_of(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "arguments", [[], ["doctor"], ["reload_tools", "--check"], ["sessions", "list"]]
)
async def test_a_folder_that_nobody_has_chosen_is_refused_with_two_commands(project, arguments):
    ended = await run_command(*arguments, cwd=project)
    assert (ended.code, ended.out) == (2, "")
    line, *commands = ended.err.splitlines()
    assert line.startswith(f"mochi-server: {project} {UNKNOWN}")
    words = [shlex.split(command, comments=True) for command in commands]
    assert [command[-2 - len(arguments) :] for command in words] == [
        ["--data-dir", "data", *arguments],
        ["--data-dir", ".", *arguments],
    ]
    assert files_of(project) == ["tools"]


async def test_the_help_of_a_command_needs_no_folder(project):
    ended = await run_command("sessions", "list", "--help", cwd=project)
    assert (ended.code, ended.err) == (0, "")


async def test_other_servers_refuse_to_start_in_it(project):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "uvicorn", "mochi_project.asgi:application", "--port", "0",
        cwd=project, env=environment(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    with anyio.fail_after(100):
        said, _ = await process.communicate()
    assert process.returncode == 3
    assert UNKNOWN in said.decode()
    assert "MOCHI_DATA_DIR" in said.decode()
    assert files_of(project) == ["tools"]


@contextlib.asynccontextmanager
async def at_a_terminal(folder):
    """The command in this folder, and the end of the terminal that a person sits at."""
    person, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mochi_server", "--port", "0",
        cwd=folder, env=environment(models_dir=folder.parent / "models"),
        stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    try:
        yield process, person
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(person)


async def read_until(person, pattern):
    """What the terminal shows, up to this."""
    shown = ""
    with anyio.fail_after(60):
        while re.search(pattern, shown) is None:
            shown += (await anyio.to_thread.run_sync(os.read, person, 1000)).decode()
    return shown


def test_a_program_that_uses_the_library_names_its_folder(project, monkeypatch):
    monkeypatch.chdir(project)
    with pytest.raises(SettingsError, match=f"{UNKNOWN}.*data_dir"):
        Runtime()
    with pytest.raises(SettingsError, match=UNKNOWN):
        Runtime(MochiServerSettings(port=1))
    assert [path.name for path in project.iterdir()] == ["tools"]
    assert Runtime(MochiServerSettings(data_dir=project)).settings.data_dir == project


async def test_a_person_at_a_terminal_may_choose_it_and_is_asked_once(project):
    async with at_a_terminal(project) as (process, person):
        question = await read_until(person, r"\[y/N\] ")
        assert f"{project} {UNKNOWN}" in question
        os.write(person, b"y\n")
        shown = await read_until(person, LISTENS)
        process.terminate()
    assert UNKNOWN not in shown
    async with at_a_terminal(project) as (_, person):
        assert "[y/N]" not in await read_until(person, LISTENS)


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"\x04"])
async def test_a_person_who_does_not_want_it_is_told_two_commands(project, answer):
    async with at_a_terminal(project) as (process, person):
        await read_until(person, r"\[y/N\] ")
        os.write(person, answer)
        await read_until(person, r"--data-dir data(?s:.*)--data-dir \. ")
        with anyio.fail_after(100):
            assert await process.wait() == 2
    assert files_of(project) == ["tools"]


@pytest.mark.parametrize("made_by", ["init", "use", ".env"])
async def test_a_folder_that_was_made_used_or_named_before_is_taken(tmp_path, made_by):
    if made_by == "init":
        initialise(tmp_path)
    elif made_by == ".env":
        (tmp_path / ".env").write_text("MOCHI_DATA_DIR=.\n")
    else:
        async with running_server(data_dir=tmp_path) as server:
            await server.get("/health")
    async with running_server(data_dir=None, cwd=tmp_path) as server:
        status, _ = await server.get("/tools")
    assert status == 200
    assert (tmp_path / "chat_sessions").is_dir()


async def test_test_mode_runs_nothing_of_a_folder_that_nobody_has_chosen(project):
    command = ("-m", "mochi_server", "--test", "--port", "0")
    async with running_server(data_dir=None, cwd=project, command=command) as server:
        _, tools = await server.get("/tools")
        _, reply = await server.post(f"/chat/{await server.new_session()}", {"message": "Hi"})
    assert tools["tools"] == {}
    assert reply["message"]["content"]
    assert files_of(project) == ["tools"]


async def test_manage_takes_the_folder_data_beside_itself(project, tmp_path):
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "manage.py").write_bytes((ROOT / "manage.py").read_bytes())
    done = await anyio.run_process(
        [sys.executable, str(clone / "manage.py"), "reload_tools", "--check", "--json"],
        cwd=project, env=environment(),
    )  # fmt: skip
    assert str(clone / "data" / "tools") in done.stdout.decode()
    assert files_of(project) == ["tools"]
