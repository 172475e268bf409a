"""What an agent is, and how it is made of the files in its folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import JsonValue

from ..core.front_matter import FrontMatterError
from ..tools.base import Problem, Tool
from ..tools.folder.source import function_tools
from ..tools.loading import LoadedFolder
from .file_tools import make_file_tools
from .folder import AgentFolder
from .skill_file import SkillFile

SOURCE_PREFIX = "agent:"
"""Before the name of an agent: the ``Tool.source`` of its own tools."""

MAX_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent, usable or not."""

    name: str
    path: Path
    description: str = ""
    """One line; empty if ``SKILL.md`` cannot be read."""
    system_prompt: str = ""
    model: str | None = None
    """None for the model of the calling conversation."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By name, its own first; they stay as they are after a reload, for calls that run."""
    selected_tools: Sequence[str] = ()
    """Names and patterns in ``SKILL.md`` of tools of the server, which are among ``tools``."""
    missing_tools: Sequence[str] = ()
    """Those of them that no tool fits."""
    agents: Sequence[str] = ()
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    allowed_tools: Sequence[str] | None = None
    """Names of tools in ``SKILL.md``; None without the key."""
    error_message: str | None = None
    """Why it cannot be used: ``coder/SKILL.md:3: …``."""
    problems: Sequence[Problem] = ()
    """All problems, also those with which it can be used."""

    @property
    def valid(self) -> bool:
        return self.error_message is None


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """What was read of an agent's folder."""

    folder: AgentFolder
    skill: SkillFile | FrontMatterError | None
    loaded: LoadedFolder | None
    """Its tools, if it has Python files that could be loaded."""
    scripts: Sequence[str]
    """Programs in its folder that none of its tools can run."""

    @property
    def is_transient(self) -> bool:
        """Whether its tools could not be loaded for a reason that may pass."""
        return self.loaded is not None and self.loaded.description.is_transient


class AgentBuilder:
    """Makes the definition of an agent with its problems; ``names`` are those of all agents."""

    def __init__(
        self, files: AgentFiles, names: Collection[str], default_timeout: float | None
    ) -> None:
        self.files = files
        self.folder = files.folder
        self.names = names
        self.default_timeout = default_timeout
        self.source = SOURCE_PREFIX + files.folder.name
        self.fatal: list[Problem] = []
        """Problems with which the agent cannot be used."""
        self.others: list[Problem] = []

    def build(self) -> AgentDefinition:
        skill = self.files.skill
        if skill is None:
            reason = "SKILL.md is missing, which says what the agent is for"
            self._fatal_problem(self.folder.path, reason)
        elif isinstance(skill, FrontMatterError):
            self._fatal_problem(self.folder.skill_file, skill.reason, skill.line)
        if not isinstance(skill, SkillFile):
            return self._definition()
        for line, reason in skill.warnings:  # the public format forbids it, this server does not
            self._problem(reason, line)
        tools = self._tools(skill)
        self._check_scripts()
        for name in skill.agents:
            if name not in self.names:
                reason = f"agents names {name!r}, and there is no agent of this name"
                self._problem(reason, skill.agents_line)
        return replace(
            self._definition(),
            description=skill.description,
            system_prompt=skill.system_prompt,
            model=skill.model,
            tools=tools,
            agents=[name for name in skill.agents if name in self.names],
            selected_tools=skill.tools,
            license=skill.license,
            compatibility=skill.compatibility,
            metadata=skill.metadata,
            allowed_tools=skill.allowed_tools,
        )

    def _definition(self) -> AgentDefinition:
        return AgentDefinition(
            name=self.folder.name,
            path=self.folder.path,
            error_message=self._message(),
            problems=[*self.fatal, *self.others],
        )

    def _check_scripts(self) -> None:
        if scripts := self.files.scripts:
            names = ", ".join(scripts[:MAX_REASONS])
            if len(scripts) > MAX_REASONS:
                names += f" and {len(scripts) - MAX_REASONS} more"
            reason = f"nothing here can run its scripts ({names}); the agent can only read them"
            self.others.append(Problem(file=str(self.folder.path), line=None, reason=reason))

    def _tools(self, skill: SkillFile) -> dict[str, Tool]:
        own: dict[str, Tool] = {}
        if self.folder.code is not None:
            own = self._allowed(self._functions(), skill)
        if self.folder.code is None or self.folder.has_files:
            for tool in make_file_tools(self.folder.path, source=self.source):
                own.setdefault(tool.name, tool)
        return own

    def _functions(self) -> dict[str, Tool]:
        loaded = self.files.loaded
        if loaded is None:
            reason = self.folder.missing_file() or "its tools were not loaded"
            self._fatal_problem(self.folder.path, reason)
            return {}
        description = loaded.description
        if not description.tools:
            # Hints too: functions that were left out may be why there is no tool.
            self.fatal += [replace(each, severity="warning") for each in description.problems]
            if not description.problems:
                self._fatal_problem(description.folder, "no tool is exported in __all__")
            return {}
        self.others += description.problems
        tools = function_tools(loaded, self.source, self.default_timeout)
        return {tool.name: tool for tool in tools}

    def _allowed(self, tools: dict[str, Tool], skill: SkillFile) -> dict[str, Tool]:
        allowed, line = skill.allowed_tools, skill.allowed_tools_line
        if allowed is None or not tools:
            return tools
        kept = {name: tool for name, tool in tools.items() if name in allowed}
        if not kept:
            reason = "allowed-tools names none of the agent's tools"
            self._fatal_problem(self.folder.skill_file, reason, line)
        for name in allowed:
            if name not in tools and not any(fnmatchcase(name, each) for each in skill.tools):
                self._problem(f"allowed-tools names {name!r}, which is no tool of it", line)
        return kept

    def _problem(self, reason: str, line: int | None) -> None:
        self.others.append(Problem(file=str(self.folder.skill_file), line=line, reason=reason))

    def _fatal_problem(self, file: Path | str | None, reason: str, line: int | None = None) -> None:
        self.fatal.append(Problem(file=str(file), line=line, reason=reason))

    def _message(self) -> str | None:
        """Return ``coder/coder.py:3: …; …``; None if nothing is fatal."""
        if not self.fatal:
            return None
        reasons = list(map(self._reason, self.fatal[:MAX_REASONS]))
        if len(self.fatal) > MAX_REASONS:
            reasons.append(f"and {len(self.fatal) - MAX_REASONS} more")
        return "; ".join(reasons)

    def _reason(self, problem: Problem) -> str:
        """Return the reason, with a path relative to the folder of all agents."""
        file = problem.file
        for root in (self.folder.path, self.folder.path.resolve()):
            if problem.file.startswith(f"{root}"):
                file = self.folder.name + problem.file.removeprefix(f"{root}")
        line = f":{problem.line}" if problem.line is not None else ""
        return f"{file}{line}: {problem.reason}"
