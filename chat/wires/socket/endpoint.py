"""``/ws/chat``: all its sockets, and their end with the server."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings

from mochi_project.http.gate import Receive, Scope, Send, refuse
from mochi_server.core.aio import BackgroundTasks
from mochi_server.errors import ShuttingDown

from .new_runs import NewRuns
from .new_servers import NewServers
from .outlet import CLOSE_SECONDS

if TYPE_CHECKING:
    from .consumer import ChatConsumer

PATH = "/ws/chat"


class SocketEndpoint:
    """The ASGI application of ``/ws/chat``."""

    def __init__(self) -> None:
        self.tasks = BackgroundTasks()
        self.sockets: set[ChatConsumer] = set()
        """The open ones."""
        self._new_runs = NewRuns(self.sockets, self.tasks)
        self._new_servers = NewServers(self.sockets, self.tasks)
        self._is_stopping = False

    @cached_property
    def _consumer(self) -> Any:  # noqa: ANN401 - an ASGI application, of channels
        from .consumer import ChatConsumer  # noqa: PLC0415 - with the first socket

        return ChatConsumer.as_asgi(endpoint=self)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if self._is_stopping:
            return refuse(scope, send, ShuttingDown(), [])
        served: Awaitable[None] = self._consumer(scope, receive, send)
        return served

    async def add(self, socket: ChatConsumer) -> None:
        """Add a socket that was accepted."""
        self.sockets.add(socket)
        self._new_runs.watch()
        await self._new_servers.watch()

    def remove(self, socket: ChatConsumer) -> None:
        """Remove a socket that is closed."""
        self.sockets.discard(socket)

    def stop(self) -> None:
        """Begin to close all sockets; their runs were ended before."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._new_runs.stop()
        self._new_servers.stop()
        seconds = settings.MOCHI.shutdown_seconds / 2
        for socket in [*self.sockets]:
            self.tasks.spawn(socket.stop(seconds), name="the end of a socket")

    async def aclose(self) -> None:
        self.stop()
        await self.tasks.drain(settings.MOCHI.shutdown_seconds / 2 + CLOSE_SECONDS)
