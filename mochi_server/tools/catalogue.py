"""Every tool that there is, and which of them a session offers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ..sessions.types import ToolSettings
from .base import Problem, Tool, ToolSource

MAX_WARNINGS = 20
"""Names in the settings of one session that are looked for among similar ones."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a session offers to its model."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By name, in the order of the session's settings, then of its group."""
    unknown: Sequence[str] = ()
    """Names in the settings that no source has."""
    unknown_group: str | None = None
    """The group of the settings, if no source has it."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The tools of all sources at one moment."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: Sequence[Problem] = ()

    def matching(self, patterns: Iterable[str]) -> Selection:
        """Return the tools that these names and patterns mean, and those that mean none."""
        tools: dict[str, Tool] = {}
        unknown = []
        for pattern in patterns:
            fitting = [name for name in self.tools if fnmatchcase(name, pattern)]
            tools.update((name, self.tools[name]) for name in fitting)
            if not fitting:
                unknown.append(pattern)
        return Selection(tools=tools, unknown=unknown)


class ToolCatalogue:
    """The tools of all sources; an earlier source wins where two have one name."""

    def __init__(self, sources: Sequence[ToolSource] = ()) -> None:
        self.sources = list(sources)
        self.problems: Sequence[Problem] = ()
        """What could not be used at the last inventory."""

    async def inventory(self) -> Inventory:
        """Return tools, groups and problems, as they are now and fitting each other.

        The sources are asked side by side: the first load of a package may take long.
        """
        tools: dict[str, Tool] = {}
        groups: dict[str, dict[str, None]] = {}
        problems: list[Problem] = []
        for found, groups_of_source, problems_of_source in await asyncio.gather(
            *map(_look_at, self.sources)
        ):
            clashes = [
                _clash(tool, tools[tool.name])
                for tool in found
                if tools.setdefault(tool.name, tool) is not tool
            ]
            for group, names in groups_of_source.items():
                groups.setdefault(group, {}).update(dict.fromkeys(names))
            problems += [*problems_of_source, *clashes]
        self.problems = problems  # without the tools: who holds one keeps its folder open
        return Inventory(tools, {group: list(names) for group, names in groups.items()}, problems)

    async def select(self, settings: ToolSettings | None) -> Selection:
        """Return what the settings enable: the named tools, and those of the group."""
        if settings is None or not (settings.tools or settings.tool_group):
            return Selection()
        selection = await self._select(settings)
        unknown, group = selection.unknown, selection.unknown_group
        if (unknown or group is not None) and await self.wait_for(unknown, group):
            return await self._select(settings)
        return selection

    async def wait_for(self, names: Collection[str], group: str | None = None) -> bool:
        """Wait a while for tools that are not there yet; see ``ToolSource.wait_for``."""
        return any([await source.wait_for(names, group) for source in self.sources])

    def missing(self, name: str, found: Inventory) -> Problem | None:
        """Say why an inventory has no tool of this name, or none that fits this pattern.

        None: nobody knows it; it is probably misspelt.
        """
        reasons = (source.missing(name) for source in self.sources)
        problems = (problem for problem in found.problems if problem.tool == name)
        return next(problems, None) or next(filter(None, reasons), None)

    async def _select(self, settings: ToolSettings) -> Selection:
        found = await self.inventory()
        group = settings.tool_group or None
        members = found.groups.get(group, ()) if group else ()
        wanted = dict.fromkeys([*settings.tools, *members])
        return Selection(
            tools={name: found.tools[name] for name in wanted if name in found.tools},
            unknown=[name for name in wanted if name not in found.tools],
            unknown_group=group if group not in found.groups else None,
        )

    async def warnings(self, settings: ToolSettings, *, agents: bool) -> list[str]:
        """Return a sentence for each name in the settings that nothing has, probably misspelt.

        ``agents``: the session has agents, whose tools it may name a policy for.
        """
        found = await self.inventory()
        policies = [] if agents else settings.tools_with_policies
        names = dict.fromkeys([*settings.tools, *policies])
        unknown = [name for name in names if name not in found.tools]
        warnings = [self._warning(name, found) for name in unknown[:MAX_WARNINGS]]
        if len(unknown) > MAX_WARNINGS:
            warnings.append(f"There are {len(unknown) - MAX_WARNINGS} more such names.")
        group = settings.tool_group
        if group and group not in found.groups:
            meant = suggestion(group, found.groups) or "."
            warnings.append(f"There is no group of tools {group!r}{meant}")
        return warnings

    def _warning(self, name: str, found: Inventory) -> str:
        if (problem := self.missing(name, found)) is not None:
            return f"The tool {name!r} cannot be used: {problem.reason}."
        return f"There is no tool {name!r}{suggestion(name, found.tools) or '.'}"

    async def reload(self) -> None:
        for source in self.sources:
            await source.reload()

    async def aclose(self) -> None:
        for source in self.sources:
            await source.aclose()


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean …?`` for a name that is like one of these, else nothing."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


async def _look_at(
    source: ToolSource,
) -> tuple[Sequence[Tool], Mapping[str, Sequence[str]], Sequence[Problem]]:
    """Return tools, groups and problems of a source, fitting each other."""
    return await source.tools(), source.groups(), source.problems()


def _clash(tool: Tool, first: Tool) -> Problem:
    details = tool.details
    return Problem(
        file=details.file if details else tool.source,
        line=details.line if details else None,
        reason=f"The name {tool.name!r} is taken by a tool of {first.source!r}, which comes first.",
        tool=tool.name,
    )
