"""Tools in processes of their own: this process never imports the user's code."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from ...core.aio import BackgroundTasks, in_thread
from ..base import Problem, ToolFailed
from ..loading import FolderDescription, FolderSpec, LoadedFolder, ToolLoader
from .output import LineAllowance
from .pool import CLOSED, ProcessPool, sentence
from .protocol import BadFrame, decode_description
from .worker_process import GONE_SECONDS, WorkerOptions, WorkerProcess

MAX_DESCRIBERS = 4
WORTH_A_PROCESS = 8
"""Folders of tools that take about as long to describe as a process to start."""


class ProcessLoader(ToolLoader):
    """Loads folders in child processes; a few of them describe all that one ``load`` wants.

    Args:
        options: What each process may use, and where it works.
        processes: Most processes of all folders; one that idles makes room for another.
    """

    def __init__(self, options: WorkerOptions | None = None, *, processes: int = 64) -> None:
        self._options = options or WorkerOptions()
        self._processes = processes
        self._tasks = BackgroundTasks()
        self._pools: set[ProcessPool] = set()
        self._describers: set[_Describer] = set()
        self._closed = False

    async def load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        """Load each; a process that dies over one folder leaves the others to a new one.

        The process that described a single folder is the first to serve it.
        """
        found = await asyncio.gather(*(self._load(part) for part in _parts(folders)))
        if self._closed:
            await self.aclose()
        return [folder for part in found for folder in part]

    async def _load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        describer = _Describer(self._options, self._tasks)
        self._describers.add(describer)
        pools: list[ProcessPool] = []
        try:
            for spec in folders:
                if self._closed:
                    description = _broken(spec, sentence(CLOSED))
                else:
                    description = await describer.describe(spec)
                pools.append(
                    ProcessPool(
                        spec,
                        description,
                        options=self._options,
                        tasks=self._tasks,
                        has_room=self._has_room,
                        make_room=self._make_room,
                        on_close=self._pools.discard,
                    )
                )
            if len(pools) == 1 and describer.worker is not None:
                pools[0].release(describer.worker)
                describer.worker = None
        finally:
            describer.close()
            self._describers.discard(describer)
        self._pools.update(pools)
        return list(pools)

    def _has_room(self) -> bool:
        return sum(map(len, self._pools)) < self._processes

    def _make_room(self) -> None:
        """Let one more process start; end the one that has idled longest if there are too many.

        Raises:
            ToolFailed: all are busy.
        """
        if self._has_room():
            return
        idle = [pool for pool in self._pools if pool.idle_since is not None]
        if not idle:
            raise ToolFailed(
                f"The server runs {self._processes} processes of tools already, and all are busy."
            )
        min(idle, key=attrgetter("idle_since")).end_idle()

    async def aclose(self) -> None:
        """Kill what is busy, end the rest, wait until they are gone: mostly about a second.

        On a busy machine their ends may be seen late; then for up to ``GONE_SECONDS``, twice.
        """
        self._closed = True
        for describer in self._describers:
            describer.close()
        pools, self._pools = self._pools, set()
        await asyncio.gather(*(pool.aclose() for pool in pools))
        await self._tasks.drain(GONE_SECONDS)


def _parts(folders: Sequence[FolderSpec]) -> list[Sequence[FolderSpec]]:
    """Divide the folders among processes that describe them, where that is worth their start."""
    count = min(os.cpu_count() or 1, MAX_DESCRIBERS, len(folders) // WORTH_A_PROCESS)
    size = max(1, math.ceil(len(folders) / max(1, count)))
    return [folders[at : at + size] for at in range(0, len(folders), size)]


class _Describer:
    """Describes folders in one process; in one for each folder if that has a sandbox of its own."""

    def __init__(self, options: WorkerOptions, tasks: BackgroundTasks) -> None:
        self._confinement = options.confinement
        self._new_worker = partial(
            WorkerProcess, options=options, tasks=tasks, lines=LineAllowance()
        )
        self.worker: WorkerProcess | None = None

    async def describe(self, spec: FolderSpec) -> FolderDescription:
        try:
            if await in_thread(spec.is_missing):
                return FolderDescription(folder=str(spec.path))
            if self._confinement is not None:
                self.close()
                if (problem := await self._confinement.sandbox.problem()) is not None:
                    return _broken(spec, f"MOCHI_TOOL_SANDBOX: {problem}", is_transient=True)
                self.worker = None
            if self.worker is None or not self.worker.alive:
                self.worker = self._new_worker(spec)
            self.worker.name = spec.path.name
            return decode_description(await self.worker.load(spec))
        except (ToolFailed, BadFrame) as error:
            never_began = self.worker is not None and self.worker.pid is None
            return _broken(spec, str(error), is_transient=never_began)
        except OSError as error:  # a folder above it may not be entered
            return _broken(spec, f"cannot be read: {error.strerror}")

    def close(self) -> None:
        """End the process; a description that is under way fails."""
        if self.worker is not None and self.worker.alive:
            self.worker.kill(CLOSED)


def _broken(spec: FolderSpec, reason: str, *, is_transient: bool = False) -> FolderDescription:
    problem = Problem(file=str(spec.path), line=None, reason=reason)
    return FolderDescription(folder=str(spec.path), problems=(problem,), is_transient=is_transient)
