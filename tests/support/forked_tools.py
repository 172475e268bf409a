"""Processes of tools that are forked from one that has imported what each of them imports.

That is most of the CPU of a process of tools. Servers and tests start such processes by
``asyncio.create_subprocess_exec``, which is replaced here for them; all else is started as ever,
also a process of tools in a sandbox. What :mod:`tests.support.forked` says of servers holds for
processes of tools, too; the fixture ``fresh_tools`` is for tests of those processes themselves.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mochi_server.config import tool_environment
from mochi_server.tools.process.worker_process import _RUN_WORKER

from . import forked
from .forked import ForkedProcess, is_read_the_same

_start_program = asyncio.create_subprocess_exec


def fork_where_allowed() -> None:
    """In pytest: fork processes of tools, as long as :mod:`tests.support.forked` allows it."""
    _replace_start(lambda: forked.parent_of_tools() if forked.forks_tools else None)


def fork_by(control: socket.socket) -> None:
    """In a server: fork by the process on this socket."""
    _replace_start(lambda: control)


def _replace_start(control: Callable[[], socket.socket | None]) -> None:
    start = partial(_start, control, tool_environment())
    asyncio.create_subprocess_exec = start  # type: ignore[assignment]


async def _start(
    control: Callable[[], socket.socket | None],
    environment: dict[str, str],
    *command: str,
    **options: Any,
) -> asyncio.subprocess.Process | ForkedProcess:
    """Start a program, by a fork where it is a process of tools."""
    is_tools = command[:3] == (sys.executable, "-c", _RUN_WORKER)
    if not (
        is_tools
        and is_read_the_same(environment, options["env"])
        and (parent := control()) is not None
    ):
        return await _start_program(*command, **options)
    kept = list(options["pass_fds"])
    job = {
        "code": _RUN_WORKER,
        "arguments": command[3:],
        "cwd": os.getcwd(),  # noqa: PTH109
        "env": dict(options["env"]),
        "kept": kept,
    }
    with open(os.devnull) as null:  # noqa: ASYNC230, PTH123
        files = [null.fileno(), options["stdout"], options["stderr"], *kept]
        return await ForkedProcess.start_by(parent, job, files)
