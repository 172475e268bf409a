"""The processes of one folder of tools: one call each at a time, as many as are needed.

Sessions share them, so that one whose calls hang leaves room for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from ...core.aio import BackgroundTasks
from ...core.logs import one_line
from ...errors import JSONObject
from ..base import ToolContext, ToolFailed
from ..functions.results import log_failure
from ..loading import FolderDescription, FolderSpec, LoadedFolder, SlotCall
from .connection import WorkerGone
from .output import LineAllowance
from .protocol import NONSENSE, BadFrame
from .worker_process import WorkerOptions, WorkerProcess

logger = logging.getLogger(__name__)

CLOSED = "the tools were closed"
READY = 2
"""Processes that wait for the calls of a reply: one, and a spare one for a second call."""


class FairSlots:
    """Shares slots among sessions: a session gets another one if more are free than it holds.

    So one session holds at most half of them, the next one half of the rest, and so on. A released
    slot goes to the waiting session that holds the fewest.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._held: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        """Sessions that wait for a slot. An entry stays until its task runs again: the future of
        one that was granted or cancelled meanwhile is done."""

    def must_wait(self, session_id: str) -> bool:
        """Return whether the session would have to wait for another slot."""
        return self._held[session_id] >= self._free

    @asynccontextmanager
    async def slot(self, session_id: str) -> AsyncIterator[None]:
        """Hold a slot; wait while the session must."""
        if self.must_wait(session_id):
            await self._wait(session_id)
        else:
            self._take(session_id)
        try:
            yield
        finally:
            self._release(session_id)

    async def _wait(self, session_id: str) -> None:
        entry = (session_id, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if not entry[1].cancelled():  # it was granted at the same moment
                self._release(session_id)
            raise
        finally:
            self._waiting.remove(entry)

    def _take(self, session_id: str) -> None:
        self._held[session_id] += 1
        self._free -= 1

    def _release(self, session_id: str) -> None:
        self._held[session_id] -= 1
        self._free += 1
        if not self._held[session_id]:
            del self._held[session_id]
        while waiting := [entry for entry in self._waiting if not entry[1].done()]:
            session_id, granted = min(waiting, key=lambda entry: self._held[entry[0]])
            if self.must_wait(session_id):
                break
            self._take(session_id)
            granted.set_result(None)


def sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


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
        options: WorkerOptions,
        tasks: BackgroundTasks,
        has_room: Callable[[], bool],
        make_room: Callable[[], None],
        on_close: Callable[[ProcessPool], None],
    ) -> None:
        self.description = description
        self._spec = spec
        self._has_room = has_room
        self._make_room = make_room
        self._on_close = on_close
        self._options = options
        self._tasks = tasks
        self._lines = LineAllowance()
        self._slots = FairSlots(options.workers)
        self._calls = anyio.Semaphore(options.workers, fast_acquire=True)
        self._idle: list[WorkerProcess] = []
        """In the order in which they were used last."""
        self._busy: set[WorkerProcess] = set()
        self._starting: set[asyncio.Task[None]] = set()
        """Starts of processes that are to be ready."""
        self._awaited = 0
        """Calls that wait for one of these."""
        self._kept = 1
        """Idle processes that do not end."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return the number of its processes."""
        return len(self._idle) + len(self._busy)

    @property
    def idle_since(self) -> float | None:
        """When the call ended of the process that was used longest ago; None if all are busy."""
        return self._idle[0].idle_since if self._idle else None

    def end_idle(self) -> None:
        """End the process that was used longest ago."""
        self._retire(self._idle.pop(0))

    def prepare(self) -> None:
        """Start what is missing for the calls of a reply, as far as there is room."""
        self._kept = READY
        self._idle = [worker for worker in self._idle if worker.alive]
        missing = READY - len(self._idle) - len(self._starting)
        for _ in range(min(missing, self._options.workers - len(self))):
            task = self._tasks.spawn(self._start_ready(), name="tools that are to be ready")
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _start_ready(self) -> None:
        """Start a process that is used when all others are busy, and ended before them."""
        if self._closed or not self._has_room():
            return
        with contextlib.suppress(ToolFailed):  # the next call tries again, and says why
            worker = await self._start()
            self._busy.discard(worker)
            self._idle.insert(0, worker)
            self._schedule_trim()

    def must_wait(self, session_id: str) -> bool:
        return self._slots.must_wait(session_id)

    @asynccontextmanager
    async def slot(self, name: str, context: ToolContext) -> AsyncIterator[SlotCall]:
        """Wait for a process, also for its start, and hold it for one call."""
        async with self._slots.slot(context.session_id):
            call_id = one_line(context.tool_call_id)
            call = f"{name} (session {context.session_id}, call {call_id})"
            speaker = f"{self._spec.path.name}: {call}"
            taken = [await self._take()]

            async def call_once(arguments: JSONObject) -> str:
                async with self._calls:
                    worker = taken.pop()
                    return await self._call_in(worker, speaker, name, arguments)

            try:
                yield call_once
            finally:
                for unused in taken:
                    self.release(unused)

    async def call(self, name: str, arguments: JSONObject) -> str:
        """Call a function in a process of its own; cancelling kills that process."""
        async with self._calls:
            return await self._call_in(await self._take(), self._spec.path.name, name, arguments)

    async def _call_in(
        self, worker: WorkerProcess, speaker: str, name: str, arguments: JSONObject
    ) -> str:
        """Call a function in a process that was taken, and release it."""
        if not worker.alive:
            self.release(worker)
            worker = await self._take()
        try:
            with worker.speaking_as(speaker):
                result = await worker.request("call", name=name, arguments=arguments)
        except ToolFailed as error:
            log_failure(name, error)
            raise
        except WorkerGone as error:
            logger.warning("The tool %s failed: %s", name, error)
            raise ToolFailed(sentence(str(error))) from error
        except BadFrame as error:
            raise ToolFailed(f"The arguments cannot be sent: {error}.") from error
        finally:
            self.release(worker)
        if not isinstance(result, str):
            raise ToolFailed(sentence(NONSENSE))
        return result

    async def _take(self) -> WorkerProcess:
        """Return the idle process that was used last, else a new one; it counts as busy."""
        while True:
            if self._closed:
                raise ToolFailed(sentence(CLOSED))
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    self._busy.add(worker)
                    return worker
            if len(self._starting) <= self._awaited:
                self._make_room()
                return await self._start()
            self._awaited += 1
            try:
                await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._awaited -= 1

    async def _start(self) -> WorkerProcess:
        """Return a new process that has loaded the folder; it counts as busy."""
        worker = WorkerProcess(self._spec, self._options, self._tasks, self._lines)
        self._busy.add(worker)
        try:
            await worker.load(self._spec)
        except BaseException:
            self._busy.discard(worker)
            raise
        return worker

    def release(self, worker: WorkerProcess) -> None:
        """Keep a process that has loaded the folder, unless it has grown too large for a call."""
        self._busy.discard(worker)
        if not worker.alive:
            return
        room = max(0, self._options.memory - worker.loaded_size)
        if self._closed or worker.size > worker.loaded_size + room // 2:
            self._retire(worker)
            return
        worker.idle_since = asyncio.get_running_loop().time()
        self._idle.append(worker)
        self._schedule_trim()

    def _retire(self, worker: WorkerProcess) -> None:
        self._tasks.spawn(worker.end(), name=f"end of tools {self._spec.path.name}")

    def _schedule_trim(self) -> None:
        if self._timer is None and len(self._idle) > self._kept:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.idle_seconds, self._trim)

    def _trim(self) -> None:
        """End what was not needed for a while; those that were used last stay."""
        self._timer = None
        self._idle = [worker for worker in self._idle if worker.alive]
        due = asyncio.get_running_loop().time() - self._options.idle_seconds
        while len(self._idle) > self._kept and self._idle[0].idle_since <= due:
            self._retire(self._idle.pop(0))
        self._schedule_trim()

    async def aclose(self) -> None:
        self._on_close(self)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for worker in self._busy:
            worker.kill(CLOSED)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.end() for worker in [*self._busy, *idle]))
