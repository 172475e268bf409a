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
from ..base import FolderSpec, ToolContext, ToolFailed
from ..functions.calling import Outcome
from .child import Child, ChildGone, Limits
from .fair_slots import FairSlots
from .output import Allowance
from .protocol import BadFrame

logger = logging.getLogger(__name__)

VALIDATE_SECONDS = 5.0
LOOK_SECONDS = 0.25
"""Looks that take longer hold up no other: they are the user's own validators at work."""
CLOSED = "the tools were closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What holds for every pool of a loader."""

    workers: int
    """Most calls at a time."""
    idle_seconds: float
    """After that long without a call all processes but one end."""
    limits: Limits


def sentence(reason: str) -> str:
    """A reason as a sentence."""
    return f"{reason[:1].upper()}{reason[1:]}."


@dataclass(slots=True)
class Seat:
    """A process that has loaded the folder."""

    child: Child
    loaded_size: int
    """What it had taken then, in bytes."""
    free_since: float = 0.0
    """Of the loop's clock."""


class ProcessPool:
    """Lends out processes, the one that was used last first; sessions share them."""

    def __init__(
        self, spec: FolderSpec, generation: str, options: PoolOptions, tasks: BackgroundTasks
    ) -> None:
        self._spec = spec
        self._generation = generation
        self._options = options
        self._tasks = tasks
        self._said = Allowance()
        self._slots = FairSlots(options.workers)
        self._calls = anyio.Semaphore(options.workers)
        self._held: dict[asyncio.Task[Any] | None, tuple[Seat, str]] = {}
        """What each task has a place for, until it calls, and the call's name in the log."""
        self._looks = anyio.Semaphore(1)
        """One process is enough for looks, as long as they are quick."""
        self._all_looks = anyio.Semaphore(max(2, options.workers))
        self._free: list[Seat] = []
        self._busy: set[Child] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def must_wait(self, session_id: str) -> bool:
        """Whether a call of this session has to wait for others."""
        return self._slots.must_wait(session_id)

    @asynccontextmanager
    async def place(self, name: str, context: ToolContext) -> AsyncIterator[None]:
        """Wait for a process, also for its start; the next ``call`` of this task has it.

        Raises (when it is entered):
            ToolFailed: there is none to be had.
        """
        async with self._slots.slot(context.session_id):
            task = asyncio.current_task()
            call_id = one_line(context.tool_call_id)
            speaker = f"{name} (session {context.session_id}, call {call_id})"
            self._held[task] = await self._take(), speaker
            try:
                yield
            finally:
                if (held := self._held.pop(task, None)) is not None:  # nobody has called
                    self._busy.discard(held[0].child)
                    self._give_back(held[0])

    async def call(self, name: str, arguments: JSONObject) -> Outcome:
        """Call the function in a process of its own; cancelling kills that process.

        Raises:
            ToolFailed: there is no process, or it ended.
        """
        async with self._calls:
            seat, speaker = self._held.pop(asyncio.current_task(), (None, ""))
            if seat is None or not seat.child.alive:
                seat = await self._take()
            with seat.child.speaking_as(": ".join(filter(None, (self._spec.path.name, speaker)))):
                return await self._use(seat, "call", name, arguments)

    async def validate(self, name: str, arguments: JSONObject) -> Outcome:
        """Look at the arguments; does not wait for calls, a process more is started for it.

        Raises:
            ToolFailed: there is no process, or it ended, or it took too long.
        """
        async with self._all_looks, self._turn_to_look() as begun:
            seat = await self._take()
            begun()
            with anyio.move_on_after(VALIDATE_SECONDS):
                return await self._use(seat, "validate", name, arguments)
        raise ToolFailed("Looking at the arguments took too long.")

    @asynccontextmanager
    async def _turn_to_look(self) -> AsyncIterator[Callable[[], None]]:
        """Wait for the others; what it gives is called when the look begins."""
        await self._looks.acquire()
        held = True
        timer: asyncio.TimerHandle | None = None

        def begun() -> None:
            nonlocal timer
            timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, give_way)

        def give_way() -> None:
            nonlocal held
            if held:
                held = False
                self._looks.release()

        try:
            yield begun
        finally:
            if timer is not None:
                timer.cancel()
            give_way()

    async def _use(self, seat: Seat, op: str, name: str, arguments: JSONObject) -> Outcome:
        try:
            return Outcome(**await seat.child.ask(op, name=name, arguments=arguments))
        except ChildGone as error:
            logger.warning("The tool %s failed: %s", name, error)
            raise ToolFailed(sentence(str(error))) from error
        except BadFrame as error:
            raise ToolFailed(f"The arguments cannot be sent: {error}.") from error
        finally:
            self._busy.discard(seat.child)
            self._give_back(seat)

    async def _take(self) -> Seat:
        """The free process that was used last, else a new one; it counts as busy."""
        if self._closed:
            raise ToolFailed(sentence(CLOSED))
        while self._free:
            seat = self._free.pop()
            if seat.child.alive:
                self._busy.add(seat.child)
                return seat
        return await self._start()

    async def _start(self) -> Seat:
        child = Child(self._spec.path.name, self._options.limits, self._tasks, self._said)
        self._busy.add(child)
        try:
            await load_into(child, self._spec, self._generation, self._options.limits)
        except BaseException:
            self._busy.discard(child)
            raise
        return Seat(child, child.size)

    def adopt(self, child: Child) -> None:
        """Use a process that has loaded this folder."""
        self._give_back(Seat(child, child.size))

    def _give_back(self, seat: Seat) -> None:
        """Keep it for the next call, unless it has grown: the next one shall find room."""
        if not seat.child.alive:
            return
        room = max(0, self._options.limits.memory - seat.loaded_size)
        if self._closed or seat.child.size > seat.loaded_size + room // 2:
            self._retire(seat)
            return
        seat.free_since = asyncio.get_running_loop().time()
        self._free.append(seat)
        self._watch_the_clock()

    def _retire(self, seat: Seat) -> None:
        self._tasks.spawn(seat.child.end(), name=f"end of tools {self._spec.path.name}")

    def _watch_the_clock(self) -> None:
        if self._timer is None and len(self._free) > 1:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.idle_seconds, self._trim)

    def _trim(self) -> None:
        """End what nobody needed for a while; the one that was used last stays."""
        self._timer = None
        self._free = [seat for seat in self._free if seat.child.alive]
        due = asyncio.get_running_loop().time() - self._options.idle_seconds
        while len(self._free) > 1 and self._free[0].free_since <= due:
            self._retire(self._free.pop(0))
        self._watch_the_clock()

    async def aclose(self) -> None:
        """End all of them, the idle ones kindly; running calls fail."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for child in self._busy:
            child.kill(CLOSED)
        free, self._free = self._free, []
        busy = list(self._busy)
        await asyncio.gather(*(child.end() for child in [*busy, *(seat.child for seat in free)]))


async def load_into(child: Child, spec: FolderSpec, generation: str, limits: Limits) -> JSONObject:
    """Let a process load a folder; it is killed when it cannot.

    Returns:
        The description in JSON form.

    Raises:
        ToolFailed: it ended, took too long, or could not.
    """
    outcome = None
    try:
        with anyio.move_on_after(limits.start_seconds):
            answer = await child.ask(
                "load",
                path=str(spec.path),
                subfolders=spec.subfolders,
                taken=sorted(spec.taken),
                generation=generation,
                working_dir=str(limits.working_dir),
            )
            outcome = Outcome(**answer)
    except ChildGone as error:
        raise ToolFailed(f"The tools cannot be loaded: {error}.") from error
    if outcome is None:
        raise ToolFailed(f"The tools did not load within {limits.start_seconds:g} seconds.")
    if outcome.kind != "done":
        child.kill("it could not load the tools")
        raise ToolFailed(f"The tools cannot be loaded: {outcome.text}")
    description: JSONObject = outcome.value
    return description
