"""One connection to one MCP server, from its start to its end.

The SDK's client is entered, used for what is not a call, and left in one task. Calls come from any
task: a request of the SDK needs none of its own, and being cancelled it tells the server.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic import ValidationError

from ....core.aio import BackgroundTasks
from ....core.logs import one_line
from ...base import ToolFailed
from ..failures import error_text, reason_of
from ..secret_values import SecretValues, redact_logs
from .facts import ServerFacts, read_facts

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp.shared.exceptions import MCPError

    from ..transports.limits import Streams

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_SECONDS = 60.0
"""Longest start, in which ``npx`` and ``uvx`` may download the server."""
LIST_SECONDS = 30.0
RELIST_SECONDS = 1.0
"""Shortest time between two lists, however often they change."""
LIST_CHANGES = frozenset({"notifications/tools/list_changed", "notifications/prompts/list_changed"})
LISTEN_AGAIN_SECONDS = 10.0
SETTLE_SECONDS = 0.5
"""How far apart the end of a connection and the reason of it may be."""
SESSION_LOST = "Session terminated"
"""What the SDK makes of a response 404 to a request of a session."""
END_SECONDS = 5.0
"""Longest wait for a connection that is being closed."""


class ServerFailed(ToolFailed):
    """The server cannot be used at present; the text says why."""


class SessionLost(ServerFailed):
    """The server has forgotten the connection, and has not done what was requested."""


class McpConnection:
    """A connection that is made as soon as it is built, in the background.

    Args:
        name: Of the server, for people.
        load_sdk: Returns the SDK's client, which takes a second to import.
        transport: Opens the streams; gets a function to call with the reason when they end.
        tasks: Where it runs.
        secrets: What no error shows.
        options: Further arguments of the SDK's ``Client``, such as callbacks.
        on_facts: Is called with what the server says, at the start and whenever its tools change.
        on_end: Is called once, when the connection ends; its process may still be there.
    """

    def __init__(
        self,
        name: str,
        transport: Callable[[Callable[[str], None]], AbstractAsyncContextManager[Streams]],
        load_sdk: Callable[[], Awaitable[type[Client]]],
        *,
        tasks: BackgroundTasks,
        secrets: SecretValues,
        options: Mapping[str, Any],
        on_facts: Callable[[ServerFacts], None],
        on_end: Callable[[McpConnection], None],
    ) -> None:
        self.name = name
        self._transport = transport
        self._load_sdk = load_sdk
        self._secrets = secrets
        self._options = options
        self.tasks = tasks
        self._on_facts = on_facts
        self._on_end = on_end
        self._client: Client | None = None
        self._started = asyncio.Event()
        self._wake = asyncio.Event()
        """Set when the connection is to end, or the list of tools to be read again."""
        self._must_list = False
        self._ending = asyncio.Event()
        self._starting: anyio.CancelScope | None = None
        self.end_reason: str | None = None
        """Why it has ended, or is to end; None while it may be used."""
        self.began = time.monotonic()
        self.users = 0
        """Requests that are under way."""
        self.used_at = time.monotonic()
        """When the last request ended."""
        self.has_served = False
        """Whether a request has succeeded."""
        self.latency: float | None = None
        """Seconds that the last request of a list took."""
        self.task = tasks.spawn(self._run(), name=f"MCP server {name}")

    @property
    def is_ready(self) -> bool:
        return self._client is not None and self.end_reason is None

    async def wait_started(self) -> None:
        """Wait until it is ready, or has failed."""
        await self._started.wait()

    async def request(self, operation: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the SDK's client, once it is ready.

        Raises:
            ServerFailed: There is no answer, or the answer is an error.
        """
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

        self.users += 1
        try:
            await self._started.wait()
            if self._client is None or self.end_reason is not None:
                raise ServerFailed(self._failure("cannot be used"))
            try:
                result = await operation(self._client)
            except MCPError as error:
                raise await self._failure_of(error) from error
            except (ValidationError, RuntimeError) as error:
                text = f"its answer cannot be used: {self._shown(reason_of(error))}"
                raise ServerFailed(f"The MCP server {self.name!r} failed: {text}") from error
            self.has_served = True
            return result
        finally:
            self.users -= 1
            self.used_at = time.monotonic()

    async def _failure_of(self, error: MCPError) -> ServerFailed:
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - slow to import

        if error.message == SESSION_LOST:
            self.end("it has ended the session")
            return SessionLost(self._failure("ended during the call"))
        if error.code == CONNECTION_CLOSED:
            with anyio.move_on_after(SETTLE_SECONDS):
                await self._ending.wait()
        if self.end_reason is not None:
            return ServerFailed(self._failure("ended during the call"))
        text = error_text(error, self._secrets) or "it does not say why"
        return ServerFailed(f"The MCP server {self.name!r} failed: {text}")

    def _failure(self, what: str) -> str:
        reason = self.end_reason or "it is not connected"
        return f"The MCP server {self.name!r} {what}: {reason}."

    def _shown(self, text: str) -> str:
        return one_line(self._secrets.redacted(text))

    def refresh(self) -> None:
        """Read the list of tools again, soon."""
        self._must_list = True
        self._wake.set()

    def end(self, reason: str) -> None:
        """End it; requests that are under way fail with the reason."""
        if self.end_reason is not None:
            return
        self.end_reason = self._shown(reason)
        self._ending.set()
        self._wake.set()
        if self._starting is not None:
            self._starting.cancel()
        self._on_end(self)

    async def aclose(self, reason: str = "it was stopped") -> None:
        """End it and wait until it has ended, with every process that it started."""
        self.end(reason)
        if not (await asyncio.wait({self.task}, timeout=END_SECONDS))[0]:
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=END_SECONDS)

    async def _run(self) -> None:
        try:
            await self._serve()
        except Exception as error:
            self.end(reason_of(error))
            logger.debug("MCP server %s", self.name, exc_info=True)
        finally:
            self._client = None
            self.end("it ended")
            self._started.set()

    async def _serve(self) -> None:
        make_client = await self._load_sdk()
        listening: asyncio.Task[None] | None = None
        with anyio.CancelScope() as starting:
            self._starting = starting
            if self.end_reason is not None:
                return
            starting.deadline = anyio.current_time() + START_SECONDS
            client = make_client(
                self._transport(self.end),
                message_handler=self._on_message,
                cache=None,
                **self._options,
            )
            async with client:
                facts = await read_facts(client, self.name, self._secrets)
                self._starting, starting.deadline = None, math.inf
                self._note_facts(facts)
                self._client = client
                self.used_at = time.monotonic()
                self._started.set()
                name = f"changes of MCP server {self.name}"
                listening = self.tasks.spawn(self._listen(client), name=name)
                try:
                    await self._keep(client)
                finally:
                    listening.cancel()
        if listening is None:
            self.end(f"it did not start within {START_SECONDS:g} seconds")

    def _note_facts(self, facts: ServerFacts) -> None:
        self.latency = facts.latency
        self._on_facts(facts)

    async def _keep(self, client: Client) -> None:
        """Return when the connection is to end; read the list of tools when it has changed."""
        while self.end_reason is None:
            await self._wake.wait()
            self._wake.clear()
            if not self._must_list or self.end_reason is not None:
                continue
            self._must_list = False
            try:
                with anyio.fail_after(LIST_SECONDS):
                    self._note_facts(await read_facts(client, self.name, self._secrets))
            except Exception as error:  # noqa: BLE001 - the earlier list is still there
                reason = self._shown(reason_of(error))
                logger.info("The tools of MCP server %s: %s", self.name, reason)
            with anyio.move_on_after(RELIST_SECONDS):
                await self._ending.wait()

    async def _on_message(self, message: Any) -> None:  # noqa: ANN401 - the SDK's union
        if getattr(message, "method", None) in LIST_CHANGES:
            self.refresh()

    async def _listen(self, client: Client) -> None:
        """Be told of changes, by servers of 2026 that have to be asked for that."""
        from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415

        offered = client.server_capabilities
        tools = offered.tools is not None and bool(offered.tools.list_changed)
        prompts = offered.prompts is not None and bool(offered.prompts.list_changed)
        while (tools or prompts) and self.end_reason is None:
            try:
                async with client.listen(
                    tools_list_changed=tools, prompts_list_changed=prompts
                ) as changes:
                    async for _ in changes:
                        self.refresh()
            except (ListenNotSupportedError, MCPError):
                return
            except RuntimeError:
                logger.debug("MCP server %s tells no changes", self.name, exc_info=True)
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)
            self.refresh()


def import_client() -> type[Client]:
    """Import the SDK with what uses it here; blocks for a second."""
    from mcp.client.client import Client  # noqa: PLC0415 - an extra, and slow

    from ..transports import http, stdio  # noqa: F401, PLC0415 - the same

    redact_logs()
    return Client
