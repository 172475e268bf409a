"""The folders of the data: there, readable, and writable where the server writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..config import MochiServerSettings
from ..core.aio import in_daemon_thread
from ..runtime import Runtime
from ..server.startup import folder_problem
from .findings import Finding, error, ok, warning


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
