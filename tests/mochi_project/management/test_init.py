"""``mochi-server NAME`` where there is no ``manage.py``."""

from __future__ import annotations

import json
import os
import sys

import anyio
import pytest

from mochi_project.management import operator_commands
from mochi_server.__main__ import main, split_at_command
from tests.docs.pages import PACKAGES
from tests.support.server import ROOT, environment, run_command


def test_every_management_command_is_reached_but_the_development_server():
    files = [
        path.stem
        for package in PACKAGES
        for path in (ROOT / package).glob("management/commands/*.py")
        if path.stem != "__init__"
    ]
    assert {"reload_tools", "reload_agents", "runserver"} <= {*files}
    assert operator_commands() == sorted({*files, "check"} - {"runserver"})


def test_help_names_them(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name in operator_commands():
        assert f" {name}" in shown


@pytest.mark.parametrize(
    ("arguments", "split"),
    [
        (["check"], ([], ["check"])),
        (["--data-dir", "check", "check", "-x"], (["--data-dir", "check"], ["check", "-x"])),
        (["--data", "a", "check"], (["--data", "a"], ["check"])),
        (["--data-dir=a", "check", "--json"], (["--data-dir=a"], ["check", "--json"])),
        (["mcp", "--help"], ([], ["mcp", "--help"])),
        (["--port", "1", "mcp", "-h"], (["--port", "1"], ["mcp", "-h"])),
        (["mcp"], None),
        (["mcp", "--port", "1"], None),
        (["pull", "check"], None),
        (["--data-dir", "check"], None),
        (["runserver"], None),
        (["--version"], None),
        ([], None),
    ],
)
def test_the_first_word_decides(arguments, split):
    assert split_at_command(arguments, ["--data-dir", "--port"]) == split


async def test_a_command_has_the_folder_of_the_option_before_it(tmp_path):
    folder, other = tmp_path / "data", tmp_path / "other"
    ended = await run_command(
        "--data-dir", str(folder), "reload_tools", "--json",
        cwd=tmp_path, env=environment(data_dir=other),
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["folder"] == str(folder / "tools")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--port", "x", "check"], 2, "MOCHI_PORT"),
        (["reload_tools", "--nonsense"], 2, "mochi-server reload_tools"),
        (["check", "nobody"], 1, "nobody"),
    ],
)
async def test_the_exit_code_of_a_command_is_that_of_the_process(tmp_path, arguments, code, words):
    ended = await run_command(*arguments, cwd=tmp_path, env=environment(data_dir=tmp_path))
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err


async def test_a_reader_who_has_seen_enough_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with anyio.fail_after(100):
            ended = await anyio.run_process(
                [sys.executable, "-m", "mochi_server", "reload_tools", "--check"],
                stdout=writing, check=False, cwd=tmp_path, env=environment(data_dir=tmp_path),
            )  # fmt: skip
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")
