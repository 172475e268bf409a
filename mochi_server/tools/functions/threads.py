"""Tools in threads of this process: quick, and as safe as the code that runs in them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, cast

import anyio

from ...core.aio import BackgroundTasks
from ...errors import JSONObject
from ..base import FolderDescription, FolderSpec, LoadedFolder, Problem, ToolFailed, ToolLoader
from ..folder.package import LoadedPackage, PythonTool, load_package
from .calling import Outcome, attempt, call, call_async

MOST_GIVEN_UP = 64
VALIDATE_SECONDS = 5.0
END_SECONDS = 0.2
CLOSED = "The tools were closed."

Running = asyncio.Future[Outcome]
Closing = asyncio.Future[None]
"""Done when whoever waits shall not wait any longer."""
Whose = tuple[str, str] | None
"""Folder and name of the function that runs; null for what is no call of one."""


class Runner:
    """Runs the user's code while somebody waits for it; remembers what did not stop then."""

    def __init__(self) -> None:
        self._tasks = BackgroundTasks()
        self._given_up: dict[Running, Whose] = {}

    async def in_thread(
        self, step: Callable[[], Outcome], closing: Closing, whose: Whose = None
    ) -> Outcome:
        """Run what raises nothing in a daemon thread of its own: it holds up no pool, and no exit.

        Raises:
            ToolFailed: it was closed before the end, too many calls hang, or there is no thread.
        """
        self._check()
        return await self._wait_for(_start_thread(step), closing, whose)

    async def in_loop(
        self, step: Coroutine[Any, Any, Outcome], closing: Closing, whose: Whose
    ) -> Outcome:
        """Run it in a task of its own: what it cancels is not ours.

        Raises:
            ToolFailed: it was closed before the end, or too many calls hang.
        """
        try:
            self._check()
        except ToolFailed:
            step.close()
            raise
        return await self._wait_for(self._tasks.spawn(step, name="tool"), closing, whose)

    def given_up(self, whose: Whose) -> list[Running]:
        """What was given up of one function and has not ended."""
        return [running for running, its in self._given_up.items() if its == whose]

    def _check(self) -> None:
        if len(self._given_up) >= MOST_GIVEN_UP:
            raise ToolFailed(
                f"{MOST_GIVEN_UP} calls of tools do not stop; none is started until one does."
            )

    async def _wait_for(self, running: Running, closing: Closing, whose: Whose) -> Outcome:
        try:
            both: set[asyncio.Future[Any]] = {running, closing}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():
                self._give_up(running, whose)
        if not running.done():
            raise ToolFailed(CLOSED)
        return running.result()

    def _give_up(self, running: Running, whose: Whose) -> None:
        """A task is cancelled; a thread cannot be stopped and is counted until it ends."""
        self._given_up[running] = whose
        running.add_done_callback(self._given_up.pop)
        if isinstance(running, asyncio.Task):
            running.cancel()

    async def aclose(self) -> None:
        """Wait a moment for the tasks."""
        await self._tasks.drain(END_SECONDS)


def _start_thread(step: Callable[[], Outcome]) -> Running:
    loop = asyncio.get_running_loop()
    ended: Running = loop.create_future()

    def run() -> None:
        outcome = step()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(ended.set_result, outcome)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="mochi-tool", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system has a limit too
        raise ToolFailed(f"No thread can be started: {error}.") from error
    return ended


class ThreadFolder(LoadedFolder):
    """A folder that was imported into this process."""

    def __init__(
        self, package: LoadedPackage, runner: Runner, on_close: Callable[[ThreadFolder], None]
    ) -> None:
        self.description = package.description
        self._package = package
        self._runner = runner
        self._on_close = on_close
        self._closing: Closing = asyncio.get_running_loop().create_future()

    def _tool(self, name: str) -> PythonTool:
        if self._closing.done():
            raise ToolFailed(CLOSED)
        tool = self._package.functions.get(name)
        if tool is None:
            raise ToolFailed(f"There is no tool {name!r} in this folder.")
        return tool

    async def validate(self, name: str, arguments: JSONObject) -> JSONObject:
        """See the base class; takes at most some seconds."""
        tool = self._tool(name)
        with anyio.move_on_after(VALIDATE_SECONDS):
            step = partial(attempt, partial(tool.validate, arguments))
            outcome = await self._runner.in_thread(step, self._closing)
            return cast("JSONObject", outcome.result(name))
        raise ToolFailed("Looking at the arguments took too long.")

    async def call(self, name: str, arguments: JSONObject) -> str:
        """See the base class. A thread that is given up goes on until its function returns."""
        tool, whose = self._tool(name), self._whose(name)
        if tool.is_async:
            step = call_async(tool, arguments)
            outcome = await self._runner.in_loop(step, self._closing, whose)
        else:
            run = partial(call, tool, arguments)
            outcome = await self._runner.in_thread(run, self._closing, whose)
        return cast("str", outcome.result(name))

    def given_up(self, name: str) -> Collection[Running]:
        """See the base class."""
        return self._runner.given_up(self._whose(name))

    def _whose(self, name: str) -> Whose:
        return self.description.folder, name

    async def aclose(self) -> None:
        """See the base class."""
        if not self._closing.done():
            self._closing.set_result(None)
            self._package.forget()
            self._on_close(self)


class ThreadLoader(ToolLoader):
    """Imports folders into this process, one after the other.

    Args:
        load_seconds: Longest import of one folder; its thread cannot be stopped and is left alone.
    """

    def __init__(self, *, load_seconds: float = 30) -> None:
        self._load_seconds = load_seconds
        self._runner = Runner()
        self._generations = itertools.count(1)
        self._folders: set[ThreadFolder] = set()
        self._loads: set[Closing] = set()
        self._closed = False

    async def load(self, folders: Sequence[FolderSpec]) -> list[LoadedFolder]:
        """See the base class."""
        closing: Closing = asyncio.get_running_loop().create_future()
        self._loads.add(closing)
        if self._closed:
            closing.set_result(None)
        try:
            packages = [await self._load(spec, closing) for spec in folders]
        finally:
            self._loads.discard(closing)
        loaded = [ThreadFolder(each, self._runner, self._folders.discard) for each in packages]
        self._folders.update(loaded)
        if self._closed:
            await self.aclose()
        return list(loaded)

    async def _load(self, spec: FolderSpec, closing: Closing) -> LoadedPackage:
        step = partial(load_package, spec, generation=f"t{next(self._generations)}")
        reason = f"The tools did not load within {self._load_seconds:g} seconds."
        with anyio.move_on_after(self._load_seconds):
            try:
                outcome = await self._runner.in_thread(partial(attempt, step), closing)
                return cast("LoadedPackage", outcome.result(f"folder {spec.path.name}"))
            except ToolFailed as error:
                reason = str(error)
        problem = Problem(file=str(spec.path), line=None, reason=reason)
        return LoadedPackage(FolderDescription(folder=str(spec.path), problems=(problem,)), {})

    async def aclose(self) -> None:
        """Give up what runs; async calls get a moment to end."""
        self._closed = True
        for closing in self._loads:
            if not closing.done():
                closing.set_result(None)
        for folder in list(self._folders):
            await folder.aclose()
        await self._runner.aclose()
