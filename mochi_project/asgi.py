"""The ASGI application: ``uvicorn mochi_project.asgi:application``; start and end of its process.

A server that gets SIGTERM waits for open streams, and they wait for their turns: so the turns are
stopped first, by a handler in front of the server's own. Turns then save what they have, send their
last event and end; the server has nothing left to wait for. With ``MOCHI_DRAIN_SECONDS`` they have
time to finish before that: the process answers meanwhile, and says that it is not ready.

An application that is mounted in another one leaves the process as it is. The other one says when
it starts and ends (:meth:`Application.lifespan`); else it starts with its first request, and is
closed when the event loop ends, which is too late for a reply that is being made.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings

from mochi_project import use_own_settings
from mochi_project.ninja_import import import_ninja
from mochi_server.config import MochiServerSettings, server_processes
from mochi_server.core.aio import switch_threads_soon
from mochi_server.core.files import raise_file_limit
from mochi_server.core.logs import request_id
from mochi_server.core.processes import ProcessFile
from mochi_server.errors import McpNotInstalled, NotFound
from mochi_server.mcp_server.http import PATH as MCP_PATH
from mochi_server.mcp_server.http import McpEndpoint
from mochi_server.runtime import Runtime
from mochi_server.server.startup import forbid_inspection, stop_with_supervisor
from mochi_server.version import __version__

use_own_settings()
if not hasattr(settings, "MOCHI"):
    raise RuntimeError(
        "This process belongs to another Django project, and Django has one project in a process. "
        "Run mochi-server in a process of its own, with a proxy in front of both, or use "
        "mochi_server.Runtime, which needs no Django (docs/how-to/mount-in-another-application.md)."
    )
django.setup(set_prefix=False)
import_ninja()

from chat.streaming import EventStreamResponse  # noqa: E402 - after the set-up
from chat.wires.socket.endpoint import PATH as SOCKET_PATH  # noqa: E402
from chat.wires.socket.endpoint import SocketEndpoint  # noqa: E402

from .http.gate import (  # noqa: E402
    REQUEST_ID,
    Gate,
    Message,
    Receive,
    Scope,
    Send,
    inner_path,
    refuse,
)
from .http.handler import MochiASGIHandler  # noqa: E402
from .runtime import forget_runtime, get_runtime, shared_problems  # noqa: E402

if TYPE_CHECKING:
    from mochi_server.observability.metrics import Metrics

logger = logging.getLogger(__name__)

Handler = Callable[[int, FrameType | None], Any] | int | None


def collect_garbage_seldom() -> None:
    """Keep what was imported out of garbage collection, which takes 10 ms with it.

    With Python's own threshold of 700 new objects, streaming would collect every few milliseconds.
    The little garbage among it stays: to look for it takes a tenth of the start.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])


def add_connection_gauges(metrics: Metrics, sockets: SocketEndpoint) -> None:
    """Add what only the application knows to the metrics."""
    metrics.add_gauge(
        "mochi_streams_open",
        "Streams of server-sent events that are open.",
        lambda: EventStreamResponse.open_streams,
    )
    metrics.add_gauge("mochi_sockets_open", "Open WebSockets.", lambda: len(sockets.sockets))


class Lifespan:
    """The ASGI lifespan of one process; starts by itself where nobody speaks it."""

    def __init__(self, mcp: McpEndpoint, sockets: SocketEndpoint) -> None:
        self.runtime: Runtime | None = None
        self._mcp = mcp
        self._sockets = sockets
        self._process: ProcessFile | None = None
        self._closing: asyncio.Task[None] | None = None
        self._previous: dict[int, Handler] = {}

    async def __call__(self, receive: Receive, send: Send) -> None:
        await receive()
        problems = shared_problems()
        if (problem := settings.MOCHI.data_folder_problem) is not None:
            problems.append(f"{problem} Set MOCHI_DATA_DIR: to data, or to . for this folder.")
        if problems:
            await send({"type": "lifespan.startup.failed", "message": "\n".join(problems)})
            return
        stop_with_supervisor()
        raise_file_limit()
        collect_garbage_seldom()
        switch_threads_soon()
        self._handle_signals(self._start_runtime())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _start_runtime(self) -> Runtime:
        forbid_inspection()
        self.runtime = get_runtime()
        self.runtime.observe(__version__)
        self.runtime.start()
        if (metrics := self.runtime.metrics) is not None:
            add_connection_gauges(metrics, self._sockets)
        self._enter_processes(self.runtime.settings)
        return self.runtime

    def _enter_processes(self, own: MochiServerSettings) -> None:
        """Let ``doctor`` know that this process uses the data folder."""
        if own.session_storage == "memory":
            return
        self._process = ProcessFile(own.processes_path, __version__)
        try:
            self._process.create()
        except OSError as error:
            logger.warning("doctor cannot know of this process: %s", error)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Start and end with the program that the application is mounted in.

        Raises:
            RuntimeError: The settings do not fit the number of processes.
        """
        if problems := shared_problems():
            raise RuntimeError("\n".join(problems))
        self._start_runtime()
        try:
            yield
        finally:
            await self.stop()

    def start(self) -> None:
        """Start the runtime unless it runs; the end of the event loop closes it."""
        if self.runtime is None:
            self._start_runtime()
            self._closing = asyncio.get_running_loop().create_task(self._close_with_loop())

    async def _close_with_loop(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.stop()

    async def stop(self) -> None:
        self._restore_signals()
        if self.runtime is not None:
            runtime, self.runtime = self.runtime, None
            runtime.stop()
            self._sockets.stop()
            await self._mcp.aclose()
            await self._sockets.aclose()
            await runtime.aclose()
            if self._process is not None:
                self._process.remove()
            forget_runtime()

    def _handle_signals(self, runtime: Runtime) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python delivers signals to the main thread only.
        loop = asyncio.get_running_loop()

        def end(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(runtime.stop)
            loop.call_soon_threadsafe(self._mcp.stop)
            loop.call_soon_threadsafe(self._sockets.stop)
            previous = self._previous.get(number)
            if callable(previous):
                previous(number, frame)
            elif previous == signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        async def drain(number: int, frame: FrameType | None) -> None:
            await runtime.drain()
            end(number, frame)

        def begin_drain(number: int, frame: FrameType | None) -> None:
            runtime.background.spawn(drain(number, frame), name="running turns before the end")

        is_draining = False

        def handle(number: int, frame: FrameType | None) -> None:
            nonlocal is_draining
            if number == signal.SIGTERM and runtime.settings.drain_seconds and not is_draining:
                is_draining = True
                loop.call_soon_threadsafe(begin_drain, number, frame)
            else:  # Ctrl-C, or a second signal: nobody waits for turns
                end(number, frame)

        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, handle)

    def _restore_signals(self) -> None:
        while self._previous:
            number, previous = self._previous.popitem()
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)


class Application(Gate):
    """The protocols http, websocket and lifespan, behind the gate."""

    def __init__(self) -> None:
        super().__init__(self._hand_on, settings.MOCHI)
        self._http = MochiASGIHandler()
        self._mcp = McpEndpoint(
            settings.MOCHI,
            get_runtime,
            processes=lambda: server_processes(settings.MOCHI),
            version=__version__,
        )
        self._sockets = SocketEndpoint()
        self._lifespan = Lifespan(self._mcp, self._sockets)

    def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Return what serves the protocol; a coroutine of its own would cost time."""
        kind = scope["type"]
        if kind == "http":
            self._lifespan.start()
            if inner_path(scope) == MCP_PATH:
                return self._answer_mcp(scope, receive, send)
            return self._http(scope, receive, send)
        if kind == "lifespan":
            return self._lifespan(receive, send)
        if kind == "websocket" and inner_path(scope) == SOCKET_PATH:
            self._lifespan.start()
            return self._sockets(scope, receive, send)
        return refuse(scope, send, NotFound(path=scope.get("path", "")), [])

    async def _answer_mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (REQUEST_ID, request_id().encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._mcp(scope, receive, send_with_id)
        except McpNotInstalled as error:
            await refuse(scope, send, error, [])

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start and end with a program that mounts the application."""
        return self._lifespan.running()


application = Application()
