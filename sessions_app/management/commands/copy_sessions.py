"""``manage.py copy_sessions``: copy all sessions into another storage."""

from __future__ import annotations

import argparse
from contextlib import AsyncExitStack
from typing import Any, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.base import run_on_stored
from mochi_project.management.console import as_json, plain, progress, table
from mochi_project.storages import storages_of
from mochi_server.backends import build_storages
from mochi_server.config import MochiServerSettings
from mochi_server.errors import JSONObject
from mochi_server.server.startup import storage_package_problem
from mochi_server.sessions.copying import CopyOutcome, CopyReport, compare_sessions, copy_sessions
from mochi_server.sessions.storage.base import SessionStorage
from sessions_app.management.shared import Options, add_json

KINDS = ("json", "redis", "database")
WHOSE = {"default": "of people", "agent_chats": "of agents"}
"""What the aliases of storages hold."""

STEPS = ("copy", "comparison")
COLUMNS = ("SESSIONS", "STEP", *(outcome.upper() for outcome in CopyOutcome))


class Command(BaseCommand):
    """Copies, then compares."""

    help = (
        "Copies the sessions of people and of agents from one storage into another one, and then "
        "compares every session. Run it again to go on; equal sessions are skipped. The source "
        "stays as it is. Stop the server first."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for option, text in (("--from", "The storage to read."), ("--to", "The one to write.")):
            parser.add_argument(
                option, dest=option.strip("-"), choices=KINDS, required=True, help=text
            )
        parser.add_argument(
            "--overwrite", action="store_true", help="Replace sessions that differ there."
        )
        parser.add_argument("--check", action="store_true", help="Only compare; write nothing.")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Copy and compare; exit with 1 unless every session is the same in both storages."""
        if options["from"] == options["to"]:
            raise CommandError("--from and --to are the same.", returncode=2)
        sources, targets = storages(options["from"]), storages(options["to"])

        async def work() -> int:
            async with AsyncExitStack() as closing:
                for storage in (*sources.values(), *targets.values()):
                    closing.push_async_callback(storage.aclose)
                return await self.run_on(sources, targets, options)

        run_on_stored(work)

    async def run_on(
        self,
        sources: dict[str, SessionStorage],
        targets: dict[str, SessionStorage],
        options: Options,
    ) -> int:
        done: dict[tuple[str, str], CopyReport] = {}
        for alias, whose in WHOSE.items():
            source, target = sources[alias], targets[alias]
            if not options["check"]:
                done[alias, "copy"] = await copy_sessions(
                    source,
                    target,
                    overwrite=options["overwrite"],
                    advance=progress(f"sessions {whose} copied").advance,
                )
            done[alias, "comparison"] = await compare_sessions(
                source, target, advance=progress(f"sessions {whose} compared").advance
            )
        if options["json"]:
            self.stdout.write(as_json({alias: _as_json(alias, done) for alias in WHOSE}))
        else:
            self._print(done)
        return 1 if any(done[alias, "comparison"].problems for alias in WHOSE) else 0

    def _print(self, done: dict[tuple[str, str], CopyReport]) -> None:
        rows = [
            (WHOSE[alias], step, *(copied.outcomes[outcome] for outcome in CopyOutcome))
            for (alias, step), copied in done.items()
        ]
        self.stdout.write(table(rows, COLUMNS))
        for alias in WHOSE:
            for session_id, reason in _problems(alias, done).items():
                self.stderr.write(plain(f"problem: {session_id}: {reason}"))
        problems = [copied.problems for (_, step), copied in done.items() if step == "comparison"]
        if not any(problems):
            self.stdout.write("Every session is the same in both storages.")


def storages(kind: str) -> dict[str, SessionStorage]:
    """Return the storages of the settings if the sessions were kept in this kind.

    Raises:
        CommandError: the settings do not say where that is, or a package is missing.
    """
    mochi: MochiServerSettings = settings.MOCHI
    if kind != "json" and getattr(mochi, f"{kind}_url") is None:
        raise CommandError(f"Set MOCHI_{kind.upper()}_URL: it says where the sessions are.")
    of_kind = mochi.model_copy(update={"session_storage": kind})
    if (problem := storage_package_problem(of_kind)) is not None:
        raise CommandError(problem)
    return build_storages(storages_of(of_kind))


def _problems(alias: str, done: dict[tuple[str, str], CopyReport]) -> dict[str, str]:
    """Return the problems of the sessions of an alias; the copy knows more of them."""
    steps = [done[alias, step] for step in reversed(STEPS) if (alias, step) in done]
    return {name: reason for each in steps for name, reason in each.problems.items()}


def _as_json(alias: str, done: dict[tuple[str, str], CopyReport]) -> JSONObject:
    parts: dict[str, Any] = {
        step: {outcome.value: done[alias, step].outcomes[outcome] for outcome in CopyOutcome}
        for step in STEPS
        if (alias, step) in done
    }
    return cast("JSONObject", {**parts, "problems": _problems(alias, done)})
