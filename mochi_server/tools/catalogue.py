"""Every tool that there is, and which of them a session offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ToolNotFound
from ..sessions.types import ToolSettings
from .base import Problem, Tool, ToolSource


@dataclass(frozen=True, slots=True)
class Selection:
    """What a session offers to its model."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By name, in the order of the session's settings, then of its group."""
    unknown: Sequence[str] = ()
    """Names that the settings have and no source does."""


class ToolCatalogue:
    """The tools of all sources; an earlier source wins where two have one name."""

    def __init__(self, sources: Sequence[ToolSource] = ()) -> None:
        self.sources = list(sources)

    async def all(self) -> dict[str, Tool]:
        """Every tool by name, as it is now."""
        found: dict[str, Tool] = {}
        for source in self.sources:
            for tool in await source.tools():
                found.setdefault(tool.name, tool)
        return found

    async def get(self, name: str) -> Tool:
        """One tool.

        Raises:
            ToolNotFound: there is none of this name.
        """
        tool = (await self.all()).get(name)
        if tool is None:
            raise ToolNotFound(tool=name)
        return tool

    async def select(self, settings: ToolSettings | None) -> Selection:
        """What the settings enable: the named tools, and those of the group."""
        if settings is None or not (settings.tools or settings.tool_group):
            return Selection()
        found = await self.all()
        group = self.groups().get(settings.tool_group, ()) if settings.tool_group else ()
        wanted = dict.fromkeys([*settings.tools, *group])
        return Selection(
            {name: found[name] for name in wanted if name in found},
            [name for name in wanted if name not in found],
        )

    def groups(self) -> dict[str, list[str]]:
        """Names by group, of all sources, as they were found last."""
        groups: dict[str, list[str]] = {}
        for source in self.sources:
            for group, names in source.groups().items():
                groups.setdefault(group, []).extend(names)
        return groups

    def problems(self) -> list[Problem]:
        """What could not be used, as it was found last."""
        return [problem for source in self.sources for problem in source.problems()]

    async def reload(self) -> None:
        """Load everything again; running turns keep what they have."""
        for source in self.sources:
            await source.reload()

    async def aclose(self) -> None:
        """Close the sources; may be called again."""
        for source in self.sources:
            await source.aclose()
