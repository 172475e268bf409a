"""Finds the agents in a folder, and loads again what has changed there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.aio import in_thread
from ..core.single_flight import LATE, ReloadOnChange
from ..errors import AgentInvalid, AgentNotFound
from ..tools.base import LoadedFolder, Problem, ToolLoader
from ..tools.folder.snapshot import FolderSnapshot
from ..tools.folder.source import FolderKeeper
from .definition import AgentDefinition, define_agent
from .file_tools import find_scripts
from .folder import RESERVED_NAMES, AgentFolder, AgentsSnapshot, FileVersion, take_snapshot
from .skill_file import SkillFile, SkillFileError, read_skill_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Agent:
    """One agent, as far as its files were read."""

    folder: AgentFolder
    skill: SkillFile | SkillFileError | None
    loaded: LoadedFolder | None
    scripts: Sequence[str]
    """Programs in its folder that none of its tools can run."""


@dataclass(frozen=True, slots=True)
class _LoadedAgents:
    """The result of one load."""

    snapshot: AgentsSnapshot | None = None
    agents: Mapping[str, _Agent] = field(default_factory=dict)
    definitions: Mapping[str, AgentDefinition] = field(default_factory=dict)

    @property
    def is_transient(self) -> bool:
        """Whether tools could not be loaded for a reason that may pass."""
        return any(
            agent.loaded is not None and agent.loaded.description.is_transient
            for agent in self.agents.values()
        )


class AgentDiscoveryService:
    """The agents of one folder, usable or not (docs/reference/agents.md).

    Nothing is read before the first question. Each question checks the files first; only what has
    changed is read and loaded again, and all of it by one call of the loader.
    """

    def __init__(
        self,
        agents_path: Path,
        *,
        loader: ToolLoader,
        default_timeout: float | None,
        agent_chats_path: Path | None = None,
        stamp: Path | None = None,
        quiet: bool = False,
    ) -> None:
        """Keep the parts.

        Args:
            agents_path: Folder of the agents; it need not exist.
            loader: Loads their tools.
            default_timeout: Seconds for a tool that names no time of its own.
            agent_chats_path: A folder that is no agent, even among them.
            stamp: A file whose change means: load everything again.
            quiet: Whether to log neither agents nor problems, for callers who show them.
        """
        self.path = agents_path
        self._loader = loader
        self._default_timeout = default_timeout
        self._chats = agent_chats_path
        self._stamp = stamp
        self._quiet = quiet
        self._keeper = FolderKeeper()
        self._loads = ReloadOnChange(
            str(agents_path),
            snapshot=self._take_snapshot,
            load=self._load,
            is_current=self._is_current,
        )
        self._loaded = _LoadedAgents()

    async def agents(self) -> Mapping[str, AgentDefinition]:
        """Return all agents by name, invalid ones too.

        While a change takes long to load, these are the agents before it, and a problem says so.
        """
        await self._loads.refresh()
        return self._loaded.definitions

    async def get(self, name: str) -> AgentDefinition:
        """Return an agent that can be used.

        Raises:
            AgentNotFound: there is no agent of this name.
            AgentInvalid: it cannot be used.
        """
        definition = (await self.agents()).get(name)
        if definition is None:
            raise AgentNotFound(agent=name)
        if definition.error_message is not None:
            problems = [problem.as_json() for problem in definition.problems]
            raise AgentInvalid(
                agent=name, reason=definition.error_message, details={"problems": [*problems]}
            )
        return definition

    def problems(self) -> Sequence[Problem]:
        """Return all that was wrong with agents in the last call of ``agents()``."""
        problems = [
            problem for each in self._loaded.definitions.values() for problem in each.problems
        ]
        if self._loads.late:
            problems.insert(0, self._problem(LATE))
        if self._loaded.snapshot is not None and self._loaded.snapshot.error is not None:
            problems.insert(0, self._problem(self._loaded.snapshot.error))
        return problems

    def _problem(self, reason: str) -> Problem:
        return Problem(file=str(self.path), line=None, reason=reason)

    async def reload(self) -> None:
        """Load everything again, changed or not; running calls keep the tools that they have."""
        await self._loads.refresh(anew=True)

    async def aclose(self) -> None:
        """Close the tools of all agents, in use or not; may be called again."""
        await self._loads.aclose()
        await self._keeper.aclose()

    def _take_snapshot(self) -> AgentsSnapshot:
        return take_snapshot(self.path, agent_chats=self._chats, stamp=self._stamp)

    def _is_current(self, snapshot: AgentsSnapshot) -> bool:
        return self._loaded.snapshot == snapshot and not self._loaded.is_transient

    async def _load(self, snapshot: AgentsSnapshot, anew: bool) -> bool:  # noqa: FBT001 - a callback
        before = self._loaded
        anew = anew or before.snapshot is None or before.snapshot.stamp != snapshot.stamp
        known = {} if anew else before.agents
        skills = await in_thread(_skills, snapshot.agents, known)
        scripts = await in_thread(_scripts, snapshot.agents)
        loaded = await self._code(snapshot.agents, known)
        agents = {
            each.name: _Agent(each, skills[each.name], loaded.get(each.name), scripts[each.name])
            for each in snapshot.agents
        }
        definitions = self._define(agents)
        self._loaded = _LoadedAgents(snapshot, agents, definitions)
        if not self._quiet:
            _log_changes(definitions, before.definitions)
        return anew

    async def _code(
        self, folders: Sequence[AgentFolder], known: Mapping[str, _Agent]
    ) -> dict[str, LoadedFolder]:
        """Return the tools of each agent with Python files; keep those that have not changed."""
        kept: dict[str, LoadedFolder] = {}
        changed: list[AgentFolder] = []
        for folder in folders:
            loaded = _unchanged_code(folder, known.get(folder.name))
            if loaded is not None:
                kept[folder.name] = loaded
            elif folder.code is not None and folder.missing_file() is None:
                changed.append(folder)
        if changed:
            reloaded = await self._loader.load([folder.spec for folder in changed])
            for folder, loaded in zip(changed, reloaded, strict=True):
                kept[folder.name] = self._keeper.keep(loaded)
        return kept

    def _define(self, agents: Mapping[str, _Agent]) -> dict[str, AgentDefinition]:
        return {
            name: define_agent(
                agent.folder,
                agent.skill,
                agent.loaded,
                scripts=agent.scripts,
                names=agents.keys(),
                default_timeout=self._default_timeout,
            )
            for name, agent in agents.items()
        }


def _skills(
    folders: Sequence[AgentFolder], known: Mapping[str, _Agent]
) -> dict[str, SkillFile | SkillFileError | None]:
    """Read each ``SKILL.md`` that has changed, or why it cannot be read; blocks."""
    return {folder.name: _skill(folder, known.get(folder.name)) for folder in folders}


def _skill(folder: AgentFolder, known: _Agent | None) -> SkillFile | SkillFileError | None:
    if folder.skill_file is None:
        return None
    if folder.name in RESERVED_NAMES:
        reason = f"{folder.name!r} is a name that the server uses itself; rename the folder"
        return SkillFileError(reason, 1)
    if known is not None and _skill_key(known.folder) == _skill_key(folder):
        return known.skill
    try:
        return read_skill_file(folder.skill_file, folder.name)
    except SkillFileError as error:
        return error


def _scripts(folders: Sequence[AgentFolder]) -> dict[str, tuple[str, ...]]:
    return {
        folder.name: find_scripts(folder.path) if folder.code is None else () for folder in folders
    }


def _skill_key(folder: AgentFolder) -> tuple[Path | None, FileVersion | None]:
    return folder.skill_file, folder.skill_version


def _unchanged_code(folder: AgentFolder, known: _Agent | None) -> LoadedFolder | None:
    if known is None or _code_key(known.folder) != _code_key(folder):
        return None
    loaded = known.loaded
    return None if loaded is not None and loaded.description.is_transient else loaded


def _code_key(folder: AgentFolder) -> tuple[Path, bool, FolderSnapshot | None]:
    return folder.path, folder.has_tools, folder.code


def _log_changes(new: Mapping[str, AgentDefinition], old: Mapping[str, AgentDefinition]) -> None:
    logged = {problem for each in old.values() for problem in each.problems}
    for problem in (problem for each in new.values() for problem in each.problems):
        if problem not in logged:
            logger.log(logging.INFO if problem.is_hint else logging.WARNING, "%s", problem)
    usable = sum(each.valid for each in new.values())
    logger.info("Found %d agents, %d of them usable", len(new), usable)
