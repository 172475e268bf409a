"""``manage.py sessions``: list, show, search, export and import sessions."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from mochi_project.management.base import with_sessions, without_log_of_problems
from sessions_app.cli import ACTIONS
from sessions_app.cli.action import Console


class Command(BaseCommand):
    """Runs one of the actions."""

    help = "Lists, shows, searches, exports and imports sessions; also while a server runs."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add a sub-command for each action."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, action in ACTIONS.items():
            sub = actions.add_parser(name, help=action.help, description=action.help)
            action.add_arguments(sub)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Run the action."""
        console = Console(self.stdout, self.stderr)
        run = ACTIONS[options["action"]].run
        with without_log_of_problems():
            with_sessions(lambda sessions: run(sessions, options, console))
