"""Snapshots of the folder of agents, taken without reading or running its files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..core.parsed_file import FileVersion, file_version
from ..tools.folder.snapshot import FolderSnapshot, check_folder
from ..tools.loading import RESERVED_IN_CHATS, FolderSpec
from .file_tools import is_hidden
from .skill_file import SKILL_FILES

RELOAD_STAMP = "reload-agents"

AGENT_CHATS = "agent_chats"
RESERVED_NAMES = frozenset({"chats", "reload"})
"""Names of agents that would hide ``/agents/chats`` and ``/agents/reload``."""
TOOLS = "tools"
INIT = "__init__.py"
README = "readme.md"
"""In small letters. It is for people: an agent with tools gets no file tools for it."""

MAX_AGENTS = 1_000
MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    """An agent's folder at one moment; equal to a later one if nothing has changed that matters."""

    path: Path
    skill_file: Path | None
    skill_version: FileVersion | None
    modules: tuple[str, ...]
    has_tools: bool
    """Whether there is a ``tools`` folder with Python files, which then is the only code."""
    has_files: bool
    code: FolderSnapshot | None
    """Snapshot of the Python files that are imported; null if there are none."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_agent(self) -> bool:
        return self.skill_file is not None or self.code is not None

    @property
    def spec(self) -> FolderSpec:
        if self.has_tools:
            return FolderSpec(path=self.path / TOOLS, reserved=RESERVED_IN_CHATS)
        return FolderSpec(path=self.path, subfolders=False, reserved=RESERVED_IN_CHATS)

    def missing_file(self) -> str | None:
        """Return why its Python files cannot be its tools; None if no file is missing."""
        if self.code is None or self.has_tools:
            return None
        names = dict.fromkeys([f"{self.name}.py", f"{self.name.replace('-', '_')}.py"])
        if INIT not in self.modules:
            return f"{INIT} is missing, which exports the tools in __all__"
        if not any(name in self.modules for name in names):
            return f"{' or '.join(names)} is missing, which has the tools"
        return None


@dataclass(frozen=True, slots=True)
class AgentsSnapshot:
    """The folder of all agents at one moment."""

    agents: tuple[AgentFolder, ...]
    stamp: FileVersion | None
    error: str | None = None
    """Why the folder, or a part of it, cannot be read."""


def take_snapshot(
    folder: Path, *, agent_chats: Path | None = None, stamp: Path | None = None
) -> AgentsSnapshot:
    """Take a snapshot of every agent's folder and of the reload stamp; blocks.

    Folders whose name begins with ``_`` or ``.`` are skipped, and that of the agents' chats.
    """
    stamp_version = _version_of(stamp)
    try:
        names = sorted(_names(folder))
    except FileNotFoundError:
        return AgentsSnapshot((), stamp_version)
    except OSError as error:
        return AgentsSnapshot((), stamp_version, f"cannot be read: {error.strerror}")
    left_out = None
    if len(names) > MAX_AGENTS:
        names = names[:MAX_AGENTS]
        left_out = f"has more than {MAX_AGENTS:,} folders; those after {names[-1]!r} are left out"
    folders = (_agent_folder(folder / name) for name in names if folder / name != agent_chats)
    return AgentsSnapshot(tuple(each for each in folders if each.is_agent), stamp_version, left_out)


def _names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(("_", ".")) and entry.name != AGENT_CHATS:
                # A name that is no Unicode can be no agent's, nor be told to anybody.
                with contextlib.suppress(OSError, UnicodeEncodeError):
                    entry.name.encode()
                    if entry.is_dir():
                        yield entry.name


def _agent_folder(path: Path) -> AgentFolder:
    entries = _entries(path)
    modules = tuple(sorted(name for name in entries if name.endswith(".py")))
    skill_file = next((path / name for name in SKILL_FILES if name in entries), None)
    tools = check_folder(path / TOOLS) if TOOLS in entries else None
    has_tools = tools is not None and not tools.is_empty
    code = tools if has_tools else (check_folder(path) if modules else None)
    return AgentFolder(
        path=path,
        skill_file=skill_file,
        skill_version=_version_of(skill_file),
        modules=modules,
        has_tools=has_tools,
        has_files=any(_is_own_file(path, entry, has_tools=has_tools) for entry in entries.values()),
        code=code,
    )


def _is_own_file(path: Path, entry: os.DirEntry[str], *, has_tools: bool) -> bool:
    """Return whether the agent may want to read it: no prompt, no code, no README."""
    name = entry.name
    if is_hidden(name) or name in SKILL_FILES or name.endswith(".py"):
        return False
    if name.lower() == README:
        return False
    if has_tools and name == TOOLS:
        return False
    if entry.is_dir(follow_symlinks=False):
        return not (path / name / INIT).exists()
    return entry.is_file(follow_symlinks=False)


def _entries(path: Path) -> dict[str, os.DirEntry[str]]:
    by_name: dict[str, os.DirEntry[str]] = {}
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in islice(entries, MAX_ENTRIES):
            by_name[entry.name] = entry
    return by_name


def _version_of(path: Path | None) -> FileVersion | None:
    with contextlib.suppress(OSError):
        return None if path is None else file_version(path)
    return None
