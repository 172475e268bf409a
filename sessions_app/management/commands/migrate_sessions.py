"""``manage.py migrate_sessions``: migrate files of old versions to the present format."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mochi_project.management.base import with_sessions
from mochi_project.management.console import as_json, plain, progress, table
from mochi_server.constants import FORMAT_VERSION
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.migration import FileMigration, MigrationOutcome, migrate_files
from mochi_server.sessions.storage import JSONFileStorage
from sessions_app.management.shared import Options, add_json

COLUMNS = ("SESSION", "VERSION", "OUTCOME", "BACKUP")
WORDS = {
    MigrationOutcome.OLD: "would be migrated",
    MigrationOutcome.MIGRATED: "migrated",
    MigrationOutcome.BUSY: "skipped: a turn is running",
    MigrationOutcome.FAILED: "failed",
}


class Command(BaseCommand):
    """Shows the old files, or migrates them."""

    help = (
        f"Brings session files of old versions to {FORMAT_VERSION}. Without --write it only shows "
        "which; with it, each old file stays beside the new one."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--write", action="store_true", help="Do it.")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Check every file; exit with 1 if one could not be read or written, or is busy."""
        with_sessions(partial(self.run_on, options=options))

    async def run_on(self, sessions: SessionManager, options: Options) -> int:
        storage = sessions.storage
        if not isinstance(storage, JSONFileStorage):
            raise CommandError(f"Only files are migrated, and these are in {storage!r}.")
        bar = progress("files")
        migrations = await migrate_files(storage, write=options["write"], advance=bar.advance)
        if options["json"]:
            self.stdout.write(as_json([asdict(each) for each in migrations]))
        else:
            self._print(migrations, write=options["write"])
        failures = {MigrationOutcome.BUSY, MigrationOutcome.FAILED}
        return 1 if any(each.outcome in failures for each in migrations) else 0

    def _print(self, migrations: list[FileMigration], *, write: bool) -> None:
        shown = [each for each in migrations if each.outcome is not MigrationOutcome.FAILED]
        if shown:
            rows = [(i.session_id, i.version, WORDS[i.outcome], i.backup) for i in shown]
            self.stdout.write(table(rows, COLUMNS))
        else:
            self.stdout.write("No session file is of an old version.")
        for each in migrations:
            if each.outcome is MigrationOutcome.FAILED:
                self.stderr.write(plain(f"problem: {each.session_id}: {each.reason}"))
        if shown and not write:
            self.stdout.write("Nothing was changed. Do it with --write.")
