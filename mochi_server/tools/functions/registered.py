"""Functions of the program that uses the library, as tools: ``Runtime(tools=[function])``."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...core.aio import BackgroundTasks
from ...errors import JSONObject
from ..base import InvalidArguments, ToolFailed, ToolSource
from ..folder.source import FunctionTool, function_tools
from ..loading import RESERVED_NAMES, FolderDescription, LoadedFolder
from ..schema import NO_FILE, ToolSchemaService
from .python_tool import PythonTool, call, call_async, check_name, function_of
from .results import log_failure
from .signature import Function, Unsupported

MAX_ABANDONED = 64
END_SECONDS = 0.2
CLOSED = "The tools were closed."

Running = asyncio.Future[str | InvalidArguments | ToolFailed]


class RegisteredFunctions(LoadedFolder):
    """Functions of this process, called in threads of it; an ``async def`` in its event loop.

    A thread cannot be stopped: a call that nobody waits for any more is abandoned, goes on until
    its function returns, and is counted until then.
    """

    def __init__(self, tools: Mapping[str, PythonTool], *, folder: str = str(NO_FILE)) -> None:
        self.description = FolderDescription(folder=folder, tools=tuple(tools.values()))
        self._functions = tools
        self._abandoned: set[Running] = set()
        self._tasks = BackgroundTasks()
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call(self, name: str, arguments: JSONObject) -> str:
        """Call the function, async ones in a task of their own: what they cancel is theirs."""
        if self._closing.done():
            raise ToolFailed(CLOSED)
        tool = self._functions.get(name)
        if tool is None:
            raise ToolFailed(f"There is no tool {name!r} in this folder.")
        if len(self._abandoned) >= MAX_ABANDONED:
            raise ToolFailed(
                f"{MAX_ABANDONED} calls of tools do not stop; none is started until one does."
            )
        running: Running
        if tool.is_async:
            running = self._tasks.spawn(call_async(tool, arguments), name="tool")
        else:
            running = _start_thread(partial(call, tool, arguments))
        return await self._result_of(running, name)

    async def _result_of(self, running: Running, name: str) -> str:
        try:
            both: set[asyncio.Future[Any]] = {running, self._closing}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():
                self._abandon(running)
        if not running.done():
            raise ToolFailed(CLOSED)
        result = running.result()
        if isinstance(result, Exception):
            log_failure(name, result)
            raise result
        return result

    def _abandon(self, running: Running) -> None:
        self._abandoned.add(running)
        running.add_done_callback(self._abandoned.discard)
        if isinstance(running, asyncio.Task):
            running.cancel()

    async def aclose(self) -> None:
        """Abandon what runs; async calls get a moment to end."""
        if not self._closing.done():
            self._closing.set_result(None)
        await self._tasks.drain(END_SECONDS)


def _start_thread(step: Callable[[], str | InvalidArguments | ToolFailed]) -> Running:
    """Run it in a daemon thread, which holds up neither a pool nor the program's end."""
    loop = asyncio.get_running_loop()
    ended: Running = loop.create_future()

    def run() -> None:
        result = step()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(ended.set_result, result)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="mochi-tool", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system has a limit too
        raise ToolFailed(f"No thread can be started: {error}.") from error
    return ended


class RegisteredSource(ToolSource):
    """Functions that the program has registered."""

    name = "registered"

    def __init__(self, functions: Sequence[Function], *, default_timeout: float | None) -> None:
        """Describe the functions.

        Raises:
            ValueError: one cannot be a tool, or two have one name.
        """
        self._functions: dict[str, PythonTool] = {}
        for function in functions:
            tool = tool_of(function)
            if tool.name in self._functions:
                raise ValueError(f"Two of the tools have the name {tool.name!r}.")
            self._functions[tool.name] = tool
        self._default_timeout = default_timeout
        self._folder: RegisteredFunctions | None = None
        self._tools: Sequence[FunctionTool] = ()

    async def tools(self) -> Sequence[FunctionTool]:
        if self._folder is None:  # it belongs to the event loop that runs now
            folder = self._folder = RegisteredFunctions(self._functions)
            self._tools = function_tools(folder, self.name, self._default_timeout)
        return self._tools

    async def reload(self) -> None:
        """Do nothing: there is nothing to load."""

    async def aclose(self) -> None:
        if self._folder is not None:
            await self._folder.aclose()


def tool_of(function: Function) -> PythonTool:
    """Describe a function.

    Raises:
        ValueError: it cannot be a tool.
    """
    named: object = function.func if isinstance(function, partial) else function
    name = getattr(named, "__name__", None) or getattr(named, "name", None)
    name = name if isinstance(name, str) else type(named).__name__
    try:
        check_name(name, RESERVED_NAMES)
        return ToolSchemaService().describe(function_of(function), name)
    except Unsupported as error:
        raise ValueError(f"{name!r} cannot be a tool: it {error}") from error
