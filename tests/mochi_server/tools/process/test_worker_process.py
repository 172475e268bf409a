"""What the place where the server was started means to the processes of tools: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mochi_server.tools.process.loader import ProcessLoader
from tests.support.tool_folders import tool_folder


async def test_modules_in_the_servers_working_directory_hide_none_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "logging", "socket", "mochi_server"):
        (here / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(here)
    spec = tool_folder(
        tmp_path / "tools", "__all__ = ['a']\ndef a() -> str:\n    'A.'\n    return 'a'"
    )
    loader = ProcessLoader()
    try:
        [folder] = await loader.load([spec])
        assert folder.description.problems == ()
        assert await folder.call("a", {}) == "a"
    finally:
        await loader.aclose()
