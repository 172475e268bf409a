"""A folder of the user's Python functions as a source of tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.single_flight import LATE, ReloadOnChange
from ...errors import JSONObject
from ...protocol.events import Event, ToolCallWaiting
from ..base import (
    FolderDescription,
    FolderSpec,
    LoadedFolder,
    Problem,
    Tool,
    ToolBegun,
    ToolContext,
    ToolDescription,
    ToolLoader,
    ToolOutput,
    ToolSource,
)
from .keeper import FolderKeeper
from .snapshot import Look, look_at

logger = logging.getLogger(__name__)


class FunctionTool(Tool):
    """A function of a loaded folder."""

    def __init__(
        self,
        details: ToolDescription,
        folder: LoadedFolder,
        *,
        source: str,
        default_timeout: float | None,
    ) -> None:
        self.details = details
        """Where it is written, and how."""
        self.name = details.name
        self.description = details.description
        self.parameters = details.parameters
        self.source = source
        self.destructive = details.destructive
        self.sequential = details.sequential
        self.timeout = details.timeout if details.timeout is not None else default_timeout
        self._folder = folder

    async def validate(self, arguments: JSONObject) -> JSONObject:
        """See the base class."""
        return await self._folder.validate(self.name, arguments)

    async def run(
        self,
        arguments: JSONObject,
        context: ToolContext,
    ) -> AsyncGenerator[Event | ToolBegun | ToolOutput, None]:
        """See the base class; the one event says that the call waits for others."""
        if self._folder.must_wait(context.session_id):
            yield ToolCallWaiting(tool_name=self.name, tool_call_id=context.tool_call_id)
        async with self._folder.place(self.name, context):
            yield ToolBegun()
            yield ToolOutput(await self._folder.call(self.name, arguments))

    def given_up(self) -> Collection[asyncio.Future[Any]]:
        """See the base class."""
        return self._folder.given_up(self.name)


@dataclass(frozen=True, slots=True)
class _State:
    """What one load found."""

    look: Look | None
    description: FolderDescription
    tools: tuple[FunctionTool, ...] = ()


class DirectorySource(ToolSource):
    """The tools of one folder; loads them anew when a file has changed, or the stamp.

    Nothing is loaded before the first ``tools()``, nor where the folder has no Python file.
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
        """``stamp`` is a file whose change means: load again, whatever the folder looks like."""
        self.name = name
        self._spec = FolderSpec(path=folder)
        self._loader = loader
        self._stamp = stamp
        self._default_timeout = default_timeout
        self._keeper = FolderKeeper()
        self._loads = ReloadOnChange(
            str(folder), snapshot=self._look, load=self._load, is_current=self._is_current
        )
        self._now = _State(None, FolderDescription(folder=str(folder)))

    async def tools(self) -> Sequence[FunctionTool]:
        """See the base class. A change is seen by every call that begins after it.

        Unless it takes long to load: then the tools are those from before, and a problem says so.
        """
        await self._loads.refresh()
        return self._now.tools

    def groups(self) -> Mapping[str, Sequence[str]]:
        """See the base class."""
        return self._now.description.groups

    def problems(self) -> Sequence[Problem]:
        """See the base class."""
        late = (
            [Problem(file=str(self._spec.path), line=None, reason=LATE)] if self._loads.late else []
        )
        return (*late, *self._now.description.problems)

    async def reload(self) -> None:
        """See the base class; callers at one time share a load that begins after they called."""
        await self._loads.refresh(anew=True)

    async def aclose(self) -> None:
        """See the base class. What is held fails from here on; nothing is loaded any more."""
        await self._loads.aclose()
        await self._keeper.aclose()

    def _look(self) -> Look:
        return look_at(self._spec.path, self._stamp)

    def _is_current(self, look: Look) -> bool:
        return self._now.look == look and not self._now.description.passing

    async def _load(self, look: Look, _anew: bool) -> bool:  # noqa: FBT001 - always everything
        if look.empty:
            self._now = _State(look, FolderDescription(folder=str(self._spec.path)))
        else:
            [loaded] = await self._loader.load([self._spec])
            self._now = self._state_of(self._keeper.keep(loaded), look)
        return True

    def _state_of(self, folder: LoadedFolder, look: Look) -> _State:
        found = folder.description
        for problem in found.problems:
            logger.log(logging.INFO if problem.is_hint else logging.WARNING, "%s", problem)
        logger.info("Loaded %d tools of %s", len(found.tools), found.folder)
        tools = tuple(
            FunctionTool(details, folder, source=self.name, default_timeout=self._default_timeout)
            for details in found.tools
        )
        return _State(look, found, tools)
