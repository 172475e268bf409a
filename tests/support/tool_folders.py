"""Folders of tools for tests, processes that load them, and what became of those."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mochi_server.tools.loading import FolderSpec, LoadedFolder
from mochi_server.tools.process.loader import ProcessLoader
from mochi_server.tools.process.worker_process import WorkerOptions


def tool_folder(path: Path, code: str) -> FolderSpec:
    """A folder with this ``__init__.py``; functions get a docstring where they have none."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "__init__.py").write_text(textwrap.dedent(code), encoding="utf-8")
    return FolderSpec(path=path)


def children(pid: int | None = None) -> set[int]:
    """Processes that one has started, zombies too; without a number, this one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = status.read_bytes().rpartition(b")")[2].split()[1]
            if int(parent) == (pid or os.getpid()):
                found.add(int(status.parent.name))
    return found


@asynccontextmanager
async def process_loader(processes: int = 64, **options: Any) -> AsyncIterator[ProcessLoader]:
    loader = ProcessLoader(WorkerOptions(**options), processes=processes)
    try:
        yield loader
    finally:
        with anyio.fail_after(30):
            await loader.aclose()


@asynccontextmanager
async def loaded_folder(path: Path, code: str, **options: Any) -> AsyncIterator[LoadedFolder]:
    """A folder with this ``__init__.py``, in processes of a loader with these options."""
    async with process_loader(**options) as loader:
        [folder] = await loader.load([tool_folder(path, code)])
        yield folder


def is_gone(pid: int) -> bool:
    """Whether no thread of it runs; a process that nobody has reaped yet does not run."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return Path("/proc/self").exists()
