"""What the commands of several apps do alike."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from mochi_server.errors import MochiError
from mochi_server.sessions.catalogue import index
from mochi_server.sessions.manager import SessionManager

from .backends import StorageHandler

INTERRUPTED = 130
"""The exit code of a command that was ended from the keyboard, as shells have it."""


def with_sessions(
    work: Callable[[SessionManager], Awaitable[int]], storage: str = "default"
) -> None:
    """Do the work on the stored sessions, and end the process unless it answers 0.

    Args:
        work: answers the exit code.
        storage: an alias of ``MOCHI_SESSION_STORAGES``.

    Raises:
        CommandError: it failed, or the sessions of a server cannot be seen from here.
    """
    run_on_stored(partial(_on_sessions, work, storage))


async def _on_sessions(work: Callable[[SessionManager], Awaitable[int]], storage: str) -> int:
    sessions = SessionManager(StorageHandler()[storage])
    try:
        return await work(sessions)
    finally:
        await sessions.aclose()


def run_on_stored(work: Callable[[], Coroutine[Any, Any, int]]) -> None:
    """Do work for which sessions must be stored, and end the process unless it answers 0.

    Raises:
        CommandError: it failed, or the sessions of a server cannot be seen from here.
    """
    if settings.MOCHI.session_storage == "memory":
        raise CommandError("MOCHI_SESSION_STORAGE is memory: only the server itself has sessions.")
    try:
        code = asyncio.run(work())
    except MochiError as error:
        raise CommandError(error.message) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if code:
        sys.exit(code)


@contextmanager
def problems_are_told() -> Iterator[None]:
    """Around work that names the files that cannot be read itself: no log lines say it again."""
    before = index.logger.level
    index.logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        index.logger.setLevel(before)
