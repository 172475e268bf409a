"""``manage.py reload_agents``, ``agents.W001``, and the servers that they tell."""

from __future__ import annotations

import io
import json
import sys

import anyio
import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command

from tests.support.agents import write_agent, write_skill
from tests.support.server import ROOT, environment, running_server
from tests.support.tools import noting


def run(*options):
    out = io.StringIO()
    call_command("reload_agents", *options, stdout=out)
    return out.getvalue()


@pytest.fixture
def folder(mochi):
    lines = ("description: Writes code.", "model: qwen3:8b", "agents: [writer, nobody]")
    write_agent(mochi.agents_path / "coder", *lines, tools=["read", "write"])
    write_skill(mochi.agents_path / "writer")
    write_skill(mochi.agents_path / "broken", "name: broken")
    return mochi.agents_path


@pytest.fixture
def stamp(mochi):
    return mochi.state_path / "reload-agents"


def test_a_table_shows_every_agent_and_problem(folder, stamp):
    assert [" ".join(line.split()) for line in run().splitlines()] == [
        "NAME VALID MODEL TOOLS AGENTS",
        "broken no - - -",
        "coder yes qwen3:8b read, write writer",
        "writer yes - list_skill_files, read_skill_file -",
        f"problem: {folder / 'broken' / 'SKILL.md'}:1: description is missing",
        (
            f"problem: {folder / 'coder' / 'SKILL.md'}:4: "
            "agents names 'nobody', and there is no agent of this name"
        ),
    ]
    assert stamp.exists()


def test_nothing_is_told_twice_by_the_log(folder, caplog):
    caplog.set_level("INFO")
    assert "description is missing" in run()
    assert not caplog.messages


def test_the_same_is_there_as_json_whatever_modules_print(folder):
    module = folder / "coder" / "coder.py"
    module.write_text("print('hello')\n" + module.read_text())
    found = json.loads(run("--json"))
    assert found["folder"] == str(folder)
    assert found["agents"][1] == {
        "name": "coder",
        "description": "Writes code.",
        "valid": True,
        "error_message": None,
        "model": "qwen3:8b",
        "tools": ["read", "write"],
        "agents": ["writer"],
    }
    assert [problem["line"] for problem in found["problems"]] == [1, 4]


def test_a_check_fails_on_problems_and_tells_no_server(folder, stamp, capsys):
    with pytest.raises(SystemExit) as ended:
        call_command("reload_agents", "--check")
    assert ended.value.code == 1
    assert "problem: " in capsys.readouterr().out
    write_skill(folder / "broken")
    write_skill(folder / "nobody")
    assert "problem" not in run("--check")
    assert not stamp.exists()


def test_without_agents_it_says_so(mochi, stamp):
    assert run() == f"No agents in {mochi.agents_path}.\n"
    assert stamp.exists()


def test_a_data_folder_that_cannot_be_written_is_named(mochi, stamp):
    mochi.data_dir.mkdir()
    stamp.parent.write_text("no folder")
    with pytest.raises(CommandError, match=r"reload-agents cannot be written"):
        run()


def warnings():
    return [message.msg for message in run_checks() if message.id == "agents.W001"]


def test_each_problem_is_a_warning_with_its_place(folder):
    assert [message.split(": ")[0] for message in warnings()] == [
        f"{folder / 'broken' / 'SKILL.md'}:1",
        f"{folder / 'coder' / 'SKILL.md'}:4",
    ]
    write_skill(folder / "broken")
    write_skill(folder / "nobody")
    assert warnings() == []


def test_a_folder_that_is_not_there_is_no_warning(mochi):
    assert warnings() == []


@pytest.mark.slow
async def test_running_servers_take_new_files_and_the_command(tmp_path):
    coder = write_agent(tmp_path / "agents" / "coder")
    (coder / "coder.py").write_text(noting(tmp_path / "log") + (coder / "coder.py").read_text())

    async def listed(server):
        status, answer = await server.get("/agents")
        assert status == 200
        return list(answer["agents"])

    async with (
        running_server(data_dir=tmp_path) as one,
        running_server(data_dir=tmp_path) as two,
    ):
        servers = (one, two)
        assert [await listed(server) for server in servers] == [["coder"], ["coder"]]
        write_skill(tmp_path / "agents" / "writer")
        both = ["coder", "writer"]
        assert [await listed(server) for server in servers] == [both, both]
        loads = len((tmp_path / "log").read_text())

        with anyio.fail_after(100):
            await anyio.run_process(
                [sys.executable, str(ROOT / "manage.py"), "reload_agents"],
                env=environment(data_dir=tmp_path),
                cwd=ROOT,
            )
        told = len((tmp_path / "log").read_text())
        assert told > loads
        assert [await listed(server) for server in servers] == [both, both]
        assert len((tmp_path / "log").read_text()) >= told + 2
