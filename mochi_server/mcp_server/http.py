"""``/mcp``: the MCP server over Streamable HTTP, which is loaded at its first request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..config import MochiServerSettings
from ..config.installation import install_command
from ..core.aio import BackgroundTasks, in_thread
from ..core.caller import RESERVED_NAMES, current_caller
from ..errors import McpNotInstalled
from ..runtime import Runtime

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/mcp"

CALLER = "mochi.caller"
"""Key of the scope of a request: who sends it."""

STOP_SECONDS = 1.0
"""Longest wait for requests whose runs were ended, when the server stops."""


class McpEndpoint:
    """The ASGI application of ``/mcp``."""

    def __init__(
        self,
        settings: MochiServerSettings,
        runtime: Callable[[], Runtime],
        *,
        processes: Callable[[], int],
        version: str,
    ) -> None:
        """Load nothing yet.

        Args:
            settings: The settings of the server.
            runtime: Returns the parts of the server.
            processes: Returns how many processes serve. Where there are several, clients of a
                protocol with sessions get none: their next request may reach another process.
            version: Of this program.
        """
        self._settings = settings
        self._runtime = runtime
        self._processes = processes
        self._version = version
        self._tasks = BackgroundTasks()
        self._requests: set[asyncio.Task[Any] | None] = set()
        """Tasks of the requests that are being answered, but for streams of notifications."""
        self._serving: asyncio.Task[None] | None = None
        self._application: asyncio.Future[Application]
        self._stopping: asyncio.Event

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            McpNotInstalled: the package is missing.
        """
        if self._serving is None:
            if find_spec("mcp") is None:
                raise McpNotInstalled(command=install_command("mcp"))
            loop = asyncio.get_running_loop()
            self._application, self._stopping = loop.create_future(), asyncio.Event()
            self._serving = self._tasks.spawn(self._serve(), name="MCP over HTTP")
        application = await asyncio.shield(self._application)
        # Of clients that pad values: uvicorn leaves the spaces behind them.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        # Requests are handled in another task.
        scope[CALLER] = caller = current_caller()
        if caller.name not in RESERVED_NAMES:
            scope["user"] = self._user(caller.name)
        task = asyncio.current_task()
        if scope["method"] != "GET":
            self._requests.add(task)
        try:
            await application(scope, receive, send)
        finally:
            self._requests.discard(task)

    @staticmethod
    def _user(name: str) -> object:
        """Return who alone may go on with a session of the protocol that it begins."""
        auth = import_module("mcp.server.auth.provider")
        middleware = import_module("mcp.server.auth.middleware.bearer_auth")
        token = auth.AccessToken(token="", client_id=name, scopes=[])
        return middleware.AuthenticatedUser(token)

    async def _serve(self) -> None:
        """Hold what serves all requests; it must begin and end in one task."""
        try:
            manager = await self._load()
            async with manager.run():
                self._application.set_result(self._with_origins(manager.handle_request))
                await self._stopping.wait()
                if requests := {task for task in self._requests if task is not None}:
                    await asyncio.wait(requests, timeout=STOP_SECONDS)
        except Exception as error:
            if self._application.done():
                raise
            self._application.set_exception(error)
        finally:
            self._serving = None

    async def _load(self) -> StreamableHTTPSessionManager:
        # Half a second of work, which the loop must not wait for.
        module = await in_thread(import_module, "mochi_server.mcp_server.server")
        transport = await in_thread(import_module, "mcp.server.streamable_http_manager")
        return transport.StreamableHTTPSessionManager(  # type: ignore[no-any-return] # imported late
            await module.build_server(self._runtime(), self._tasks, version=self._version),
            stateless=self._processes() > 1,
            max_request_body_size=self._settings.max_body_bytes,
        )

    def _with_origins(self, application: Application) -> Application:
        """Let the web pages of the allowed origins read the answers; the gate has checked them."""
        if not self._settings.cors_origins:
            return application
        cors = import_module("starlette.middleware.cors")
        return cors.CORSMiddleware(  # type: ignore[no-any-return]
            application,
            allow_origins=self._settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["mcp-session-id"],
        )

    def stop(self) -> None:
        """Begin to end all requests; the runs that they read were ended before."""
        if self._serving is not None and self._application.done():
            self._stopping.set()

    async def aclose(self) -> None:
        """End all requests, and the runs that wait for their clients."""
        self.stop()
        await self._tasks.drain(2 * STOP_SECONDS)
