"""Starts servers, or reaches them: opens the streams of a connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ....config import tool_environment
from ....core.aio import in_thread
from ..config.entry import McpServerConfig
from ..oauth.authorizations import McpAuthorizations
from ..redaction import secrets_of
from ..transports.log import StdioCommand
from .server import McpServer

if TYPE_CHECKING:
    from ..transports.limits import Streams

Launcher = Callable[[McpServerConfig, StdioCommand, str | None], Awaitable[StdioCommand]]


class TransportOpener:
    """Opens the transports of all servers.

    Args:
        authorizations: Those of servers over HTTP.
        variables: Names of environment variables that servers get beside the usual few.
        working_dir: Working directory of servers that name none.
        launcher: Returns the command to start instead, such as one that is confined.
    """

    def __init__(
        self,
        authorizations: McpAuthorizations,
        *,
        variables: Collection[str] = (),
        working_dir: Path | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        self.authorizations = authorizations
        self._variables = tuple(variables)
        self._working_dir = working_dir
        self._launcher = launcher

    @asynccontextmanager
    async def open(
        self, server: McpServer, allowed_commands: Sequence[str], on_end: Callable[[str], None]
    ) -> AsyncGenerator[Streams, None]:
        """Start a server or reach it, as its configuration says at this moment.

        Args:
            server: The server.
            allowed_commands: Programs that may be started; none: all.
            on_end: Called with the reason when the streams end.
        """
        from ..transports.http import http_transport  # noqa: PLC0415 - an extra, and slow
        from ..transports.stdio import stdio_transport  # noqa: PLC0415 - the same

        config = await in_thread(server.config.expanded, allowed_commands)
        server.log.secrets.add(config.secrets)
        if config.url is not None:
            transport = http_transport(
                config.url,
                headers=config.headers,
                log=server.log,
                on_end=on_end,
                auth=self.authorizations.auth(config, server.log.secrets),
                is_sse=config.transport == "sse",
            )
        else:
            transport = stdio_transport(await self._command(server, config), server.log, on_end)
        async with transport as streams:
            yield streams

    async def _command(self, server: McpServer, config: McpServerConfig) -> StdioCommand:
        """Return how to start a server; ``config`` has the values of its variables."""
        environment = tool_environment(self._variables)
        server.log.secrets.add(secrets_of({"env": {**environment}}))
        command = StdioCommand(
            argv=[str(config.command), *config.args],
            env={**environment, **config.env},
            cwd=config.cwd or self._working_dir,
        )
        if self._launcher is not None:
            command = await self._launcher(server.config, command, server.session_id)
        return command
