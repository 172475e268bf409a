"""A folder of Python functions as a source of tools: the user's, or an installed package."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import cached_property, partial
from itertools import count
from pathlib import Path

from ...core.aio import BackgroundTasks
from ...core.single_flight import LATE, ReloadOnChange
from ...errors import JSONObject
from ...protocol.events import Event, ToolCallWaiting
from ..base import Problem, Tool, ToolBegun, ToolContext, ToolDescription, ToolOutput, ToolSource
from ..functions.schema_arguments import SchemaArguments
from ..loading import FolderDescription, FolderSpec, LoadedFolder, SlotCall, ToolLoader
from ..progress_events import with_progress
from .snapshot import FolderSnapshot, check_folder

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""Longest wait at the end for folders that are being closed already."""


class FunctionTool(Tool):
    """A function of a loaded folder."""

    details: ToolDescription

    def __init__(
        self,
        details: ToolDescription,
        folder: LoadedFolder,
        *,
        source: str,
        default_timeout: float | None,
    ) -> None:
        self.details = details
        self.name = details.name
        self.description = details.description
        self.parameters = details.parameters
        self.source = source
        self.destructive = details.destructive
        self.sequential = details.sequential
        self.timeout = details.timeout if details.timeout is not None else default_timeout
        self._folder = folder

    @cached_property
    def _arguments(self) -> SchemaArguments:
        return SchemaArguments(self.parameters, self.details.unchecked)

    def prepare(self) -> None:
        self._folder.prepare()

    async def validate(self, arguments: JSONObject) -> JSONObject:
        """Check the arguments against the schema, here; the folder's code is not asked.

        What only that code can check, such as a parameter with a validator, is let through.
        """
        return self._arguments.validate(arguments)

    async def run(
        self, arguments: JSONObject, context: ToolContext
    ) -> AsyncGenerator[Event | ToolBegun | ToolOutput, None]:
        """Call the function; events say that the call waits for others, and how far it is.

        Its defaults are its own: JSON may say less than they are.
        """
        if self._folder.must_wait(context.session_id):
            yield ToolCallWaiting(
                tool_name=self.name,
                tool_call_id=context.tool_call_id,
                agent_name=context.agent_name,
                agent_call_id=context.agent_call_id,
            )
        async with self._folder.slot(self.name, context) as call:
            yield ToolBegun()
            given = {
                name: value
                for name, value in arguments.items()
                if name not in self.defaults or value != self.defaults[name]
            }
            steps = with_progress(partial(call, given), context)
            async with aclosing(steps):
                async for step in steps:
                    yield ToolOutput(step) if isinstance(step, str) else step


def function_tools(
    folder: LoadedFolder, source: str, default_timeout: float | None
) -> list[FunctionTool]:
    """Make tools of the functions of a folder; ``source`` is their :attr:`Tool.source`."""
    return [
        FunctionTool(each, folder, source=source, default_timeout=default_timeout)
        for each in folder.description.tools
    ]


class FolderKeeper:
    """Closes each folder that it was given when the last reference to it is gone.

    So a reload cuts no call: a turn that holds a tool of the old state holds its folder.
    """

    def __init__(self) -> None:
        self._open: dict[int, LoadedFolder] = {}
        self._numbers = count()
        self._tasks = BackgroundTasks()

    def keep(self, folder: LoadedFolder) -> LoadedFolder:
        """Return the folder for its users to hold; the argument itself must not be held."""
        number = next(self._numbers)
        self._open[number] = folder
        held = _HeldFolder(folder)
        loop = asyncio.get_running_loop()
        weakref.finalize(held, self._forgotten, loop, number).atexit = False
        return held

    def _forgotten(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Called in whichever thread dropped the last reference."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and we with it
            loop.call_soon_threadsafe(self._close, number)

    def _close(self, number: int) -> None:
        folder = self._open.pop(number, None)
        if folder is not None:
            self._tasks.spawn(folder.aclose(), name="close a folder of tools")

    async def aclose(self) -> None:
        folders, self._open = list(self._open.values()), {}
        await asyncio.gather(*(folder.aclose() for folder in folders))
        await self._tasks.drain(CLOSE_SECONDS)


class _HeldFolder(LoadedFolder):
    def __init__(self, folder: LoadedFolder) -> None:
        self._folder = folder
        self.description = folder.description

    def prepare(self) -> None:
        self._folder.prepare()

    def must_wait(self, session_id: str) -> bool:
        return self._folder.must_wait(session_id)

    def slot(self, name: str, context: ToolContext) -> AbstractAsyncContextManager[SlotCall]:
        return self._folder.slot(name, context)

    async def call(self, name: str, arguments: JSONObject) -> str:
        return await self._folder.call(name, arguments)

    async def aclose(self) -> None:
        await self._folder.aclose()


class DirectorySource(ToolSource):
    """The tools of one folder; loads them again when a file has changed, or the stamp.

    Nothing is loaded before the first ``tools()``, nor where a folder has no Python file.

    Args:
        spec: Its folder need not exist.
        loader: Loads the folder.
        default_timeout: Seconds for a tool that has no time of its own; None for no limit.
        stamp: A file whose change means: load again, even if the folder has not changed.
    """

    def __init__(
        self,
        spec: FolderSpec,
        *,
        loader: ToolLoader,
        default_timeout: float | None,
        stamp: Path | None = None,
        name: str = "directory",
    ) -> None:
        self.name = name
        self._spec = spec
        self._loader = loader
        self._stamp = stamp
        self._default_timeout = default_timeout
        self._keeper = FolderKeeper()
        self._reloads = ReloadOnChange(
            str(spec.path), snapshot=self._check, load=self._load, is_current=self._is_current
        )
        self._description = FolderDescription(folder=str(spec.path))
        self._snapshot: FolderSnapshot | None = None
        self._tools: Sequence[FunctionTool] = ()

    async def tools(self) -> Sequence[FunctionTool]:
        """Return the tools with every change that was made before this call.

        If a change takes long to load, these are the earlier tools, and a problem says so.
        """
        await self._reloads.refresh()
        return self._tools

    def groups(self) -> Mapping[str, Sequence[str]]:
        return self._description.groups

    def problems(self) -> Sequence[Problem]:
        problems = self._description.problems
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
        return self._snapshot == snapshot and not self._description.is_transient

    async def _load(self, snapshot: FolderSnapshot, _anew: bool) -> bool:  # noqa: FBT001 - a callback
        if snapshot.is_empty and self._spec.entry is None:
            self._description, self._tools = FolderDescription(folder=str(self._spec.path)), ()
        else:
            [loaded] = await self._loader.load([self._spec])
            folder = self._keeper.keep(loaded)
            self._description = folder.description
            self._tools = function_tools(folder, self.name, self._default_timeout)
            self._log()
        self._snapshot = snapshot
        return True

    def _log(self) -> None:
        for problem in self._description.problems:
            logger.log(logging.INFO if problem.is_hint else logging.WARNING, "%s", problem)
        logger.info("Loaded %d tools of %s", len(self._tools), self._description.folder)
