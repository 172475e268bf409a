"""``mochi-server mcp``: the MCP server on standard input and output, for one client.

Nothing but the protocol is written to standard output.
"""

from __future__ import annotations

import asyncio
import logging.config
import signal

from mcp.server.stdio import stdio_server

from ..config import MochiServerSettings
from ..core.aio import BackgroundTasks
from ..core.logs import command_logging_config
from ..runtime import Runtime
from .server import build_server


def serve(settings: MochiServerSettings, *, version: str) -> None:
    """Serve until standard input ends."""
    logging.config.dictConfig(command_logging_config(settings.log_level, settings.log_format))
    # The thread that reads standard input cannot be stopped: the signal ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(settings, version))


async def _serve(settings: MochiServerSettings, version: str) -> None:
    tasks = BackgroundTasks()
    async with Runtime(settings) as runtime, stdio_server() as (reading, writing):
        server = await build_server(runtime, tasks, version=version)
        try:
            await server.run(reading, writing, server.create_initialization_options())
        finally:
            runtime.stop()
            await tasks.drain(0)
