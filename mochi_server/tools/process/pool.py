"""The processes of one folder of tools: one call each at a time, as many as are needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from ...core.aio import BackgroundTasks
from ...core.logs import one_line
from ...errors import JSONObject
from ..base import FolderDescription, FolderSpec, LoadedFolder, ToolContext, ToolFailed
from ..functions.results import log_failure
from .child import Child, ChildGone, ChildLimits
from .fair_slots import FairSlots
from .output import LineAllowance
from .protocol import NONSENSE, BadFrame

logger = logging.getLogger(__name__)

CLOSED = "the tools were closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What holds for every pool of a loader."""

    workers: int
    """Most calls at a time."""
    idle_seconds: float
    """After that long without a call all processes but one end."""
    limits: ChildLimits


def sentence(reason: str) -> str:
    """Return a reason as a sentence."""
    return f"{reason[:1].upper()}{reason[1:]}."


@dataclass(slots=True)
class IdleWorker:
    """A process that has loaded the folder and has no call."""

    child: Child
    loaded_size: int
    """Bytes that it had taken when it had loaded the folder."""
    idle_since: float = 0.0
    """Of the loop's clock."""


class ProcessPool(LoadedFolder):
    """Calls the functions of one folder in processes, of which sessions have a fair share.

    The process that was used last is used first. One that is started after the files were changed
    loads what is there then, and fits the arguments to that.
    """

    def __init__(
        self,
        spec: FolderSpec,
        description: FolderDescription,
        *,
        generation: str,
        options: PoolOptions,
        tasks: BackgroundTasks,
        on_close: Callable[[ProcessPool], None],
    ) -> None:
        self.description = description
        self._spec = spec
        self._on_close = on_close
        self._generation = generation
        self._options = options
        self._tasks = tasks
        self._lines = LineAllowance()
        self._slots = FairSlots(options.workers)
        self._calls = anyio.Semaphore(options.workers)
        self._reserved: dict[asyncio.Task[Any] | None, tuple[IdleWorker, str]] = {}
        """The process that each task has a slot for, until it calls; the call's name in the log."""
        self._idle: list[IdleWorker] = []
        self._busy: set[Child] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def must_wait(self, session_id: str) -> bool:
        return self._slots.must_wait(session_id)

    @asynccontextmanager
    async def slot(self, name: str, context: ToolContext) -> AsyncIterator[None]:
        """Wait for a process, also for its start; this task's next ``call`` uses it.

        Raises (when it is entered):
            ToolFailed: there is none to be had.
        """
        async with self._slots.slot(context.session_id):
            task = asyncio.current_task()
            call_id = one_line(context.tool_call_id)
            speaker = f"{name} (session {context.session_id}, call {call_id})"
            self._reserved[task] = await self._take(), speaker
            try:
                yield
            finally:
                if (unused := self._reserved.pop(task, None)) is not None:
                    self._release(unused[0])

    async def call(self, name: str, arguments: JSONObject) -> str:
        """Call a function in a process of its own; cancelling kills that process."""
        async with self._calls:
            worker, speaker = self._reserved.pop(asyncio.current_task(), (None, ""))
            if worker is None or not worker.child.alive:
                worker = await self._take()
            try:
                with worker.child.speaking_as(
                    ": ".join(filter(None, (self._spec.path.name, speaker)))
                ):
                    result = await worker.child.request("call", name=name, arguments=arguments)
            except ToolFailed as error:
                log_failure(name, error)
                raise
            except ChildGone as error:
                logger.warning("The tool %s failed: %s", name, error)
                raise ToolFailed(sentence(str(error))) from error
            except BadFrame as error:
                raise ToolFailed(f"The arguments cannot be sent: {error}.") from error
            finally:
                self._release(worker)
        if not isinstance(result, str):
            raise ToolFailed(sentence(NONSENSE))
        return result

    async def _take(self) -> IdleWorker:
        """Return the idle process that was used last, else a new one; it counts as busy."""
        if self._closed:
            raise ToolFailed(sentence(CLOSED))
        while self._idle:
            worker = self._idle.pop()
            if worker.child.alive:
                self._busy.add(worker.child)
                return worker
        child = Child(self._spec.path.name, self._options.limits, self._tasks, self._lines)
        self._busy.add(child)
        try:
            await load_into(child, self._spec, self._generation, self._options.limits)
        except BaseException:
            self._busy.discard(child)
            raise
        return IdleWorker(child, child.size)

    def adopt(self, child: Child) -> None:
        """Use a process that has loaded this folder."""
        self._release(IdleWorker(child, child.size))

    def _release(self, worker: IdleWorker) -> None:
        """Keep the process for the next call, unless it has grown too large for one."""
        self._busy.discard(worker.child)
        if not worker.child.alive:
            return
        room = max(0, self._options.limits.memory - worker.loaded_size)
        if self._closed or worker.child.size > worker.loaded_size + room // 2:
            self._retire(worker)
            return
        worker.idle_since = asyncio.get_running_loop().time()
        self._idle.append(worker)
        self._schedule_trim()

    def _retire(self, worker: IdleWorker) -> None:
        self._tasks.spawn(worker.child.end(), name=f"end of tools {self._spec.path.name}")

    def _schedule_trim(self) -> None:
        if self._timer is None and len(self._idle) > 1:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.idle_seconds, self._trim)

    def _trim(self) -> None:
        """End what was not needed for a while; the one that was used last stays."""
        self._timer = None
        self._idle = [worker for worker in self._idle if worker.child.alive]
        due = asyncio.get_running_loop().time() - self._options.idle_seconds
        while len(self._idle) > 1 and self._idle[0].idle_since <= due:
            self._retire(self._idle.pop(0))
        self._schedule_trim()

    async def aclose(self) -> None:
        """Kill what is busy, end what is idle; running calls fail."""
        self._on_close(self)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for child in self._busy:
            child.kill(CLOSED)
        idle, self._idle = self._idle, []
        children = [*self._busy, *(worker.child for worker in idle)]
        await asyncio.gather(*(child.end() for child in children))


async def load_into(
    child: Child, spec: FolderSpec, generation: str, limits: ChildLimits
) -> JSONObject:
    """Let a process load a folder and return its description as JSON; kill it when it cannot.

    Raises:
        ToolFailed: the process ended, took too long, or could not load.
    """
    try:
        with anyio.fail_after(limits.start_seconds):
            description: JSONObject = await child.request(
                "load",
                path=str(spec.path),
                subfolders=spec.subfolders,
                reserved=sorted(spec.reserved),
                generation=generation,
                working_dir=str(limits.working_dir),
            )
    except TimeoutError as error:
        seconds = f"{limits.start_seconds:g}"
        raise ToolFailed(f"The tools did not load within {seconds} seconds.") from error
    except ChildGone as error:
        raise ToolFailed(f"The tools cannot be loaded: {error}.") from error
    except ToolFailed as error:
        child.kill("it could not load the tools")
        raise ToolFailed(f"The tools cannot be loaded: {error}") from error
    return description
