"""One MCP server: started when it is used, and again when it has ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio

from ..config.entry import McpServerConfig
from ..input import ServerInput
from ..transports.log import ServerLog
from .connection import McpConnection, ServerFailed, SessionLost
from .facts import ServerFacts

if TYPE_CHECKING:
    from mcp.client.client import Client

    from .registry import McpServers

logger = logging.getLogger(__name__)

T = TypeVar("T")

State = Literal["disabled", "stopped", "starting", "ready", "failed", "needs_authorization"]

FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
"""Seconds between an end and the next start; doubled with each that follows without success."""
PATIENCE_SECONDS = 20.0
"""How long after its start a server whose tools are not known yet is waited for."""

IDLE, STOPPED, CLOSED = "it was not used for a while", "it was stopped", "this server stops"
EXPECTED = frozenset({IDLE, STOPPED, CLOSED})
"""Reasons of ends that are no errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerStatus:
    """A server as it is now."""

    name: str
    state: State
    transport: str
    scope: str
    tools: Sequence[str] = ()
    """The server's own names of those that are known, offered or not."""
    latency: float | None = None
    """Seconds that it took last to list its tools."""
    last_error: str | None = None
    """Why it ended last, or did not start; null after a success."""
    restarts: int = 0
    """Starts in this process after it had ended by itself, or was restarted."""
    protocol_version: str | None = None
    server_info: Mapping[str, str] | None = None
    """``{"name", "version"}`` as it says them itself."""
    connections: int = 0
    """Connections of this process; several where each session has its own."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Why a tool of it cannot be used, by the server's name for it."""
    authorization_url: str | None = None
    """Where a person has to authorize, if that is needed."""
    changed: Sequence[str] = ()
    """The server's own names of tools that have changed since a person approved them."""


@dataclass(slots=True, eq=False)
class McpServer:
    """A server that is started when it is used; of one session, or shared by all.

    It outlives its connections, and stays usable for whoever holds it when the configuration has
    changed.
    """

    config: McpServerConfig
    owner: McpServers
    session_id: str | None = None
    """Whose it is; None: it is shared."""
    facts: ServerFacts | None = None
    """What it has said last, perhaps to an earlier process; None: nothing is known."""
    log: ServerLog = field(default_factory=ServerLog)
    connection: McpConnection | None = None
    last_error: str | None = None
    restarts: int = 0
    is_retired: bool = False
    """Whether the configuration has another one of this name, or none."""
    input: ServerInput = field(init=False)
    _failures: int = 0
    _retry_at: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.input = ServerInput(is_trusted=self.config.options.trusted)

    @property
    def timeout(self) -> float | None:
        """Seconds for a call or another request; None: no limit."""
        return self.config.options.timeout_seconds or self.owner.default_timeout

    @property
    def state(self) -> State:
        if self.connection is not None:
            return "ready" if self.connection.is_ready else "starting"
        return "stopped" if self.last_error is None else "failed"

    @property
    def is_waiting(self) -> bool:
        """Whether it failed and is not started again yet."""
        return self._retry_at > time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether it neither runs nor will by itself, and may be started at once."""
        return self.connection is None and self._timer is None and not self.is_waiting

    def start(self) -> McpConnection:
        """Return the connection, which is begun if there is none that can be used."""
        if self.connection is None:
            self._start_no_later()  # it would start again one that ends meanwhile
            if self.last_error is not None:
                self.restarts += 1
            self.log.begin()
            self.connection = self.owner.connect(self)
        return self.connection

    def start_later(self, seconds: float) -> bool:
        """Start it after some seconds, unless it runs, or will; return whether it will now."""
        if self.connection is not None or self._timer is not None:
            return False
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start_by_timer)
        return True

    def _start_by_timer(self) -> None:
        self._timer = None
        if not self.is_retired and not self.owner.closed:
            self.start()

    async def wait_started(self) -> None:
        """Start the server if it does not run, and wait until it runs, or has failed.

        Raises:
            ServerFailed: It failed a moment ago.
        """
        if self.connection is None and self.is_waiting:
            seconds = max(self._retry_at - time.monotonic(), 1)
            raise ServerFailed(
                f"The MCP server {self.config.name!r} cannot be used: {self.last_error}. "
                f"It is started again after {seconds:.0f} s at the earliest."
            )
        await self.start().wait_started()

    async def request(self, operation: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the SDK's client; start the server if it does not run.

        Raises:
            ServerFailed: There is no answer, or the answer is an error.
        """
        await self.wait_started()
        try:
            result = await self.start().request(operation)
        except SessionLost:
            result = await self.start().request(operation)
        self._failures = 0
        return result

    async def wait_known(self) -> None:
        """Wait a while for the tools of a server that was never started before."""
        if self.facts is None and not self.is_waiting:
            connection = self.start()
            seconds = connection.began + PATIENCE_SECONDS - time.monotonic()
            with anyio.move_on_after(seconds):
                await connection.wait_started()

    def _start_no_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self, reason: str = STOPPED) -> None:
        self._start_no_later()
        if self.connection is not None:
            await self.connection.aclose(reason)
        self.last_error, self._failures, self._retry_at = None, 0, 0.0

    def stop_if_idle(self, seconds: float) -> bool:
        """End the connection if it was not used for so long; return whether there is one left."""
        connection = self.connection
        if connection is None:
            return False
        is_idle = connection.users == 0 and time.monotonic() - connection.used_at > seconds
        if connection.is_ready and is_idle:
            connection.end(IDLE)
        return True

    def note_facts(self, facts: ServerFacts) -> None:
        self.facts, self.last_error = facts, None
        if self.session_id is None:  # a session's own may be what its model made of it
            self.owner.keep_facts(self)

    def note_end(self, connection: McpConnection) -> None:
        """Note why a connection has ended; begin another one later, where it is kept running."""
        self.connection = None
        reason = connection.end_reason or STOPPED
        self.log.note(f"ended: {reason}")
        if reason in EXPECTED:
            return
        self.last_error = reason
        self._failures = 1 if connection.has_served else self._failures + 1
        delay = min(FIRST_DELAY * 2 ** min(self._failures - 1, 10), LONGEST_DELAY)
        if connection.has_served:
            delay = 0.0
        self._retry_at = time.monotonic() + delay
        logger.warning("The MCP server %s: %s", self.config.name, reason)
        if self.config.options.start == "eager":
            self.start_later(max(delay, FIRST_DELAY))
