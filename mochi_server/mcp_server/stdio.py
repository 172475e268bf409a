"""``mochi-server mcp``: the MCP server on standard input and output, for one client.

Nothing but the protocol is written to standard output.
"""

from __future__ import annotations

import asyncio
import logging.config
import signal
from collections.abc import Mapping

from mcp.server.stdio import stdio_server

from ..config import MochiServerSettings
from ..core.aio import BackgroundTasks
from ..core.logs import command_logging_config
from ..runtime import Runtime
from ..sessions.storage.base import SessionStorage
from .server import build_server


def serve(
    settings: MochiServerSettings, *, storages: Mapping[str, SessionStorage], version: str
) -> None:
    """Serve until standard input ends."""
    logging.config.dictConfig(command_logging_config(settings.log_level, settings.log_format))
    # The thread that reads standard input cannot be stopped: the signal ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(Runtime(settings, storages=storages), version))


async def _serve(created: Runtime, version: str) -> None:
    tasks = BackgroundTasks()
    async with created as runtime, stdio_server() as (reading, writing):
        server = await build_server(runtime, tasks, version=version)
        try:
            await server.run(reading, writing, server.create_initialization_options())
        finally:
            runtime.stop()
            await tasks.drain(0)
