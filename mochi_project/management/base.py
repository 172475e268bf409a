"""What the commands of several apps do alike."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_server.config import MochiServerSettings
from mochi_server.errors import JSONObject, MochiError
from mochi_server.sessions.catalogue import index
from mochi_server.sessions.manager import SessionManager
from mochi_server.tools.base import Problem
from mochi_server.tools.folder.snapshot import write_stamp

from ..backends import StorageHandler
from .console import as_json, plain, table

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a folder has."""

    folder: str
    items: Sequence[JSONObject]
    """Each as JSON shows it."""
    rows: Sequence[Sequence[object]]
    """Each as the table shows it."""
    problems: Sequence[Problem]


class ReloadCommand(BaseCommand):
    """Loads a folder of the user's code, says what is in it, and makes servers load it again."""

    requires_system_checks = ()
    noun: str
    """What is in the folder, as a plural."""
    columns: Sequence[str]
    """Of the table."""
    stamp: str
    """The file in the folder of the state that servers look at."""

    def find(self, mochi: MochiServerSettings) -> Found:
        """Load the folder."""
        raise NotImplementedError

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``[--json] [--check]``."""
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        parser.add_argument(
            "--check",
            action="store_true",
            help="Only look: exit with 1 if there are problems, and leave servers alone.",
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Print what is there; exit or tell the servers."""
        mochi: MochiServerSettings = settings.MOCHI
        with redirect_stdout(sys.stderr):  # a module may print; that must not stand in our JSON
            found = self.find(mochi)
        self.stdout.write(self._json(found) if options["json"] else "\n".join(self._text(found)))
        if not options["check"]:
            _tell_servers(mochi.state_path / self.stamp)
        elif any(not problem.is_hint for problem in found.problems):
            sys.exit(1)

    def _json(self, found: Found) -> str:
        problems = [problem.as_json() for problem in found.problems]
        return as_json({"folder": found.folder, self.noun: found.items, "problems": problems})

    def _text(self, found: Found) -> Iterator[str]:
        """A table, then the problems."""
        if found.rows:
            yield table(found.rows, self.columns)
        else:
            yield f"No {self.noun} in {found.folder}."
        for problem in found.problems:
            tool = f" ({problem.tool})" if problem.tool else ""
            kind = "hint" if problem.is_hint else "problem"
            yield plain(f"{kind}: {problem}{tool}")


def _tell_servers(stamp: Path) -> None:
    """Make every running server that looks at this file load again, at the next use.

    Raises:
        CommandError: it cannot be written.
    """
    try:
        write_stamp(stamp)
    except OSError as error:
        raise CommandError(f"{stamp} cannot be written: {error.strerror}.") from error
