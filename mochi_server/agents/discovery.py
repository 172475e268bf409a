"""Finds the agents in a folder, and loads again what has changed there."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..core.aio import in_thread
from ..core.front_matter import FrontMatterError
from ..core.single_flight import LATE, ReloadOnChange
from ..errors import AgentInvalid, AgentNotFound
from ..tools.base import Problem
from ..tools.catalogue import Inventory, ToolCatalogue, suggestion
from ..tools.folder.source import FolderKeeper
from ..tools.loading import LoadedFolder, ToolLoader
from .definition import AgentBuilder, AgentDefinition, AgentFiles
from .file_tools import find_scripts
from .folder import RESERVED_NAMES, AgentFolder, AgentsSnapshot, take_snapshot
from .skill_file import SkillFile, read_skill_file

__all__ = ["AGENT_TOOL", "AgentDefinition", "AgentDiscoveryService"]

logger = logging.getLogger(__name__)

AGENT_TOOL = "agent"
"""The name of the tool that calls agents."""


class AgentDiscoveryService:
    """The agents of one folder, usable or not (docs/reference/agents.md).

    Nothing is read before the first call of ``agents`` or ``get``. Each call checks whether files
    have changed; only those are read again, and their tools loaded by one call of the loader.
    """

    def __init__(
        self,
        agents_path: Path,
        *,
        loader: ToolLoader,
        default_timeout: float | None,
        catalogue: ToolCatalogue | None = None,
        agent_chats_path: Path | None = None,
        stamp: Path | None = None,
        quiet: bool = False,
    ) -> None:
        """Keep the parts.

        Args:
            agents_path: Folder of the agents; it need not exist.
            loader: Loads their tools.
            default_timeout: Seconds for a tool that names no time of its own.
            catalogue: The server's tools, of which agents can select some; None: agents have only
                their own.
            agent_chats_path: A folder that is no agent, even among them.
            stamp: A file whose change means: load everything again.
            quiet: Whether to log neither agents nor problems, for callers who show them.
        """
        self.path = agents_path
        self._loader = loader
        self._catalogue = catalogue
        self._default_timeout = default_timeout
        self._quiet = quiet
        self._keeper = FolderKeeper()
        self._loads = ReloadOnChange(
            str(agents_path),
            snapshot=partial(take_snapshot, agents_path, agent_chats=agent_chats_path, stamp=stamp),
            load=self._load,
            is_current=self._is_current,
        )
        self._snapshot: AgentsSnapshot | None = None
        self._files: Mapping[str, AgentFiles] = {}
        self._definitions: Mapping[str, AgentDefinition] = {}
        """With their own tools only: who holds a tool keeps its folder open."""
        self._missing: Sequence[Problem] = ()

    async def agents(self) -> Mapping[str, AgentDefinition]:
        """Return all agents by name, invalid ones too.

        While a change takes long to load, these are the agents before it, and a problem says so.
        """
        await self._loads.refresh()
        if self._catalogue is None:
            return self._definitions
        return await self._with_selected_tools(self._catalogue)

    async def _with_selected_tools(self, catalogue: ToolCatalogue) -> Mapping[str, AgentDefinition]:
        """Return all agents, with the tools of the server that they select."""
        files, definitions = self._files, dict(self._definitions)
        selecting = [each for each in definitions.values() if each.valid and each.selected_tools]
        missing: list[Problem] = []
        found = await catalogue.inventory() if selecting else Inventory()
        for agent in selecting:
            names = [name for name in agent.selected_tools if name not in agent.tools]
            selection = found.matching(names)
            problems = [
                _missing_tool(files[agent.name], name, catalogue.missing(name, found), found.tools)
                for name in selection.unknown
            ]
            missing += problems
            definitions[agent.name] = replace(
                agent,
                tools={**agent.tools, **selection.tools, **agent.tools},
                missing_tools=selection.unknown,
                problems=[*agent.problems, *problems],
            )
        self._missing = missing
        return definitions

    async def get(self, name: str, *, wait: bool = False) -> AgentDefinition:
        """Return an agent that can be used.

        ``wait``: a while, for tools of servers that are started for the first time.

        Raises:
            AgentNotFound: there is no agent of this name.
            AgentInvalid: it cannot be used.
        """
        definition = (await self.agents()).get(name)
        if wait and definition is not None and definition.missing_tools and self._catalogue:
            await self._catalogue.wait_for(definition.missing_tools)
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
        reasons = [self._snapshot.error if self._snapshot else None]
        reasons.append(LATE if self._loads.late else None)
        return [
            *(Problem(file=str(self.path), line=None, reason=each) for each in reasons if each),
            *(problem for each in self._definitions.values() for problem in each.problems),
            *self._missing,
        ]

    async def reload(self) -> None:
        """Load everything again, changed or not; running calls keep the tools that they have."""
        await self._loads.refresh(anew=True)

    async def aclose(self) -> None:
        """Close the tools of all agents, in use or not; may be called again."""
        await self._loads.aclose()
        await self._keeper.aclose()

    def _is_current(self, snapshot: AgentsSnapshot) -> bool:
        is_transient = any(each.is_transient for each in self._files.values())
        return self._snapshot == snapshot and not is_transient

    async def _load(self, snapshot: AgentsSnapshot, anew: bool) -> bool:  # noqa: FBT001 - a callback
        anew = anew or self._snapshot is None or self._snapshot.stamp != snapshot.stamp
        known = {} if anew else self._files
        read = await in_thread(_read_files, snapshot.agents, known)
        loaded = await self._load_tools(snapshot.agents, known)
        files = {name: replace(each, loaded=loaded.get(name)) for name, each in read.items()}
        definitions = {
            name: AgentBuilder(each, files.keys(), self._default_timeout).build()
            for name, each in files.items()
        }
        if not self._quiet:
            _log_changes(definitions, self._definitions)
        self._snapshot, self._files, self._definitions = snapshot, files, definitions
        return anew

    async def _load_tools(
        self, folders: Sequence[AgentFolder], known: Mapping[str, AgentFiles]
    ) -> dict[str, LoadedFolder]:
        """Return the tools of each agent with Python files; keep those that have not changed."""
        loaded: dict[str, LoadedFolder] = {}
        changed: list[AgentFolder] = []
        for folder in folders:
            kept = _unchanged_tools(folder, known.get(folder.name))
            if kept is not None:
                loaded[folder.name] = kept
            elif folder.code is not None and folder.missing_file() is None:
                changed.append(folder)
        if changed:
            reloaded = await self._loader.load([folder.spec for folder in changed])
            for folder, each in zip(changed, reloaded, strict=True):
                loaded[folder.name] = self._keeper.keep(each)
        return loaded


def _read_files(
    folders: Sequence[AgentFolder], known: Mapping[str, AgentFiles]
) -> dict[str, AgentFiles]:
    """Read each ``SKILL.md`` that has changed, and look for scripts; blocks."""
    return {
        folder.name: AgentFiles(
            folder,
            skill=_read_skill(folder, known.get(folder.name)),
            loaded=None,
            scripts=find_scripts(folder.path) if folder.code is None else (),
        )
        for folder in folders
    }


def _read_skill(
    folder: AgentFolder, known: AgentFiles | None
) -> SkillFile | FrontMatterError | None:
    """Return the ``SKILL.md``, or why it cannot be read; None if there is none."""
    file, version = folder.skill_file, folder.skill_version
    if file is None:
        return None
    if folder.name in RESERVED_NAMES:
        reason = f"{folder.name!r} is a name that the server uses itself; rename the folder"
        return FrontMatterError(reason, 1)
    if known is not None and (known.folder.skill_file, known.folder.skill_version) == (
        file,
        version,
    ):
        return known.skill
    try:
        return read_skill_file(file, folder.name)
    except FrontMatterError as error:
        return error


def _unchanged_tools(folder: AgentFolder, known: AgentFiles | None) -> LoadedFolder | None:
    if known is None or known.is_transient:
        return None
    is_same = known.folder.spec == folder.spec and known.folder.code == folder.code
    return known.loaded if is_same else None


def _log_changes(new: Mapping[str, AgentDefinition], old: Mapping[str, AgentDefinition]) -> None:
    logged = {problem for each in old.values() for problem in each.problems}
    for problem in (problem for each in new.values() for problem in each.problems):
        if problem not in logged:
            logger.log(logging.INFO if problem.is_hint else logging.WARNING, "%s", problem)
    usable = sum(each.valid for each in new.values())
    logger.info("Found %d agents, %d of them usable", len(new), usable)


def _missing_tool(
    files: AgentFiles, name: str, problem: Problem | None, names: Collection[str]
) -> Problem:
    """Return the problem of an agent that selects a tool which is not there."""
    skill = files.skill
    reason = f"there is no such tool{suggestion(name, names)}"
    return Problem(
        file=str(files.folder.skill_file),
        line=skill.tools_line if isinstance(skill, SkillFile) else None,
        reason=f"tools names {name!r}, and {reason if problem is None else problem.reason}",
        severity="warning" if problem is None else problem.severity,
    )
