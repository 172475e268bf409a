"""``manage.py summarize_sessions``: write the summaries that are missing."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand

from mochi_project.management.base import run_on_stored
from mochi_project.management.console import as_json, duration, moment_before, progress, table
from mochi_project.runtime import forget_runtime, get_runtime
from mochi_server.runtime import Runtime
from mochi_server.services.summaries.backlog import (
    SummaryCandidate,
    SummaryFilter,
    SummaryResult,
    find_candidates,
    summarise_all,
)
from mochi_server.services.summarization import SummaryOutcome
from sessions_app.management.listing import Options, add_json

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
        """Add ``[--all | --id ID | --older-than 1d] [--dry-run] [--json]``."""
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
        run_on_stored(partial(self.run, filter_of(options), options))

    async def run(self, selection: SummaryFilter, options: Options) -> int:
        """Find and summarize sessions; return the exit code."""
        runtime = get_runtime()
        try:
            return await self.run_on(runtime, selection, options)
        finally:
            await runtime.aclose()
            forget_runtime()

    async def run_on(self, runtime: Runtime, selection: SummaryFilter, options: Options) -> int:
        """Find and summarize sessions with the services of the server."""
        looking = progress("sessions looked at")
        candidates = await find_candidates(
            runtime.sessions, runtime.summaries, selection, looking.advance
        )
        done: list[SummaryResult] = []
        if not options["dry_run"]:
            writing = progress("sessions summarised")
            done = await summarise_all(
                runtime.summaries, candidates, anew=selection.anew, advance=writing.advance
            )
        if options["json"]:
            ends = {each.session_id: each for each in done}
            lines = [as_object(each, ends.get(each.session_id)) for each in candidates]
            self.stdout.write(as_json(lines))
        else:
            self._print(candidates, done, dry_run=options["dry_run"])
        return 1 if any(each.reason for each in done or candidates) else 0

    def _print(
        self, candidates: list[SummaryCandidate], done: list[SummaryResult], *, dry_run: bool
    ) -> None:
        if not candidates:
            self.stdout.write("No session needs a summary.")
            return
        ends = {each.session_id: each for each in done}
        rows = [
            (each.session_id, each.model, word_of(each, ends.get(each.session_id)))
            for each in candidates
        ]
        self.stdout.write(table(rows, COLUMNS))
        for each in done or candidates:
            if each.reason is not None:
                self.stderr.write(f"problem: {each.session_id}: {each.reason}")
        if dry_run:
            self.stdout.write("Nothing was written. Leave out --dry-run to do it.")


def filter_of(options: Options) -> SummaryFilter:
    """Return which sessions the options name.

    Raises:
        CommandError: a time before all calendars.
    """
    anew = bool(options["all"] or options["id"])
    before = moment_before(options["older_than"])
    return SummaryFilter(session_ids=options["id"], before=before, anew=anew)


def word_of(candidate: SummaryCandidate, done: SummaryResult | None) -> str:
    """Return the outcome in words."""
    if candidate.reason is not None or (done is not None and done.outcome is None):
        return "failed"
    if done is not None and done.outcome is not None:
        return WORDS[done.outcome]
    return "would be summarised" if candidate.model else WORDS[SummaryOutcome.NO_MODEL]


def as_object(candidate: SummaryCandidate, done: SummaryResult | None) -> dict[str, str | None]:
    """Return one session as JSON."""
    return {
        "session_id": candidate.session_id,
        "model": candidate.model,
        "outcome": done.outcome.value if done is not None and done.outcome is not None else None,
        "reason": done.reason if done is not None else candidate.reason,
    }
