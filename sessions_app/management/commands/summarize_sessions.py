"""``manage.py summarize_sessions``: write the summaries that are missing."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand

from mochi_project.management.base import run_on_stored
from mochi_project.management.console import as_json, duration, moment_before, progress, table
from mochi_project.runtime import forget_runtime, get_runtime
from mochi_server.services.summarization import (
    SummaryOutcome,
    SummaryTask,
    find_tasks,
    summarize_all,
)

from ..shared import Options, add_json

COLUMNS = ("SESSION", "MODEL", "OUTCOME")
WORDS = {
    SummaryOutcome.WRITTEN: "summarised",
    SummaryOutcome.NOT_NEEDED: "not needed any more",
    SummaryOutcome.NO_MODEL: "skipped: no model can",
}


class Command(BaseCommand):
    """Shows the sessions without a present summary, or summarises them."""

    help = (
        "Summarises the sessions that have no summary, or one that is behind, one after the other. "
        "Chats of running servers go first."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--all", action="store_true", help="All, present summaries included.")
        which.add_argument(
            "--id", action="append", metavar="ID", help="Only this one; may be given again."
        )
        which.add_argument(
            "--older-than", type=duration, metavar="TIME", help="Unchanged for 30d, 12h, 2w."
        )
        parser.add_argument("--dry-run", action="store_true", help="Only show which.")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Write the summaries; exit with 1 if one failed."""
        before = moment_before(options["older_than"])
        run_on_stored(partial(self.run, options, before))

    async def run(self, options: Options, before: datetime | None) -> int:
        """Find and summarise sessions with the services of the server; return the exit code."""
        runtime = get_runtime()
        anew = bool(options["all"] or options["id"])
        try:
            tasks = await find_tasks(
                runtime.sessions,
                runtime.summaries,
                session_ids=options["id"],
                before=before,
                anew=anew,
                advance=progress("sessions looked at").advance,
            )
            if not options["dry_run"]:
                bar = progress("sessions summarised")
                await summarize_all(runtime.summaries, tasks, anew=anew, advance=bar.advance)
        finally:
            await runtime.aclose()
            forget_runtime()
        if options["json"]:
            self.stdout.write(as_json([asdict(task) for task in tasks]))
        else:
            self._print(tasks, dry_run=options["dry_run"])
        return 1 if any(task.reason for task in tasks) else 0

    def _print(self, tasks: list[SummaryTask], *, dry_run: bool) -> None:
        if not tasks:
            self.stdout.write("No session needs a summary.")
            return
        rows = [(task.session_id, task.model, _outcome_of(task)) for task in tasks]
        self.stdout.write(table(rows, COLUMNS))
        for task in tasks:
            if task.reason is not None:
                self.stderr.write(f"problem: {task.session_id}: {task.reason}")
        if dry_run:
            self.stdout.write("Nothing was written. Leave out --dry-run to do it.")


def _outcome_of(task: SummaryTask) -> str:
    if task.reason is not None:
        return "failed"
    if task.outcome is not None:
        return WORDS[task.outcome]
    return "would be summarised" if task.model else WORDS[SummaryOutcome.NO_MODEL]
