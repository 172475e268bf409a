"""``manage.py reload_tools``, and the servers that it tells."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import CommandError, call_command

from tests.support.tools import function, write_tools

INIT = """
from .math_tools import add, sub

__all__ = ["add", "sub", "missing"]
__math__ = ["add", "sub"]
__some__ = ["add"]
__destructive__ = ["sub"]
__timeouts__ = {"sub": 2.5}
"""


def run(*options):
    out = io.StringIO()
    call_command("reload_tools", *options, stdout=out)
    return out.getvalue()


@pytest.fixture
def folder(mochi):
    module = function("add") + function("sub")
    return write_tools(mochi.tools_path, init=INIT, math_tools=module)


@pytest.fixture
def stamp(mochi):
    return mochi.state_path / "reload-tools"


def test_a_table_shows_every_tool_and_problem(folder, stamp):
    write_tools(folder / "text", init=function("shout") + "\n__all__ = ['shout']\n")
    head, *lines = run().splitlines()
    assert head.split() == ["NAME", "GROUPS", "DESTRUCTIVE", "TIMEOUT", "FILE"]
    assert [line.split() for line in lines[:3]] == [
        ["add", "math,", "some", "no", "60", "s", "math_tools.py:2"],
        ["sub", "math", "yes", "2.5", "s", "math_tools.py:6"],
        ["shout", "text", "unknown", "60", "s", "text/__init__.py:2"],
    ]
    assert len({line.index(" s  ") for line in lines[:3]}) <= 2
    [problem] = lines[3:]
    assert problem.startswith(f"problem: {folder / '__init__.py'}:4: ")
    assert "'missing'" in problem
    assert stamp.exists()


def test_the_same_is_there_as_json(folder):
    found = json.loads(run("--json"))
    assert found["folder"] == str(folder)
    assert found["tools"][1] == {
        "name": "sub",
        "groups": ["math"],
        "destructive": True,
        "sequential": False,
        "timeout": 2.5,
        "is_async": False,
        "file": str(folder / "math_tools.py"),
        "line": 6,
    }
    [problem] = found["problems"]
    assert (problem["line"], problem["tool"]) == (4, "missing")


def test_what_a_module_prints_is_no_part_of_the_json(folder, capsys):
    write_tools(folder, init=f"print('Hello!')\n{INIT}")
    call_command("reload_tools", "--json")
    assert len(json.loads(capsys.readouterr().out)["tools"]) == 2


def test_a_check_fails_on_problems_and_tells_no_server(folder, stamp, capsys):
    with pytest.raises(SystemExit) as ended:
        call_command("reload_tools", "--check")
    assert ended.value.code == 1
    assert "problem: " in capsys.readouterr().out
    write_tools(folder, init=INIT.replace(', "missing"', ""))
    assert "problem" not in run("--check")
    assert not stamp.exists()


def test_a_check_shows_what_is_left_out_and_passes(folder):
    write_tools(folder, init=INIT.replace(', "missing"', ""), mail=function("send"))
    *_, hint = run("--check").splitlines()
    assert hint.startswith(f"hint: {folder / 'mail.py'}:1: left out: send ")


def test_each_run_leaves_another_stamp(mochi, stamp):
    assert run() == f"No tools in {mochi.tools_path}.\n"
    first = stamp.stat()
    run()
    second = stamp.stat()
    assert (first.st_mtime_ns, first.st_ino) != (second.st_mtime_ns, second.st_ino)
    assert [path.name for path in stamp.parent.iterdir()] == ["reload-tools"]


def test_a_data_folder_that_cannot_be_written_is_named(mochi, stamp):
    mochi.data_dir.mkdir()
    stamp.parent.write_text("no folder")
    with pytest.raises(CommandError, match=r"reload-tools cannot be written"):
        run()
