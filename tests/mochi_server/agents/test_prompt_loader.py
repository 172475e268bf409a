"""The prompts of an agent's phases come from files, or are ours."""

from __future__ import annotations

import logging

import pytest

from mochi_server.agents import PromptLoader
from mochi_server.agents.prompt_loader import MAX_FILE_BYTES
from tests.support.tools import PlainTool


@pytest.fixture
def files(tmp_path):
    return tmp_path / "planning.md", tmp_path / "execution.md"


@pytest.fixture
def prompts(files):
    return PromptLoader(*files)


def test_without_files_the_prompts_are_ours(prompts, caplog):
    assert prompts.planning().startswith("Make a plan")
    assert prompts.execution().startswith("Work on the task")
    assert caplog.records == []


def test_planning_tells_the_tools_that_will_be_there(prompts):
    told = prompts.planning([PlainTool("read"), PlainTool("write")])
    assert "- read: Says read.\n- write: Says write.\n" in told
    for text in (told, prompts.planning(), prompts.execution()):
        assert "{" not in text


def test_a_file_goes_before_ours_and_is_read_again_when_it_changes(prompts, files):
    planning, execution = files
    planning.write_text("\ufeffPlan! With:\n{tools}\n", "utf-8")
    assert prompts.planning([PlainTool("read")]) == "Plan! With:\n- read: Says read."
    assert prompts.execution().startswith("Work on the task")
    execution.write_text("Work {hard}!")
    assert prompts.execution() == "Work {hard}!"
    planning.write_text("Think!")
    assert prompts.planning() == "Think!"
    planning.unlink()
    assert prompts.planning().startswith("Make a plan")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.mkdir(), "cannot be used"),
        (lambda path: path.write_bytes(b"\xff"), "not UTF-8"),
        (lambda path: path.write_text(" \n"), "empty"),
        (lambda path: path.write_text("x" * (MAX_FILE_BYTES + 1)), "larger than"),
        (lambda path: path.symlink_to(path.with_name("nothing")), "cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_once(prompts, files, caplog, spoil, reason):
    spoil(files[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert prompts.planning().startswith("Make a plan")
    [record] = caplog.records
    assert str(files[0]) in record.getMessage()
    assert reason in record.getMessage()
