"""Modules of others that have the name of one of our packages."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.server import environment, running_server

pytestmark = pytest.mark.usefixtures("fresh_servers")

FOREIGN = "raise RuntimeError('this is somebody else\\'s module')\n"
UVICORN = ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0")
RUNS = re.compile(r"running on (http://\S+)")
MAKE_APP = "from mochi_server import create_app; create_app()"


async def run_python(code: str, cwd: Path) -> tuple[int | None, str]:
    """Exit code and output of a program in this folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd=cwd,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    with anyio.fail_after(100):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.parametrize("place", ["chat.py", "chat/__init__.py", "tools_app.py"])
async def test_the_command_starts_beside_a_foreign_module(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(FOREIGN)
    async with running_server(data_dir=tmp_path) as server:
        assert (await server.get("/sessions"))[0] == 200


async def test_another_servers_command_starts_beside_a_foreign_module(tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text(FOREIGN)
    async with running_server(data_dir=tmp_path, command=UVICORN, ready=RUNS) as server:
        assert (await server.get("/sessions"))[0] == 200


async def test_an_application_is_made_beside_a_foreign_module(tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text(FOREIGN)
    code = f"import sys; before = list(sys.path); {MAKE_APP}; assert sys.path == before"
    assert await run_python(code, tmp_path) == (0, "")


async def test_a_foreign_module_that_is_imported_already_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text("HELLO = 'world'\n")
    code, output = await run_python(f"import chat; {MAKE_APP}", tmp_path)
    assert code == 1
    last = output.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert str(tmp_path / "chat.py") in last
