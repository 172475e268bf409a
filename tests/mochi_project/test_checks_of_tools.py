"""``tools.W001``."""

from __future__ import annotations

from django.core.checks import run_checks

from tests.support.tools import function, noting, write_tools

GOOD = function("add") + "\n__all__ = ['add']\n"


def warnings():
    return [message for message in run_checks() if message.id == "tools.W001"]


def test_each_problem_of_the_folder_is_a_warning_with_its_place(mochi):
    folder = write_tools(mochi.tools_path, init=GOOD)
    assert warnings() == []
    write_tools(folder / "text", init="x = 1\ndef broken(:\n")
    write_tools(folder / "music", init=function("play") + "\n__all__ = ['play', 'sing']\n")
    found = [message.msg for message in warnings()]
    assert len(found) == 2
    assert any(text.startswith(f"{folder / 'text' / '__init__.py'}:2: ") for text in found)
    assert any("'sing'" in text for text in found)


def test_functions_that_are_left_out_are_no_warning(mochi):
    write_tools(mochi.tools_path, init=GOOD, helper=function("place"))
    assert warnings() == []


def test_a_folder_that_is_not_there_is_no_warning(mochi):
    assert warnings() == []
    mochi.tools_path.mkdir(parents=True)
    assert warnings() == []


def test_code_that_ends_its_process_ends_no_check(mochi):
    write_tools(mochi.tools_path, init="import os\nos._exit(3)\n")
    [message] = warnings()
    assert str(mochi.tools_path) in message.msg


async def test_a_server_imports_no_tool_before_it_needs_one(server_of, tmp_path):
    write_tools(tmp_path / "tools", init=noting(tmp_path / "log") + GOOD)
    async with server_of() as server:
        await server.get("/health")
        await server.get("/sessions")
        assert not (tmp_path / "log").exists()
        assert list((await server.get("/tools"))[1]["tools"]) == ["add"]
        assert (tmp_path / "log").exists()
