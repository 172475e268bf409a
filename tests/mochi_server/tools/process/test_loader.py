"""Folders of tools, which several processes describe side by side, and where those run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tool_folders import loaded_folder, process_loader, tool_folder

MANY = 35
CODE = '''
__all__ = ["work{number}"]

def work{number}() -> str:
    """Work."""
    return "done {number}"
'''


@pytest.mark.parametrize("count", [0, 1, 7, 17, MANY])
async def test_folders_come_back_in_their_order(tmp_path: Path, count: int) -> None:
    """Each with its own tools, which can be called."""
    specs = [tool_folder(tmp_path / f"f{n}", CODE.format(number=n)) for n in range(count)]
    async with process_loader() as loader:
        found = await loader.load(specs)
        assert [each.description.folder for each in found] == [str(each.path) for each in specs]
        names = [[tool.name for tool in each.description.tools] for each in found]
        assert names == [[f"work{n}"] for n in range(count)]
        if found:
            last = count - 1
            assert await found[last].call(f"work{last}", {}) == f"done {last}"


async def test_folders_that_end_their_process_hurt_no_other(tmp_path: Path) -> None:
    """First, last and in the middle of what one process describes."""
    deadly = {0, 9, 10, 20, MANY - 1}
    specs = [
        tool_folder(
            tmp_path / f"f{n}",
            "import os\nos._exit(3)\n" if n in deadly else CODE.format(number=n),
        )
        for n in range(MANY)
    ]
    async with process_loader() as loader:
        found = await loader.load(specs)
        broken = {n for n, each in enumerate(found) if each.description.problems}
        assert broken == deadly
        assert all(found[n].description.tools for n in range(MANY) if n not in deadly)


async def test_modules_in_the_servers_working_directory_hide_none_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "logging", "socket", "mochi_server"):
        (here / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(here)
    async with loaded_folder(tmp_path / "tools", CODE.format(number=1)) as folder:
        assert folder.description.problems == ()
        assert await folder.call("work1", {}) == "done 1"
