"""The definition of an agent, made of what its folder has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from ..tools.base import LoadedFolder, Problem, Tool
from ..tools.folder.source import FunctionTool
from .file_tools import make_file_tools
from .folder import AgentFolder
from .skill_file import SkillFile, SkillFileError

AGENT_TOOL = "agent"
"""The name of the tool that calls agents."""

SOURCE_PREFIX = "agent:"
"""Before the name of an agent: the ``Tool.source`` of its own tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent, usable or not."""

    name: str
    """Name of its folder."""
    path: Path
    """Its folder."""
    description: str = ""
    """One line; empty if ``SKILL.md`` cannot be read."""
    system_prompt: str = ""
    model: str | None = None
    """Null for the model of the calling conversation."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Its own tools by name; they stay as they are after a reload, for calls that run."""
    agents: Sequence[str] = ()
    """Names of agents that it may call."""
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    allowed_tools: Sequence[str] | None = None
    """Names of tools in ``SKILL.md``; null without the key."""
    error_message: str | None = None
    """Why it cannot be used: ``coder/SKILL.md:3: …``."""
    problems: Sequence[Problem] = ()
    """All problems, also those with which it can be used."""

    @property
    def valid(self) -> bool:
        return self.error_message is None


def define_agent(
    folder: AgentFolder,
    skill: SkillFile | SkillFileError | None,
    loaded: LoadedFolder | None,
    *,
    scripts: Sequence[str],
    names: Collection[str],
    default_timeout: float | None,
) -> AgentDefinition:
    """Make the definition of an agent, with all its problems.

    Args:
        folder: Its folder.
        skill: Its ``SKILL.md``, or why that cannot be read.
        loaded: Its tools, if it has Python files that could be loaded.
        scripts: Its programs that none of its tools can run.
        names: Names of all agents.
        default_timeout: Seconds for a tool that names no time of its own.
    """
    if not isinstance(skill, SkillFile):
        return _broken(folder, skill)
    builder = _AgentBuilder(folder, skill)
    builder.check_skill_file()
    tools = builder.tools(loaded, default_timeout)
    builder.check_scripts(scripts)
    builder.check_agents(names)
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
        error_message=_message(folder, builder.fatal),
        problems=[*builder.fatal, *builder.others],
    )


def _broken(folder: AgentFolder, error: SkillFileError | None) -> AgentDefinition:
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


class _AgentBuilder:
    """Collects the tools and the problems of an agent whose ``SKILL.md`` was read."""

    def __init__(self, folder: AgentFolder, skill: SkillFile) -> None:
        self.folder = folder
        self.skill = skill
        self.source = SOURCE_PREFIX + folder.name
        self.fatal: list[Problem] = []
        """Problems with which the agent cannot be used."""
        self.others: list[Problem] = []

    def check_skill_file(self) -> None:
        """Note what the public format forbids and this server allows."""
        for line, reason in self.skill.warnings:
            self._problem(reason, line)

    def check_scripts(self, scripts: Sequence[str]) -> None:
        if scripts:
            shown = ", ".join(scripts[:MAX_REASONS])
            more = len(scripts) - MAX_REASONS
            names = f"{shown} and {more} more" if more > 0 else shown
            reason = f"nothing here can run its scripts ({names}); the agent can only read them"
            self.others.append(Problem(file=str(self.folder.path), line=None, reason=reason))

    def tools(self, loaded: LoadedFolder | None, default_timeout: float | None) -> dict[str, Tool]:
        own: dict[str, Tool] = {}
        if self.folder.code is not None:
            own = self._allowed(self._functions(loaded, default_timeout))
        if self.folder.code is None or self.folder.has_files:
            for tool in make_file_tools(self.folder.path, source=self.source):
                own.setdefault(tool.name, tool)
        return own

    def _functions(
        self, loaded: LoadedFolder | None, default_timeout: float | None
    ) -> dict[str, Tool]:
        if loaded is None:
            reason = self.folder.missing_file() or "its tools were not loaded"
            self.fatal.append(Problem(file=str(self.folder.path), line=None, reason=reason))
            return {}
        description = loaded.description
        if not description.tools:
            self.fatal += [replace(each, severity="warning") for each in description.problems] or [
                Problem(file=description.folder, line=None, reason="no tool is exported in __all__")
            ]
            return {}
        self.others += description.problems
        return {
            each.name: FunctionTool(
                each, loaded, source=self.source, default_timeout=default_timeout
            )
            for each in description.tools
        }

    def _allowed(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        allowed = self.skill.allowed_tools
        if allowed is None or not tools:
            return tools
        kept = {name: tool for name, tool in tools.items() if name in allowed}
        line = self.skill.allowed_tools_line
        if not kept:
            self._problem("allowed-tools names none of the agent's tools", line, fatal=True)
        for name in allowed:
            if name not in tools:
                self._problem(f"allowed-tools names {name!r}, which is no tool of it", line)
        return kept

    def check_agents(self, names: Collection[str]) -> None:
        line = self.skill.agents_line
        for name in self.skill.agents:
            if name not in names:
                self._problem(f"agents names {name!r}, and there is no agent of this name", line)

    def _problem(self, reason: str, line: int | None, *, fatal: bool = False) -> None:
        problem = Problem(file=str(self.folder.skill_file), line=line, reason=reason)
        (self.fatal if fatal else self.others).append(problem)


MAX_REASONS = 3


def _message(folder: AgentFolder, fatal: list[Problem]) -> str | None:
    """Return ``coder/coder.py:3: …; …``; None if nothing is fatal."""
    if not fatal:
        return None
    reasons = list(_reasons(folder, fatal[:MAX_REASONS]))
    if len(fatal) > MAX_REASONS:
        reasons.append(f"and {len(fatal) - MAX_REASONS} more")
    return "; ".join(reasons)


def _reasons(folder: AgentFolder, problems: list[Problem]) -> Iterator[str]:
    """Yield the reasons, with paths relative to the folder of all agents."""
    for problem in problems:
        place = problem.file
        for root in (folder.path, folder.path.resolve()):
            if problem.file.startswith(f"{root}"):
                place = folder.name + problem.file.removeprefix(f"{root}")
        line = f":{problem.line}" if problem.line is not None else ""
        yield f"{place}{line}: {problem.reason}"
