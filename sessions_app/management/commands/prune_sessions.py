"""``manage.py prune_sessions``: delete sessions that are no longer needed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.base import with_sessions
from mochi_project.management.console import (
    as_json,
    can_ask,
    confirmed,
    duration,
    moment_before,
    progress,
)
from mochi_server.core.progress import counted
from mochi_server.errors import JSONObject
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.pruning import Pruned, PruneRule, find_prunable, prune
from sessions_app.management.shared import Options, add_json, lines_table


class Command(BaseCommand):
    """Shows the sessions that the rule selects, or deletes them."""

    help = (
        "Deletes the sessions for which everything named is true. Without --delete it only shows "
        "them. Pinned sessions, and those whose turn is running, are always kept."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", type=duration, metavar="TIME", help="Unchanged for 30d, 12h, 2w."
        )
        parser.add_argument("--empty", action="store_true", help="Nobody said anything in it.")
        parser.add_argument("--archived", action="store_true", help="It is archived.")
        parser.add_argument(
            "--agent-chats", action="store_true", help="Of the chats of agents, not of people."
        )
        parser.add_argument("--delete", action="store_true", help="Do it, after a question.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Show or delete sessions; exit with 1 if one could not be deleted."""
        rule = rule_of(options)
        if options["delete"] and not (options["yes"] or can_ask()):
            raise CommandError(
                "Nothing was deleted. Where nobody can be asked, --delete wants --yes.",
                returncode=2,
            )
        storage = "agent_chats" if options["agent_chats"] else "default"
        with_sessions(partial(self.run_on, rule=rule, options=options), storage)

    async def run_on(self, sessions: SessionManager, rule: PruneRule, options: Options) -> int:
        lines = await find_prunable(sessions, rule, progress("sessions looked at").advance)
        ids = [str(line["session_id"]) for line in lines]
        done, delete = Pruned(), bool(options["delete"])
        if not options["json"]:
            self.stdout.write(lines_table(lines) if lines else "No session is to go.")
        if lines and delete and not options["yes"]:
            delete = await confirmed(question(lines, len((await sessions.list()).entries)))
        if delete:
            done = await prune(sessions, rule, ids, progress("sessions deleted").advance)
        if options["json"]:
            kept = [{"session_id": name, "reason": why} for name, why in done.kept.items()]
            self.stdout.write(as_json({"found": lines, "deleted": done.deleted, "kept": kept}))
        elif lines:
            self._report(len(lines), done, asked_for=options["delete"], agreed=delete)
        refused = options["delete"] and not delete
        return 1 if done.kept or refused else 0

    def _report(self, count: int, done: Pruned, *, asked_for: bool, agreed: bool) -> None:
        for session_id, reason in done.kept.items():
            self.stderr.write(f"kept: {session_id}: {reason}")
        if agreed:
            self.stdout.write(f"{len(done.deleted)} of {count} deleted.")
        elif asked_for:
            self.stdout.write("Nothing was deleted.")
        else:
            self.stdout.write(f"{count} would go. Delete them with --delete.")


def question(lines: Sequence[JSONObject], total: int) -> str:
    counts = [line["message_count"] for line in lines]
    messages = sum(count for count in counts if isinstance(count, int))
    return (
        f"Delete {len(lines):,} of {counted(total, 'session')}, "
        f"with {counted(messages, 'message')}, for good?"
    )


def rule_of(options: Options) -> PruneRule:
    before = moment_before(options["older_than"])
    try:
        return PruneRule(before, empty=options["empty"], archived=options["archived"])
    except ValueError as error:
        raise CommandError(
            "Say what is to go: --older-than 30d, --empty, --archived, or several.", returncode=2
        ) from error
