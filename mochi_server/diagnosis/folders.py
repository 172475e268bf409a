"""The folders of the data: their rights, room on their disks, and what crashes have left."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..config import MochiServerSettings
from ..core.aio import in_daemon_thread
from ..core.progress import counted
from ..runtime import Runtime
from ..server.startup import folder_problem
from ..sessions.storage.file_operations import LEFTOVER, LEFTOVER_SECONDS
from .findings import Finding, error, note, ok, warning

LITTLE_SPACE, NO_SPACE = 1_000_000_000, 100_000_000
"""Bytes below which there is a warning, and an error."""
FEW_INODES, NO_INODES = 10_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """One folder, and what the server does with it."""

    name: str
    path: Path
    setting: str
    needed: bool = True
    """Whether nothing can be stored without writing here."""
    code: bool = False
    """Whether what lies here is run."""


async def check_folders(runtime: Runtime) -> list[Finding]:
    """Check the rights of every folder of the data."""
    return await in_daemon_thread(_all_findings, runtime.settings)


def _all_findings(settings: MochiServerSettings) -> list[Finding]:
    data = DataFolder(name="data", path=settings.within_data(Path()), setting="MOCHI_DATA_DIR")
    findings = list(folder_findings(data))
    if any(finding.level == "error" for finding in findings):
        return findings
    for folder in _folders(settings):
        findings += folder_findings(folder)
    return findings


def _folders(settings: MochiServerSettings) -> Iterator[DataFolder]:
    if settings.session_storage == "json":
        yield DataFolder(name="sessions", path=settings.sessions_path, setting="MOCHI_SESSIONS_DIR")
        yield DataFolder(
            name="sessions of agents",
            path=settings.agent_chats_path,
            setting="MOCHI_AGENT_CHATS_DIR",
        )
        # Its cache holds pickled Python.
        yield DataFolder(
            name="state of processes", path=settings.state_path, setting="MOCHI_DATA_DIR", code=True
        )
    for name, path, setting, code in (
        ("tools", settings.tools_path, "MOCHI_TOOLS_DIR", True),
        ("agents", settings.agents_path, "MOCHI_AGENTS_DIR", True),
        ("system prompts", settings.system_prompts_path, "MOCHI_SYSTEM_PROMPTS_DIR", False),
    ):
        yield DataFolder(name=name, path=path, setting=setting, needed=False, code=code)


def folder_findings(folder: DataFolder) -> Iterator[Finding]:
    """Say what is wrong with a folder, else where it is; blocks."""
    try:
        problem, exists = _problem(folder), folder.path.exists()
    except OSError as failed:  # a folder above it may not be entered
        problem, exists = f"{folder.path} cannot be looked at: {failed.strerror}.", False
    if problem is not None:
        advice = f"Correct that (ls -ld, chown, chmod), or name another one: {folder.setting}."
        yield error(f"{folder.name}: {problem}", advice)
    elif not exists:
        yield ok(f"{folder.name}: {folder.path} (not there yet)")
    elif folder.code and folder.path.stat().st_mode & stat.S_IWOTH:
        yield warning(
            f"{folder.name}: {folder.path} can be written by every user of this machine, and what "
            "lies there is run.",
            f"chmod o-w {folder.path}",
        )
    else:
        yield ok(f"{folder.name}: {folder.path}")


def _problem(folder: DataFolder) -> str | None:
    path = folder.path
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to nothing."
    read_only = not folder.needed and path.is_dir()
    problem = None if read_only else folder_problem(path)
    if problem is None and path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        return f"{path} cannot be read."
    return problem if folder.needed or path.exists() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """What is left on the file system of a folder."""

    path: Path
    free: int
    """Bytes for users."""
    inodes: int | None
    """Files that can still be made; None where the file system does not count them."""


async def check_space(runtime: Runtime) -> list[Finding]:
    """Check the room for what is written, on each file system once."""
    settings = runtime.settings
    written = [settings.models_path]
    if settings.session_storage != "memory":
        written = [settings.sessions_path, settings.agent_chats_path, settings.models_path]
    return [space_finding(space) for space in await in_daemon_thread(_spaces, written)]


def _spaces(folders: Iterable[Path]) -> list[DiskSpace]:
    """Return the space of each file system, seen from the nearest folder that exists."""
    spaces: dict[int, DiskSpace] = {}
    for folder in folders:
        nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - raises nothing
        status = os.statvfs(nearest)
        space = DiskSpace(
            path=nearest,
            free=status.f_bavail * status.f_frsize,
            inodes=status.f_favail if status.f_files else None,
        )
        spaces.setdefault(nearest.stat().st_dev, space)
    return list(spaces.values())


def space_finding(space: DiskSpace) -> Finding:
    """Say whether there is enough room."""
    files = f" and {space.inodes:,} files" if space.inodes is not None else ""
    text = f"Room for {_size(space.free)}{files} at {space.path}."
    advice = "Remove what is not needed, or name another disk by MOCHI_DATA_DIR."
    inodes = FEW_INODES if space.inodes is None else space.inodes
    if space.free < NO_SPACE or inodes < NO_INODES:
        return error(text, advice)
    if space.free < LITTLE_SPACE or inodes < FEW_INODES:
        return warning(text, advice)
    return ok(text)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"  # noqa: PLR2004


async def check_leftovers(runtime: Runtime) -> list[Finding]:
    """Find temporary files of processes that crashed; they go by themselves.

    Lock files that nobody holds are none: they stay for the next time. Whether a lock is held is
    not tried either: who tries has it for a moment, and may refuse a turn by that.
    """
    return await in_daemon_thread(lambda: list(_leftovers(runtime.settings)))


def _leftovers(settings: MochiServerSettings) -> Iterator[Finding]:
    for folder in (settings.sessions_path, settings.agent_chats_path):
        files: list[Path] = []
        with suppress(OSError):
            files = sorted(path for path in folder.iterdir() if _is_leftover(path))
        if files:
            yield note(
                f"{folder} has {counted(len(files), 'temporary file')} of processes that died, "
                f"such as {files[0].name}.",
                "Nothing: a server removes them when it lists the sessions.",
            )


def _is_leftover(path: Path) -> bool:
    with suppress(OSError):
        is_old = time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS
        return is_old and LEFTOVER.fullmatch(path.name) is not None
    return False
