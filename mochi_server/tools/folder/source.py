"""A folder of the user's Python functions as a source of tools."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.single_flight import LATE, ReloadOnChange
from ..base import FolderDescription, FolderSpec, Problem, ToolLoader, ToolSource
from ..function_tool import FunctionTool
from .keeper import FolderKeeper
from .snapshot import FolderSnapshot, check_folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LoadedTools:
    description: FolderDescription
    snapshot: FolderSnapshot | None = None
    """The folder when it was loaded; None before the first load."""
    tools: tuple[FunctionTool, ...] = ()


class DirectorySource(ToolSource):
    """The tools of one folder; loads them again when a file has changed, or the stamp.

    Nothing is loaded before the first ``tools()``, nor where the folder has no Python file.

    Args:
        folder: It need not exist.
        loader: Loads the folder.
        default_timeout: Seconds for a tool that has no time of its own; None for no limit.
        stamp: A file whose change means: load again, even if the folder has not changed.
        name: Of the source.
    """

    def __init__(
        self,
        folder: Path,
        *,
        loader: ToolLoader,
        default_timeout: float | None,
        stamp: Path | None = None,
        name: str = "directory",
    ) -> None:
        self.name = name
        self._spec = FolderSpec(path=folder)
        self._loader = loader
        self._stamp = stamp
        self._default_timeout = default_timeout
        self._keeper = FolderKeeper()
        self._reloads = ReloadOnChange(
            str(folder), snapshot=self._check, load=self._load, is_current=self._is_current
        )
        self._loaded = _LoadedTools(FolderDescription(folder=str(folder)))

    async def tools(self) -> Sequence[FunctionTool]:
        """Return the tools with every change that was made before this call.

        If a change takes long to load, these are the earlier tools, and a problem says so.
        """
        await self._reloads.refresh()
        return self._loaded.tools

    def groups(self) -> Mapping[str, Sequence[str]]:
        return self._loaded.description.groups

    def problems(self) -> Sequence[Problem]:
        problems = self._loaded.description.problems
        if self._reloads.late:
            return (Problem(file=str(self._spec.path), line=None, reason=LATE), *problems)
        return problems

    async def reload(self) -> None:
        """Load again; callers at one time share a load that begins after they called."""
        await self._reloads.refresh(anew=True)

    async def aclose(self) -> None:
        """Load nothing any more; tools that are still held fail from now on."""
        await self._reloads.aclose()
        await self._keeper.aclose()

    def _check(self) -> FolderSnapshot:
        return check_folder(self._spec.path, self._stamp)

    def _is_current(self, snapshot: FolderSnapshot) -> bool:
        return self._loaded.snapshot == snapshot and not self._loaded.description.is_transient

    async def _load(self, snapshot: FolderSnapshot, _anew: bool) -> bool:  # noqa: FBT001 - a callback
        if snapshot.is_empty:
            empty = FolderDescription(folder=str(self._spec.path))
            self._loaded = _LoadedTools(empty, snapshot)
            return True
        [loaded] = await self._loader.load([self._spec])
        folder = self._keeper.keep(loaded)
        description = folder.description
        for problem in description.problems:
            logger.log(logging.INFO if problem.is_hint else logging.WARNING, "%s", problem)
        logger.info("Loaded %d tools of %s", len(description.tools), description.folder)
        tools = tuple(
            FunctionTool(tool, folder, source=self.name, default_timeout=self._default_timeout)
            for tool in description.tools
        )
        self._loaded = _LoadedTools(description, snapshot, tools)
        return True
