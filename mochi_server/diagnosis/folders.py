"""The folders of the data: there, readable, and writable where the server writes."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..config import MochiServerSettings
from ..core.aio import in_daemon_thread
from ..core.leases import is_locked
from ..core.progress import counted
from ..runtime import Runtime
from ..server.startup import folder_problem
from ..sessions.storage.file_operations import LEFTOVER, LEFTOVER_SECONDS
from .findings import Finding, error, note, ok, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One folder, and what the server does with it."""

    name: str
    path: Path
    setting: str
    needed: bool = True
    """Whether nothing can be stored without writing here."""
    code: bool = False
    """Whether what lies here is run."""


async def look_at_folders(runtime: Runtime) -> list[Finding]:
    """Rights of every folder of the data."""
    return await in_daemon_thread(_all, runtime.settings)


def _all(settings: MochiServerSettings) -> list[Finding]:
    data = Place(name="data", path=settings.within_data(Path()), setting="MOCHI_DATA_DIR")
    found = list(place_findings(data))
    if any(finding.level == "error" for finding in found):
        return found
    return [*found, *(each for place in _places(settings) for each in place_findings(place))]


def _places(settings: MochiServerSettings) -> Iterator[Place]:
    if settings.session_storage == "json":
        yield Place(name="sessions", path=settings.sessions_path, setting="MOCHI_SESSIONS_DIR")
        yield Place(
            name="sessions of agents",
            path=settings.agent_chats_path,
            setting="MOCHI_AGENT_CHATS_DIR",
        )
        # Its cache holds pickled Python.
        yield Place(
            name="state of processes", path=settings.state_path, setting="MOCHI_DATA_DIR", code=True
        )
    yield Place(
        name="tools", path=settings.tools_path, setting="MOCHI_TOOLS_DIR", needed=False, code=True
    )
    yield Place(
        name="agents",
        path=settings.agents_path,
        setting="MOCHI_AGENTS_DIR",
        needed=False,
        code=True,
    )
    yield Place(
        name="system prompts",
        path=settings.system_prompts_path,
        setting="MOCHI_SYSTEM_PROMPTS_DIR",
        needed=False,
    )


def place_findings(place: Place) -> Iterator[Finding]:
    """What is wrong with a folder, else where it is; blocks."""
    try:
        problem, there = _problem(place), place.path.exists()
    except OSError as failed:  # a folder above it may not be entered
        problem, there = f"{place.path} cannot be looked at: {failed.strerror}.", False
    if problem is not None:
        advice = f"Correct that (ls -ld, chown, chmod), or name another one: {place.setting}."
        yield error(f"{place.name}: {problem}", advice)
    elif not there:
        yield ok(f"{place.name}: {place.path} (not there yet)")
    elif place.code and place.path.stat().st_mode & stat.S_IWOTH:
        yield warning(
            f"{place.name}: {place.path} can be written by every user of this machine, and what "
            "lies there is run.",
            f"chmod o-w {place.path}",
        )
    else:
        yield ok(f"{place.name}: {place.path}")


def _problem(place: Place) -> str | None:
    path = place.path
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to nothing."
    read_only = not place.needed and path.is_dir()
    writable = None if read_only else folder_problem(path)
    if writable is None and path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        return f"{path} cannot be read."
    return writable if place.needed or path.exists() else None


async def look_at_leftovers(runtime: Runtime) -> list[Finding]:
    """Channels without a process, and old temporary files."""
    return await in_daemon_thread(lambda: list(_leftovers(runtime.settings)))


def _leftovers(settings: MochiServerSettings) -> Iterator[Finding]:
    channels = [path for path in _in(settings.state_path / "channels") if _is_left(path)]
    if channels:
        yield note(
            f"{channels[0].parent} has {counted(len(channels), 'channel')} of processes that died.",
            "Nothing: the next process that asks for a confirmation removes them.",
        )
    for folder in (settings.sessions_path, settings.agent_chats_path):
        files = [path for path in _in(folder) if LEFTOVER.fullmatch(path.name) and _is_old(path)]
        if files:
            yield note(
                f"{folder} has {counted(len(files), 'temporary file')} of processes that died, "
                f"such as {files[0].name}.",
                "Nothing: a server removes them when it lists the sessions.",
            )


def _in(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _is_left(channel: Path) -> bool:
    """Whether a channel has no process; one that is being made has another name."""
    with suppress(OSError):
        return not channel.name.startswith(".") and not is_locked(channel / "owner")
    return False


def _is_old(path: Path) -> bool:
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS
    return False
