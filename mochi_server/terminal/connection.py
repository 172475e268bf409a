"""Finds the server to talk to, and starts one for this program where none answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from secrets import token_urlsafe
from typing import IO, Final

import anyio

from ..config import MochiServerSettings, export
from ..core.aio import end_task, start_task
from ..server.attached import ATTACHED_SERVER
from ..server.startup import data_folder_choice
from .client import Client, ServerUnreachable

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 5.0
"""Time that the server has to end beyond ``MOCHI_SHUTDOWN_SECONDS``."""

_LISTENS: Final = " listens on "


class NoDataFolder(Exception):
    """No server answers, and one that is started would not know its data folder."""


@asynccontextmanager
async def connected(
    settings: MochiServerSettings,
    values: Mapping[str, object],
    *,
    url: str | None,
    words: tuple[str, ...],
    say: Callable[[str], object],
) -> AsyncGenerator[Client, None]:
    """Connect to the server that the user names, to the one of the settings, or to a new one.

    Args:
        settings: The settings of this program.
        values: Those of them that the command line names.
        url: Address that the user names; None: the settings decide.
        words: The command, for the commands that an error suggests.
        say: Takes a line for a person when a server is started.

    Raises:
        ServerUnreachable: The named server does not answer, or the new one does not start.
        NoDataFolder: A server would have to be started, without a data folder.
    """
    named = url or settings.server_url
    token = settings.api_token.get_secret_value() if settings.api_token is not None else None
    client = Client(named or settings.local_url, token)
    if await client.answers():
        yield client
        return
    if named is not None:
        raise ServerUnreachable(f"No mochi-server answers at {named}.")
    problem = settings.data_folder_problem
    if problem is not None and settings.environment != "test":
        raise NoDataFolder(
            f"No server answers at {settings.local_url}.\n{data_folder_choice(problem, *words)}"
        )
    say(f"No server answers at {settings.local_url}; starting one for this command ...")
    if token is None and settings.demands_token:
        token = token_urlsafe()  # of this command's server alone
        values = {**values, "api_token": token}
    async with _own_server(settings, values) as own:
        yield Client(own, token)


@asynccontextmanager
async def _own_server(
    settings: MochiServerSettings, values: Mapping[str, object]
) -> AsyncIterator[str]:
    """Run a server on a free port of loopback, and yield its address."""
    export(values)
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ATTACHED_SERVER),
            *("serve", "--host", "127.0.0.1", "--port", "0", "--workers", "1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this program
        )
        try:
            url = await _address(process, log)
            # Nothing it prints is lost room in the pipe.
            reader = start_task(_drain(process))
            try:
                yield url
            finally:
                await end_task(reader)
        finally:
            await _end(process, settings.drain_seconds + settings.shutdown_seconds + STOP_SECONDS)


async def _address(process: asyncio.subprocess.Process, log: IO[bytes]) -> str:
    assert process.stdout is not None  # noqa: S101 - a pipe
    with anyio.move_on_after(START_SECONDS):
        async for line in process.stdout:
            _, listens, address = line.decode().partition(_LISTENS)
            if listens:
                return address.strip()
    log.seek(0)
    text = log.read().decode(errors="replace").strip()
    raise ServerUnreachable(f"The server did not start.\n{text}".rstrip())


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe
    while await process.stdout.read(65536):
        pass


async def _end(process: asyncio.subprocess.Process, seconds: float) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
        with anyio.move_on_after(seconds):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
