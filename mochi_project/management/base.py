"""What the commands of several apps share."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_server.config import MochiServerSettings
from mochi_server.errors import JSONObject, MochiError
from mochi_server.server.startup import storage_package_problem
from mochi_server.sessions.catalogue import refresh
from mochi_server.sessions.catalogue.catalogue import CATALOGUE
from mochi_server.sessions.manager import SessionManager
from mochi_server.tools.base import Problem
from mochi_server.tools.folder.snapshot import write_stamp
from mochi_server.workspace.session_folders import SessionFolders

from ..runtime import StorageHandler
from .console import as_json, plain, table

INTERRUPTED = 130
"""Exit code of a command that was ended from the keyboard, as shells have it."""


def with_sessions(
    work: Callable[[SessionManager], Awaitable[int]], storage: str = "default"
) -> None:
    """Run ``work`` on the sessions of a storage, as :func:`run_on_stored` does."""

    async def work_on_sessions() -> int:
        path = settings.MOCHI.sessions_state_path / CATALOGUE if storage == "default" else None
        sessions = SessionManager(StorageHandler()[storage], catalogue_path=path)
        if storage == "default":
            folders = SessionFolders(settings.MOCHI.workspace_path, sessions)
            sessions.on_deleted.append(folders.remove)
        async with aclosing(sessions):
            return await work(sessions)

    run_on_stored(work_on_sessions)


def run_on_stored(work: Callable[[], Coroutine[Any, Any, int]]) -> None:
    """Run work for which sessions must be stored, and end the process unless it returns 0.

    Raises:
        CommandError: It failed, or the sessions of a server cannot be seen from here.
    """
    if settings.MOCHI.session_storage == "memory":
        raise CommandError("MOCHI_SESSION_STORAGE is memory: only the server itself has sessions.")
    if (problem := storage_package_problem(settings.MOCHI)) is not None:
        raise CommandError(problem)
    try:
        code = asyncio.run(work())
    except MochiError as error:
        raise CommandError(error.message) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if code:
        sys.exit(code)


@contextmanager
def without_log_of_problems() -> Iterator[None]:
    """Keep files that cannot be read out of the log, where the command itself names them."""
    before = refresh.logger.level
    refresh.logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        refresh.logger.setLevel(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContents:
    """What a folder of the user's code has, for JSON and as rows of a table."""

    folder: str
    items: Sequence[JSONObject]
    rows: Sequence[Sequence[object]]
    problems: Sequence[Problem]


class ReloadCommand(BaseCommand):
    """Loads a folder of the user's code, says what is in it, and makes servers load it again."""

    requires_system_checks = ()
    noun: str
    """What is in the folder, as a plural."""
    columns: Sequence[str]
    stamp: str
    """Name of the file, in the folder of the state, that servers check."""

    def find(self, mochi: MochiServerSettings) -> FolderContents:
        raise NotImplementedError

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        parser.add_argument(
            "--check",
            action="store_true",
            help="Only look: exit with 1 if there are problems, and leave servers alone.",
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        mochi: MochiServerSettings = settings.MOCHI
        with redirect_stdout(sys.stderr):  # a module may print; that must not stand in our JSON
            contents = self.find(mochi)
        if options["json"]:
            problems = [problem.as_json() for problem in contents.problems]
            parts = {"folder": contents.folder, self.noun: contents.items, "problems": problems}
            self.stdout.write(as_json(parts))
        else:
            self.stdout.write("\n".join(self._text(contents)))
        if options["check"]:
            if any(not problem.is_hint for problem in contents.problems):
                sys.exit(1)
            return
        stamp = mochi.state_path / self.stamp
        try:
            write_stamp(stamp)
        except OSError as error:
            raise CommandError(f"{stamp} cannot be written: {error.strerror}.") from error

    def _text(self, contents: FolderContents) -> Iterator[str]:
        if contents.rows:
            yield table(contents.rows, self.columns)
        else:
            yield f"No {self.noun} in {contents.folder}."
        for problem in contents.problems:
            tool = f" ({problem.tool})" if problem.tool else ""
            kind = "hint" if problem.is_hint else "problem"
            yield plain(f"{kind}: {problem}{tool}")
