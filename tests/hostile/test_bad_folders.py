"""Folders and files that are not what they should be."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from mochi_server.errors import PromptNotFound, StorageError
from mochi_server.services.system_prompts import SystemPromptService
from tests.hostile.aftermath import is_unharmed
from tests.support.server import running_server


async def test_a_folder_that_cannot_be_looked_into_is_a_named_error(tmp_path: Path) -> None:
    prompts = SystemPromptService(tmp_path / ("a" * 300))
    with pytest.raises(StorageError):
        await prompts.update("helpful.md", "Be brief.")
    with pytest.raises(StorageError):
        await prompts.create("helpful.md", "Be brief.")
    with pytest.raises(StorageError):
        await prompts.read("helpful.md")
    with pytest.raises(StorageError):
        await prompts.delete("helpful.md")


async def test_a_pipe_is_no_prompt_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    try:
        with anyio.fail_after(30), pytest.raises(PromptNotFound):
            await SystemPromptService(tmp_path).read("pipe.md")
    finally:  # let a thread go that reads from it
        os.close(os.open(tmp_path / "pipe.md", os.O_RDWR | os.O_NONBLOCK))


async def test_pipes_and_folders_among_the_sessions_do_not_hang_anything(tmp_path: Path) -> None:
    folder = tmp_path / "chat_sessions"
    folder.mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "loop.json").symlink_to("loop.json")
    async with running_server(data_dir=tmp_path) as server:
        with anyio.fail_after(60):
            status, listed = await server.get("/sessions")
            assert (status, listed["sessions"]) == (200, [])
            for name in ("pipe", "folder", "loop"):
                for method, path in (
                    ("GET", f"/sessions/{name}"),
                    ("PATCH", f"/sessions/{name}"),
                    ("POST", f"/chat/{name}"),
                    ("DELETE", f"/sessions/{name}"),
                ):
                    body = None if method in {"GET", "DELETE"} else {}
                    status, answer = await server.request(method, path, body)
                    assert (status, answer["error"]["code"]) == (404, "SESSION_NOT_FOUND")
        await is_unharmed(server)
