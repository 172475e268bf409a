"""Tools in processes of their own: this process never imports the user's code."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

from ...core.aio import BackgroundTasks, in_thread
from ...errors import JSONObject
from ..base import (
    FolderDescription,
    FolderSpec,
    LoadedFolder,
    Problem,
    ToolContext,
    ToolFailed,
    ToolLoader,
)
from .child import Child, Limits
from .connection import NONSENSE
from .output import Allowance
from .pool import CLOSED, PoolOptions, ProcessPool, load_into, sentence
from .protocol import BadFrame, described

END_SECONDS = 1.0
MOST_DESCRIBERS = 4
WORTH_A_PROCESS = 8
"""Folders of tools that take about as long to describe as a process to start."""


class ProcessFolder(LoadedFolder):
    """A folder whose functions run in a pool of processes.

    A process that is started after the files were changed loads what is there then. The
    arguments are looked at once more with each call, so they fit what is called.
    """

    def __init__(
        self,
        description: FolderDescription,
        pool: ProcessPool,
        on_close: Callable[[ProcessPool], None],
    ) -> None:
        self.description = description
        self._pool = pool
        self._on_close = on_close

    async def validate(self, name: str, arguments: JSONObject) -> JSONObject:
        """See the base class; takes at most some seconds."""
        outcome = await self._pool.validate(name, arguments)
        return cast("JSONObject", outcome.result(name))

    def must_wait(self, session_id: str) -> bool:
        """See the base class."""
        return self._pool.must_wait(session_id)

    def place(self, name: str, context: ToolContext) -> AbstractAsyncContextManager[object]:
        """See the base class: one of the processes that may be busy at a time."""
        return self._pool.place(name, context)

    async def call(self, name: str, arguments: JSONObject) -> str:
        """See the base class; waits while all processes are busy."""
        result = (await self._pool.call(name, arguments)).result(name)
        if not isinstance(result, str):
            raise ToolFailed(sentence(NONSENSE))
        return result

    async def aclose(self) -> None:
        """See the base class."""
        self._on_close(self._pool)
        await self._pool.aclose()


class ProcessLoader(ToolLoader):
    """Loads folders in child processes; a few of them describe all that one ``load`` wants.

    Args:
        workers: Most calls of one folder at a time; sessions share them.
        memory_mb: Most memory of one process, in 10**6 bytes.
        start_seconds: Longest start of a process, with the imports of the tools.
        idle_seconds: After that long without a call all processes of a folder but one end.
        working_dir: Where imports and calls run; made if it is not there. None: this process's.
        variables: Names of environment variables that tools get beside the usual few.
    """

    def __init__(
        self,
        *,
        workers: int = 8,
        memory_mb: float = 1024,
        start_seconds: float = 30,
        idle_seconds: float = 60,
        working_dir: Path | None = None,
        variables: Sequence[str] = (),
    ) -> None:
        self._limits = Limits(
            memory=int(memory_mb * 1_000_000),
            start_seconds=start_seconds,
            working_dir=(working_dir or Path()).absolute(),
            variables=tuple(variables),
        )
        self._options = PoolOptions(workers=workers, idle_seconds=idle_seconds, limits=self._limits)
        self._tasks = BackgroundTasks()
        self._generations = itertools.count(1)
        self._pools: set[ProcessPool] = set()
        self._describers: set[_Describer] = set()
        self._closed = False

    async def load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        """See the base class. A process that dies over one folder leaves the others to a new one.

        The process that described a single folder is the first to serve it.
        """
        found = await asyncio.gather(*(self._load(part) for part in _parts(folders)))
        if self._closed:
            await self.aclose()
        return [folder for part in found for folder in part]

    async def _load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        """Load each, one after the other."""
        describer = _Describer(self._limits, self._tasks)
        self._describers.add(describer)
        pools, loaded = [], list[LoadedFolder]()
        try:
            for spec in folders:
                generation = f"p{next(self._generations)}"
                pools.append(ProcessPool(spec, generation, self._options, self._tasks))
                description = await describer.describe(spec, generation, closed=self._closed)
                loaded.append(ProcessFolder(description, pools[-1], self._pools.discard))
            if len(pools) == 1:
                describer.hand_over(pools[0])
        finally:
            describer.close()
            self._describers.discard(describer)
        self._pools.update(pools)
        return loaded

    async def aclose(self) -> None:
        """Kill what is busy, end the rest, wait until they are gone: about a second at most."""
        self._closed = True
        for describer in self._describers:
            describer.close()
        pools, self._pools = self._pools, set()
        await asyncio.gather(*(pool.aclose() for pool in pools))
        await self._tasks.drain(END_SECONDS)


def _parts(folders: Sequence[FolderSpec]) -> list[Sequence[FolderSpec]]:
    """What each describing process is to look at: side by side where that is worth its start."""
    count = min(os.cpu_count() or 1, MOST_DESCRIBERS, len(folders) // WORTH_A_PROCESS)
    size = -(-len(folders) // max(count, 1)) or 1
    return [folders[at : at + size] for at in range(0, len(folders), size)]


class _Describer:
    """A process that describes folders."""

    def __init__(self, limits: Limits, tasks: BackgroundTasks) -> None:
        self._limits = limits
        self._tasks = tasks
        self._said = Allowance()
        self._child: Child | None = None

    async def describe(
        self, spec: FolderSpec, generation: str, *, closed: bool
    ) -> FolderDescription:
        """What the folder has; never raises because of what is in it."""
        if closed:
            return _broken(spec, sentence(CLOSED))
        try:
            if not await in_thread(spec.path.exists):
                return FolderDescription(folder=str(spec.path))
            return described(await load_into(self._ready(spec), spec, generation, self._limits))
        except (ToolFailed, BadFrame) as error:
            never_began = self._child is not None and self._child.pid is None
            return _broken(spec, str(error), passing=never_began)
        except OSError as error:  # a folder above it may not be entered
            return _broken(spec, f"cannot be read: {error.strerror}")

    def _ready(self, spec: FolderSpec) -> Child:
        if self._child is None or not self._child.alive:
            self._child = Child(spec.path.name, self._limits, self._tasks, self._said)
        self._child.name = spec.path.name
        return self._child

    def hand_over(self, pool: ProcessPool) -> None:
        """Let the process serve the folder that it described last."""
        if self._child is not None:
            pool.adopt(self._child)
            self._child = None

    def close(self) -> None:
        """End the process; a description that is under way fails."""
        if self._child is not None and self._child.alive:
            self._child.kill(CLOSED)


def _broken(spec: FolderSpec, reason: str, *, passing: bool = False) -> FolderDescription:
    problem = Problem(file=str(spec.path), line=None, reason=reason)
    return FolderDescription(folder=str(spec.path), problems=(problem,), passing=passing)
