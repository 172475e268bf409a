"""An agent reads the files beside its instructions, and no others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.agents import file_tools
from mochi_server.agents.file_tools import make_file_tools
from mochi_server.tools.base import InvalidArguments, ToolContext, ToolFailed, ToolOutput
from tests.support.unprivileged import run_unprivileged


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    found = tmp_path / "skill"
    (found / "references").mkdir(parents=True)
    (found / "SKILL.md").write_text("---\ndescription: x\n---\n")
    (found / "references" / "guide.md").write_text("Fill it in.")
    (found / "logo.png").write_bytes(b"\x89PNG\0\0")
    (found / "empty.txt").write_text("")
    return found


async def call(folder: Path, name: str, **arguments: Any) -> str:
    tool = next(tool for tool in make_file_tools(folder, source="x") if tool.name == name)
    given = await tool.validate(arguments)
    context = ToolContext(session_id="a1b2c3d4e5", tool_call_id="call_1")
    with anyio.fail_after(30):
        steps = [step async for step in tool.run(given, context)]
    assert isinstance(steps[-1], ToolOutput)
    return steps[-1].content


async def read(folder: Path, path: str, **arguments: Any) -> str:
    return await call(folder, "read_skill_file", path=path, **arguments)


async def test_the_files_are_listed_with_their_sizes(folder):
    assert (await call(folder, "list_skill_files")).splitlines() == [
        "SKILL.md (23 bytes)",
        "empty.txt (0 bytes)",
        "logo.png (6 bytes)",
        "references/guide.md (11 bytes)",
    ]


async def test_nothing_hidden_and_no_link_is_listed(folder):
    for name in (".git", "__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x.txt").write_text("x")
    (folder / ".env").write_text("KEY=x")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "out").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe")
    assert len((await call(folder, "list_skill_files")).splitlines()) == 4


async def test_a_long_list_is_cut(folder, monkeypatch):
    monkeypatch.setattr(file_tools, "MAX_FILES", 2)
    listed = (await call(folder, "list_skill_files")).splitlines()
    assert listed[2:] == ["... and more than these 2."]


async def test_a_folder_without_end_is_given_up(folder, monkeypatch):
    deep = folder.joinpath(*["deep"] * 20)
    deep.mkdir(parents=True)
    (deep / "file.txt").write_text("x")
    assert "deep" not in await call(folder, "list_skill_files")
    monkeypatch.setattr(file_tools, "MAX_ENTRIES", 1)
    assert "guide" not in await call(folder, "list_skill_files")


async def test_a_folder_that_is_gone_has_no_files(tmp_path):
    assert await call(tmp_path / "gone", "list_skill_files") == "There are no other files."


async def test_a_file_is_read(folder):
    assert await read(folder, "references/guide.md") == "Fill it in."
    assert await read(folder, " references//./guide.md ") == "Fill it in."
    assert await read(folder, "empty.txt") == "The file is empty."


async def test_a_long_file_is_read_in_parts(folder):
    text = "é" * file_tools.MAX_CHARACTERS + "end"
    (folder / "long.txt").write_text(text)
    first = await read(folder, "long.txt")
    head, _, told = first.partition("\n")
    assert head == "é" * file_tools.MAX_CHARACTERS
    assert f"start={file_tools.MAX_CHARACTERS}" in told
    assert await read(folder, "long.txt", start=str(file_tools.MAX_CHARACTERS)) == "end"
    assert await read(folder, "long.txt", start=file_tools.MAX_CHARACTERS + 3) == (
        "The file ends before that."
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "is not a path"),
        ("references/../../secret.txt", "is not a path"),
        ("/etc/passwd", "is not a path"),
        (".env", "is not a path"),
        ("link.txt", "leads through a link"),
        ("out/secret.txt", "leads through a link"),
        ("a\0b", "cannot be a path"),
        ("references", "there is no file"),
        ("", "there is no file"),
        ("nothing.txt", "there is no file"),
        ("pipe", "there is no file"),
        ("x" * 5000, "cannot be"),
        ("logo.png", "is not UTF-8 text"),
        ("large.txt", "is larger than"),
    ],
)
async def test_nothing_else_is_read(folder, path, reason):
    (folder / ".env").write_text("KEY=x")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "out").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe")
    (folder / "large.txt").write_bytes(b"x" * (file_tools.MAX_FILE_BYTES + 1))
    with pytest.raises(ToolFailed, match=reason):
        await read(folder, path)


async def test_arguments_are_checked(folder):
    with pytest.raises(InvalidArguments):
        await call(folder, "read_skill_file")
    with pytest.raises(InvalidArguments):
        await read(folder, "SKILL.md", start="soon")
    with pytest.raises(ToolFailed, match="0 or more"):
        await read(folder, "SKILL.md", start=-1)


async def read_a_file_that_may_not_be_read(folder: Path) -> None:
    (folder / "empty.txt").chmod(0)
    with pytest.raises(ToolFailed, match="Permission denied"):
        await read(folder, "empty.txt")


def test_a_file_that_may_not_be_read_is_said_to_be_so(folder):
    run_unprivileged(read_a_file_that_may_not_be_read, folder)
