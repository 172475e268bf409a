"""What lies in the folder of the agents, without running or reading any of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..tools.base import TAKEN_IN_TURNS, FolderSpec
from ..tools.folder.snapshot import Look, look_at
from .own_files import is_hidden
from .skill_file import SKILL_FILES

RELOAD_STAMP = "reload-agents"
"""The stamp's name below ``MochiServerSettings.state_path``."""

AGENT_CHATS = "agent_chats"
TAKEN = frozenset({"chats", "reload"})
"""``/agents/chats`` and ``/agents/reload`` are no agents."""
TOOLS = "tools"
INIT = "__init__.py"
README = "readme.md"
"""In small letters; it is for people, and gives an agent with tools no more of them."""

MOST_AGENTS = 1_000
MOST_ENTRIES = 10_000
"""Entries directly below one agent's folder that are looked at."""

Facts = tuple[int, int, int]
"""Time, size and inode; a file has changed when one of them has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    """An agent's folder at one moment; two are equal when nothing has changed that matters."""

    path: Path
    skill_file: Path | None
    """Null: there is none."""
    skill_facts: Facts | None
    modules: tuple[str, ...]
    """Python files directly in the folder."""
    has_tools: bool
    """Whether a ``tools`` folder with Python files is there, which then counts alone."""
    has_files: bool
    """Whether other files are there, for the agent to read."""
    code: Look | None
    """Of the Python files that are imported; null where there are none."""

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path.name

    @property
    def is_agent(self) -> bool:
        """Whether this is meant as an agent: other folders may lie beside them."""
        return self.skill_file is not None or self.code is not None

    @property
    def spec(self) -> FolderSpec:
        """What is loaded for its tools."""
        if self.has_tools:
            return FolderSpec(path=self.path / TOOLS, taken=TAKEN_IN_TURNS)
        return FolderSpec(path=self.path, subfolders=False, taken=TAKEN_IN_TURNS)

    def missing_file(self) -> str | None:
        """Why its Python files cannot be its tools; null where all are there that must be."""
        if self.code is None or self.has_tools:
            return None
        names = dict.fromkeys([f"{self.name}.py", f"{self.name.replace('-', '_')}.py"])
        if INIT not in self.modules:
            return f"{INIT} is missing, which exports the tools in __all__"
        if not any(name in self.modules for name in names):
            return f"{' or '.join(names)} is missing, which has the tools"
        return None


@dataclass(frozen=True, slots=True)
class AgentsLook:
    """The folder of all agents at one moment."""

    agents: tuple[AgentFolder, ...]
    """By name."""
    stamp: Facts | None
    error: str | None = None
    """Why the folder cannot be looked at, though it is there, or not at all of it."""


def look_at_agents(
    folder: Path, *, agent_chats: Path | None = None, stamp: Path | None = None
) -> AgentsLook:
    """Look at every agent's folder, and at the stamp; blocks.

    Folders whose name begins with ``_`` or ``.`` are skipped, as is the one of the agents' chats.
    """
    facts = _facts(stamp) if stamp is not None else None
    try:
        names = sorted(_names(folder))
    except FileNotFoundError:
        return AgentsLook((), facts)
    except OSError as error:
        return AgentsLook((), facts, f"cannot be read: {error.strerror}")
    left_out = None
    if len(names) > MOST_AGENTS:
        names = names[:MOST_AGENTS]
        left_out = f"has more than {MOST_AGENTS:,} folders; those after {names[-1]!r} are left out"
    found = (look_at_agent(folder / name) for name in names if folder / name != agent_chats)
    return AgentsLook(tuple(each for each in found if each.is_agent), facts, left_out)


def _names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(("_", ".")) and entry.name != AGENT_CHATS:
                # A name that is no Unicode can be no agent's, nor be told to anybody.
                with contextlib.suppress(OSError, UnicodeEncodeError):
                    entry.name.encode()
                    if entry.is_dir():
                        yield entry.name


def look_at_agent(path: Path) -> AgentFolder:
    """Look at one; blocks."""
    entries = _entries(path)
    modules = tuple(sorted(name for name in entries if name.endswith(".py")))
    skill_file = next((path / name for name in SKILL_FILES if name in entries), None)
    tools = look_at(path / TOOLS) if TOOLS in entries else None
    has_tools = tools is not None and not tools.empty
    code = tools if has_tools else (look_at(path) if modules else None)
    return AgentFolder(
        path=path,
        skill_file=skill_file,
        skill_facts=_facts(skill_file) if skill_file else None,
        modules=modules,
        has_tools=has_tools,
        has_files=any(_is_own_file(path, entry, has_tools=has_tools) for entry in entries.values()),
        code=code,
    )


def _is_own_file(path: Path, entry: os.DirEntry[str], *, has_tools: bool) -> bool:
    """Whether it is something for the agent to read: neither its prompt, its code nor a README."""
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
    found: dict[str, os.DirEntry[str]] = {}
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            found[entry.name] = entry
            if len(found) == MOST_ENTRIES:
                break
    return found


def _facts(path: Path) -> Facts | None:
    with contextlib.suppress(OSError):
        status = path.lstat()
        return (status.st_mtime_ns, status.st_size, status.st_ino)
    return None
