"""``tools run``: a call without a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.server import environment, run_command
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
    ("arguments", "code", "out", "err"),
    [
        (["repeat", '{"text": "ab", "times": "3"}'], 0, "ababab\n", "tools: repeat"),
        (["repeat", '{"text": "ab"}'], 0, "abab\n", "50 %"),
        (["fail"], 1, "", "fail: ValueError: no such  [2Jcity"),
        (["paint"], 0, "one \x1b[2Jtwo\n", ""),
        (["repeat"], 1, "", "Missing: text."),
        (["repeat", "{"], 1, "", "not JSON"),
        (["repeat", "[]"], 1, "", "not a JSON object"),
        (["sing"], 1, "", "There is no tool 'sing'. There are: fail, paint, repeat."),
    ],
)
async def test_a_tool_is_called_as_a_model_would(
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
        with anyio.fail_after(60):
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
