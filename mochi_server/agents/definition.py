"""What is known about an agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from ..tools.base import LoadedFolder, Problem, Tool
from ..tools.folder.source import FunctionTool
from .folder import AgentFolder
from .own_files import own_file_tools
from .skill_file import SkillFile, SkillFileError

AGENT_TOOL = "agent"
"""The name of the tool that calls agents."""

SOURCE_PREFIX = "agent:"
"""Before the name of an agent: the ``Tool.source`` of its own tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent as its folder has it now, usable or not."""

    name: str
    """The folder's name."""
    path: Path
    """The folder."""
    description: str = ""
    """In one line; empty where ``SKILL.md`` cannot be read."""
    system_prompt: str = ""
    model: str | None = None
    """Null: that of the conversation which calls it."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Its own tools by name. Whoever holds them keeps them as they are, also over a reload."""
    agents: Sequence[str] = ()
    """Names of agents that it may call."""
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    allowed_tools: Sequence[str] | None = None
    """As ``SKILL.md`` has them; null where it does not say."""
    error_message: str | None = None
    """Why it cannot be used: ``coder/SKILL.md:3: …``."""
    problems: Sequence[Problem] = ()
    """All that is wrong, also what leaves it usable."""

    @property
    def valid(self) -> bool:
        """Whether it can be used."""
        return self.error_message is None


def assemble(
    folder: AgentFolder,
    skill: SkillFile | SkillFileError | None,
    loaded: LoadedFolder | None,
    *,
    scripts: Sequence[str],
    names: Collection[str],
    default_timeout: float | None,
) -> AgentDefinition:
    """The agent as it is now, with everything that is wrong about it.

    Args:
        folder: Its folder.
        skill: Its ``SKILL.md``, or why that cannot be read.
        loaded: Its tools, where it has Python files that could be loaded.
        scripts: Its programs that none of its tools can run.
        names: Of all agents.
        default_timeout: Seconds for a tool that names no time of its own.
    """
    if not isinstance(skill, SkillFile):
        return _broken(folder, skill)
    draft = _Draft(folder, skill)
    draft.check_skill_file()
    tools = draft.tools(loaded, default_timeout)
    draft.check_scripts(scripts)
    draft.check_agents(names)
    return AgentDefinition(
        name=folder.name,
        path=folder.path,
        description=skill.description,
        system_prompt=skill.system_prompt,
        model=skill.model,
        tools=tools,
        agents=[name for name in skill.agents if name in names],
        license=skill.license,
        compatibility=skill.compatibility,
        metadata=skill.metadata,
        allowed_tools=skill.allowed_tools,
        error_message=_message(folder, draft.fatal),
        problems=[*draft.fatal, *draft.others],
    )


def _broken(folder: AgentFolder, error: SkillFileError | None) -> AgentDefinition:
    """An agent without a ``SKILL.md`` that can be read."""
    if error is None:
        reason = "SKILL.md is missing, which says what the agent is for"
        problem = Problem(file=str(folder.path), line=None, reason=reason)
    else:
        file = str(folder.skill_file)
        problem = Problem(file=file, line=error.line, reason=error.reason)
    return AgentDefinition(
        name=folder.name,
        path=folder.path,
        error_message=_message(folder, [problem]),
        problems=[problem],
    )


class _Draft:
    """An agent whose ``SKILL.md`` is read, while its tools are looked at."""

    def __init__(self, folder: AgentFolder, skill: SkillFile) -> None:
        self.folder = folder
        self.skill = skill
        self.source = SOURCE_PREFIX + folder.name
        self.fatal: list[Problem] = []
        """Why it cannot be used."""
        self.others: list[Problem] = []

    def check_skill_file(self) -> None:
        """Note what the public format forbids and nothing here depends on."""
        for line, reason in self.skill.warnings:
            self._problem(reason, line)

    def check_scripts(self, scripts: Sequence[str]) -> None:
        """Note programs that nothing here can run."""
        if scripts:
            shown = ", ".join(scripts[:MOST_REASONS])
            more = len(scripts) - MOST_REASONS
            names = f"{shown} and {more} more" if more > 0 else shown
            reason = f"nothing here can run its scripts ({names}); the agent can only read them"
            self.others.append(Problem(file=str(self.folder.path), line=None, reason=reason))

    def tools(self, loaded: LoadedFolder | None, default_timeout: float | None) -> dict[str, Tool]:
        """What it may call, by name."""
        own: dict[str, Tool] = {}
        if self.folder.code is not None:
            own = self._allowed(self._functions(loaded, default_timeout))
        if self.folder.code is None or self.folder.has_files:
            for tool in own_file_tools(self.folder.path, source=self.source):
                own.setdefault(tool.name, tool)
        return own

    def _functions(
        self, loaded: LoadedFolder | None, default_timeout: float | None
    ) -> dict[str, Tool]:
        if loaded is None:
            reason = self.folder.missing_file() or "its tools were not loaded"
            self.fatal.append(Problem(file=str(self.folder.path), line=None, reason=reason))
            return {}
        found = loaded.description
        if not found.tools:
            self.fatal += [replace(each, severity="warning") for each in found.problems] or [
                Problem(file=found.folder, line=None, reason="no tool is exported in __all__")
            ]
            return {}
        self.others += found.problems
        return {
            each.name: FunctionTool(
                each, loaded, source=self.source, default_timeout=default_timeout
            )
            for each in found.tools
        }

    def _allowed(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """Those that ``allowed-tools`` names, where it is there."""
        wanted = self.skill.allowed_tools
        if wanted is None or not tools:
            return tools
        kept = {name: tool for name, tool in tools.items() if name in wanted}
        line = self.skill.allowed_tools_line
        if not kept:
            self._problem("allowed-tools names none of the agent's tools", line, fatal=True)
        for name in wanted:
            if name not in tools:
                self._problem(f"allowed-tools names {name!r}, which is no tool of it", line)
        return kept

    def check_agents(self, names: Collection[str]) -> None:
        """Note agents that are not there."""
        line = self.skill.agents_line
        for name in self.skill.agents:
            if name not in names:
                self._problem(f"agents names {name!r}, and there is no agent of this name", line)

    def _problem(self, reason: str, line: int | None, *, fatal: bool = False) -> None:
        problem = Problem(file=str(self.folder.skill_file), line=line, reason=reason)
        (self.fatal if fatal else self.others).append(problem)


MOST_REASONS = 3


def _message(folder: AgentFolder, fatal: list[Problem]) -> str | None:
    """``coder/coder.py:3: …; …``; null where nothing is fatal."""
    if not fatal:
        return None
    reasons = list(_reasons(folder, fatal[:MOST_REASONS]))
    if len(fatal) > MOST_REASONS:
        reasons.append(f"and {len(fatal) - MOST_REASONS} more")
    return "; ".join(reasons)


def _reasons(folder: AgentFolder, problems: list[Problem]) -> Iterator[str]:
    """With paths relative to the folder of all agents."""
    for problem in problems:
        place = problem.file
        for root in (folder.path, folder.path.resolve()):
            if problem.file.startswith(f"{root}"):
                place = folder.name + problem.file.removeprefix(f"{root}")
        line = f":{problem.line}" if problem.line is not None else ""
        yield f"{place}{line}: {problem.reason}"
