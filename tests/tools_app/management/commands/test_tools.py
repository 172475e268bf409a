"""``tools run``: a call without a model."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from django.core.management import CommandError, call_command

from tests.support.server import environment, run_and_list_modules, run_command
from tests.support.tools import write_tools

TOOLS = '''
__all__ = ["repeat", "fail", "paint"]


def repeat(text: str, times: int = 2) -> str:
    """Repeat a text."""
    print("50 %")
    return text * times


def fail() -> str:
    """Fail."""
    raise ValueError("no such \\x1b[2Jcity")


def paint() -> str:
    """Clear the screen."""
    return "one \\x1b[2Jtwo"
'''


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        (["repeat", '{"text": "ab", "times": "3"}'], "ababab\n"),
        (["paint"], "one \x1b[2Jtwo\n"),
    ],
)
def test_a_tool_is_called_as_a_model_would(mochi: Any, arguments: list[str], out: str) -> None:
    write_tools(mochi.tools_path, init=TOOLS)
    printed = io.StringIO()
    call_command("tools", "run", *arguments, stdout=printed)
    assert printed.getvalue() == out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["repeat"], "Missing: text."),
        (["repeat", "{"], "not JSON"),
        (["repeat", "[]"], "not a JSON object"),
        (["sing"], "There is no tool 'sing'. There are: fail, paint, repeat."),
    ],
)
def test_what_cannot_be_called_is_said(mochi: Any, arguments: list[str], reason: str) -> None:
    write_tools(mochi.tools_path, init=TOOLS)
    with pytest.raises(CommandError) as failed:
        call_command("tools", "run", *arguments)
    assert reason in str(failed.value)


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["repeat", '{"text": "ab"}'], 0, "abab\n", "tools: repeat (session -, call -): 50 %"),
        (["fail"], 1, "", "fail: ValueError: no such  [2Jcity"),
    ],
)
async def test_a_result_is_printed_and_all_else_is_an_error_or_in_the_log(
    tmp_path: Path, arguments: list[str], code: int, out: str, err: str
) -> None:
    write_tools(tmp_path / "tools", init=TOOLS)
    ended = await run_command(
        "tools", "run", *arguments, cwd=tmp_path, env=environment(data_dir=tmp_path)
    )
    assert (ended.code, ended.out) == (code, out), ended.err
    assert err in ended.err


async def test_a_result_cannot_rule_the_terminal(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", init=TOOLS)
    screen, its_end = os.openpty()
    try:
        with anyio.fail_after(100):
            await anyio.run_process(
                [sys.executable, "-m", "mochi_server", "tools", "run", "paint"],
                stdout=its_end,
                cwd=tmp_path,
                env=environment(data_dir=tmp_path),
            )
        assert os.read(screen, 1000) == b"one  [2Jtwo\r\n"
    finally:
        os.close(screen)
        os.close(its_end)


def test_a_call_imports_neither_agents_nor_what_only_a_server_or_a_check_needs(tmp_path: Path):
    write_tools(tmp_path / "tools", init=TOOLS)
    arguments = ("--data-dir", str(tmp_path), "tools", "run", "repeat", '{"text": "a"}')
    result, loaded = run_and_list_modules(*arguments, cwd=tmp_path)
    assert result == "aa\n"
    assert "tools_app.management.commands.tools" in loaded
    late = {"aiohttp", "ninja", "uvicorn", "mochi_project.checks", "mochi_project.runtime"}
    late |= {f"mochi_server.{name}" for name in ("agents", "chat", "doctor", "runtime")}
    assert loaded & late == set()
