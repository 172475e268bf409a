"""``manage.py prune_sessions``: delete sessions that nobody needs any more."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mochi_project.commands import with_sessions
from mochi_project.console import as_json, duration, progress
from mochi_server.errors import JSONObject
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.pruning import Pruned, PruneRule, find_prunable, prune
from sessions_app.cli.action import Options, add_json
from sessions_app.cli.listing import lines_table


class Command(BaseCommand):
    """Shows what the rule takes, or deletes it."""

    help = (
        "Deletes the sessions for which everything named is true. Without --delete it only shows "
        "them. Pinned sessions, and those whose turn is running, are always kept."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``prune_sessions [--older-than 30d] [--empty] [--archived] [--delete] [--json]``."""
        parser.add_argument(
            "--older-than", type=duration, metavar="TIME", help="Unchanged for 30d, 12h, 2w."
        )
        parser.add_argument("--empty", action="store_true", help="Nobody said anything in it.")
        parser.add_argument("--archived", action="store_true", help="It is archived.")
        parser.add_argument(
            "--agent-chats", action="store_true", help="Of the chats of agents, not of people."
        )
        parser.add_argument("--delete", action="store_true", help="Do it.")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Show or delete; exit with 1 if one that was to go could not."""
        rule = rule_of(options)
        storage = "agent_chats" if options["agent_chats"] else "default"
        with_sessions(partial(self.run_on, rule=rule, options=options), storage)

    async def run_on(self, sessions: SessionManager, rule: PruneRule, options: Options) -> int:
        """The work; answers the exit code."""
        lines = await find_prunable(sessions, rule, progress("sessions looked at").advance)
        ids = [str(line["session_id"]) for line in lines]
        done = Pruned()
        if options["delete"]:
            done = await prune(sessions, rule, ids, progress("sessions deleted").advance)
        if options["json"]:
            kept = [{"session_id": name, "reason": why} for name, why in done.kept.items()]
            self.stdout.write(as_json({"found": lines, "deleted": done.deleted, "kept": kept}))
        else:
            self._print(lines, done, delete=options["delete"])
        return 1 if done.kept else 0

    def _print(self, lines: list[JSONObject], done: Pruned, *, delete: bool) -> None:
        if not lines:
            self.stdout.write("No session is to go.")
            return
        self.stdout.write(lines_table(lines))
        for session_id, reason in done.kept.items():
            self.stderr.write(f"kept: {session_id}: {reason}")
        if delete:
            self.stdout.write(f"{len(done.deleted)} of {len(lines)} deleted.")
        else:
            self.stdout.write(f"{len(lines)} would go. Delete them with --delete.")


def rule_of(options: Options) -> PruneRule:
    """The rule that the options name.

    Raises:
        CommandError: they name none.
    """
    age = options["older_than"]
    try:
        before = None if age is None else datetime.now(timezone.utc) - age
        return PruneRule(before, empty=options["empty"], archived=options["archived"])
    except OverflowError as error:
        raise CommandError("--older-than is longer ago than any calendar begins.") from error
    except ValueError as error:
        raise CommandError(
            "Say what is to go: --older-than 30d, --empty, --archived, or several.", returncode=2
        ) from error
