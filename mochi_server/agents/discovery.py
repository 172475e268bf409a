"""Finds the agents in a folder, and notices what changes there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.aio import in_thread
from ..core.single_flight import LATE, ReloadOnChange
from ..errors import AgentInvalid, AgentNotFound
from ..tools.base import LoadedFolder, Problem, ToolLoader
from ..tools.folder.keeper import FolderKeeper
from ..tools.folder.snapshot import Look
from .definition import AgentDefinition, assemble
from .folder import TAKEN, AgentFolder, AgentsLook, Facts, look_at_agents
from .own_files import scripts_of
from .skill_file import SkillFile, SkillFileError, read_skill_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Agent:
    """What is known about one agent, and what that was read from."""

    folder: AgentFolder
    skill: SkillFile | SkillFileError | None
    loaded: LoadedFolder | None
    scripts: Sequence[str]
    """Programs in its folder that none of its tools can run."""


@dataclass(frozen=True, slots=True)
class _State:
    """What one load found."""

    look: AgentsLook | None = None
    agents: Mapping[str, _Agent] = field(default_factory=dict)
    definitions: Mapping[str, AgentDefinition] = field(default_factory=dict)

    @property
    def passing(self) -> bool:
        """Whether tools could not be loaded for a reason that is none of theirs."""
        return any(
            agent.loaded is not None and agent.loaded.description.passing
            for agent in self.agents.values()
        )


class AgentDiscoveryService:
    """The agents of one folder, usable or not; docs/reference/agents.md says what they may be.

    Nothing is read before the first question. Each question looks at the files first; only what has
    changed since is read and loaded again, and all of it by one call of the loader.
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
        """Say where the agents are.

        Args:
            agents_path: Their folder; it need not be there.
            loader: Loads their tools.
            default_timeout: Seconds for a tool that names no time of its own.
            agent_chats_path: A folder that is no agent, wherever it lies.
            stamp: A file whose change means: load everything again.
            quiet: Log neither agents nor problems, for callers who show them.
        """
        self.path = agents_path
        self._loader = loader
        self._default_timeout = default_timeout
        self._chats = agent_chats_path
        self._stamp = stamp
        self._quiet = quiet
        self._keeper = FolderKeeper()
        self._loads = ReloadOnChange(
            str(agents_path), snapshot=self._look, load=self._load, is_current=self._is_current
        )
        self._now = _State()

    async def agents(self) -> Mapping[str, AgentDefinition]:
        """All of them by name, as they are now, invalid ones too.

        Where a change takes long to load, as they were before; then a problem says so.
        """
        await self._loads.refresh()
        return self._now.definitions

    async def get(self, name: str) -> AgentDefinition:
        """One of them, which can be used.

        Raises:
            AgentNotFound: there is none of this name.
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
        """All that is wrong with agents, as ``agents()`` found it last."""
        problems = [problem for each in self._now.definitions.values() for problem in each.problems]
        if self._loads.late:
            problems.insert(0, self._problem(LATE))
        if self._now.look is not None and self._now.look.error is not None:
            problems.insert(0, self._problem(self._now.look.error))
        return problems

    def _problem(self, reason: str) -> Problem:
        return Problem(file=str(self.path), line=None, reason=reason)

    async def reload(self) -> None:
        """Load everything again, changed or not; whatever runs goes on with what it has."""
        await self._loads.refresh(anew=True)

    async def aclose(self) -> None:
        """Close the tools of all agents, held or not; may be called again."""
        await self._loads.aclose()
        await self._keeper.aclose()

    def _look(self) -> AgentsLook:
        return look_at_agents(self.path, agent_chats=self._chats, stamp=self._stamp)

    def _is_current(self, look: AgentsLook) -> bool:
        return self._now.look == look and not self._now.passing

    async def _load(self, look: AgentsLook, anew: bool) -> bool:  # noqa: FBT001 - a callback
        before = self._now
        anew = anew or before.look is None or before.look.stamp != look.stamp
        known = {} if anew else before.agents
        skills = await in_thread(_skills, look.agents, known)
        scripts = await in_thread(_scripts, look.agents)
        loaded = await self._code(look.agents, known)
        agents = {
            each.name: _Agent(each, skills[each.name], loaded.get(each.name), scripts[each.name])
            for each in look.agents
        }
        definitions = self._define(agents)
        self._now = _State(look, agents, definitions)
        if not self._quiet:
            _tell(definitions, before.definitions)
        return anew

    async def _code(
        self, folders: Sequence[AgentFolder], known: Mapping[str, _Agent]
    ) -> dict[str, LoadedFolder]:
        """The tools of each agent that has Python files, old ones where nothing has changed."""
        kept: dict[str, LoadedFolder] = {}
        wanted: list[AgentFolder] = []
        for folder in folders:
            loaded = _unchanged_code(folder, known.get(folder.name))
            if loaded is not None:
                kept[folder.name] = loaded
            elif folder.code is not None and folder.missing_file() is None:
                wanted.append(folder)
        if wanted:
            found = await self._loader.load([folder.spec for folder in wanted])
            for folder, loaded in zip(wanted, found, strict=True):
                kept[folder.name] = self._keeper.keep(loaded)
        return kept

    def _define(self, agents: Mapping[str, _Agent]) -> dict[str, AgentDefinition]:
        return {
            name: assemble(
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
    """What each ``SKILL.md`` says, or why it cannot be read; blocks."""
    return {folder.name: _skill(folder, known.get(folder.name)) for folder in folders}


def _skill(folder: AgentFolder, known: _Agent | None) -> SkillFile | SkillFileError | None:
    if folder.skill_file is None:
        return None
    if folder.name in TAKEN:
        reason = f"{folder.name!r} is a name that the server uses itself; rename the folder"
        return SkillFileError(reason, 1)
    if known is not None and _skill_key(known.folder) == _skill_key(folder):
        return known.skill
    try:
        return read_skill_file(folder.skill_file, folder.name)
    except SkillFileError as error:
        return error


def _scripts(folders: Sequence[AgentFolder]) -> dict[str, tuple[str, ...]]:
    """The scripts of each agent that has no Python of its own to run them; blocks."""
    return {
        folder.name: scripts_of(folder.path) if folder.code is None else () for folder in folders
    }


def _skill_key(folder: AgentFolder) -> tuple[Path | None, Facts | None]:
    return folder.skill_file, folder.skill_facts


def _unchanged_code(folder: AgentFolder, known: _Agent | None) -> LoadedFolder | None:
    if known is None or _code_key(known.folder) != _code_key(folder):
        return None
    loaded = known.loaded
    return None if loaded is not None and loaded.description.passing else loaded


def _code_key(folder: AgentFolder) -> tuple[Path, bool, Look | None]:
    return folder.path, folder.has_tools, folder.code


def _tell(new: Mapping[str, AgentDefinition], old: Mapping[str, AgentDefinition]) -> None:
    told = {problem for each in old.values() for problem in each.problems}
    for problem in (problem for each in new.values() for problem in each.problems):
        if problem not in told:
            logger.log(logging.INFO if problem.is_hint else logging.WARNING, "%s", problem)
    usable = sum(each.valid for each in new.values())
    logger.info("Found %d agents, %d of them usable", len(new), usable)
