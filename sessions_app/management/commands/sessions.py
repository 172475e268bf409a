"""``manage.py sessions``: list, show, search, export and import sessions."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from mochi_project.management.base import with_sessions, without_log_of_problems

from ..listing import add_list, add_search, add_show, list_sessions, search_sessions, show_session
from ..shared import Action, Console, add_json
from ..transfer import add_export, add_import, export_sessions, import_sessions

ACTIONS = {
    "list": (add_list, list_sessions, "List the sessions, the one changed last first."),
    "search": (add_search, search_sessions, "Find sessions by what was said in them."),
    "show": (add_show, show_session, "Print one session with its messages."),
    "export": (add_export, export_sessions, "Write a session, or all, as files for others."),
    "import": (
        add_import,
        import_sessions,
        "Make sessions of files; nothing is ever overwritten.",
    ),
}


class Command(BaseCommand):
    """Runs one of the actions."""

    help = "Lists, shows, searches, exports and imports sessions; also while a server runs."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, (add_arguments, run, text) in ACTIONS.items():
            sub = actions.add_parser(name, help=text, description=text)
            add_arguments(sub)
            add_json(sub)
            sub.set_defaults(run=run)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        console = Console(self.stdout, self.stderr)
        run: Action = options["run"]
        with without_log_of_problems():
            with_sessions(lambda sessions: run(sessions, options, console))
