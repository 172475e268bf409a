"""``manage.py doctor``: what is well with this server's data and surroundings, on one page."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from itertools import groupby
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand

from mochi_project.checks import check_backends, check_processes
from mochi_project.databases import place_of_database
from mochi_project.management.console import as_json, plain
from mochi_project.runtime import InvalidBackend, ProviderHandler, StorageHandler
from mochi_server.backends import DATABASE
from mochi_server.core.aio import in_daemon_thread
from mochi_server.core.progress import counted
from mochi_server.doctor.findings import Check, Finding, error, note, ok, warning
from mochi_server.doctor.run import DoctorReport, diagnose
from mochi_server.runtime import Runtime

LEVEL_COLUMNS = len("warning")


class Command(BaseCommand):
    """Checks everything, changes nothing."""

    help = (
        "Checks folders, models, tools, agents, prompts, sessions, security and what else a "
        "server needs; changes nothing. The exit code is 1 where something must be corrected."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print JSON.")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        with _quiet():
            report = asyncio.run(diagnose(_runtime(), MORE))
        if options["json"]:
            self.stdout.write(as_json(report.as_json()))
        else:
            self.stdout.write("\n".join(page(report)))
        if report.count("error"):
            sys.exit(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what modules print out of our JSON; what would be logged, the page says."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logging.disable(before)


def _runtime() -> Runtime:
    """Build a runtime with the backends of the settings; with the usual ones if those are wrong."""
    storages = {alias: dict(each) for alias, each in settings.MOCHI_SESSION_STORAGES.items()}
    for each in storages.values():
        if each.get("BACKEND") == DATABASE:  # which makes missing tables, and this changes nothing
            each["OPTIONS"] = {**each.get("OPTIONS", {}), "migrate": False}
    try:
        return Runtime(
            settings.MOCHI,
            providers=dict(ProviderHandler()),
            storages=dict(StorageHandler(storages)),
        )
    except (InvalidBackend, KeyError):  # the check of the backends says it
        return Runtime(settings.MOCHI)


async def check_shared_backends(_: Runtime) -> list[Finding]:
    return [_finding_of(message) for message in (*check_backends(), *check_processes())]


async def check_django(_: Runtime) -> list[Finding]:
    """Find Django settings that open the server to others; ours never set them."""
    findings = []
    if getattr(settings, "CORS_ALLOW_ALL_ORIGINS", False):
        text = "CORS_ALLOW_ALL_ORIGINS is set: every web page may use this server."
        findings.append(warning(text, "Name the pages in MOCHI_CORS_ORIGINS instead."))
    if settings.DEBUG:
        text = "DEBUG is set: errors show the insides of the server, and memory grows."
        findings.append(warning(text, "Take it out of the Django settings."))
    return findings


async def check_database(_: Runtime) -> list[Finding]:
    if not settings.DATABASES:  # or a package is missing, as the check of the backends says
        return []
    return [await in_daemon_thread(_database_finding)]


def _database_finding() -> Finding:
    from django.db import Error, connection  # noqa: PLC0415 - most have no database

    from sessions_app.backends.connections import first_line  # noqa: PLC0415
    from sessions_app.backends.migrating import unapplied_migrations  # noqa: PLC0415

    place = place_of_database(connection.settings_dict)
    try:
        began = time.monotonic()
        with closing(connection):
            missing = unapplied_migrations(connection)
            milliseconds = (time.monotonic() - began) * 1000
    except (Error, ImproperlyConfigured) as failed:
        return error(
            f"The database {place} cannot be used: {first_line(failed)}",
            "Start it or correct MOCHI_DATABASE_URL. A server starts without it, and has no "
            "sessions until it is there.",
        )
    if missing:
        return note(
            f"The database {place} lacks {', '.join(missing)}.",
            "Nothing: a server makes its tables when it starts; manage.py migrate does, too.",
        )
    return ok(f"The database {place} answers in {milliseconds:.0f} ms; its tables are complete.")


MORE = (
    Check(topic="sessions", run=check_database),
    Check(topic="security", run=check_django),
    Check(topic="several processes", run=check_shared_backends),
)


def _finding_of(message: CheckMessage) -> Finding:
    level = error if message.level >= ERROR else warning
    return level(f"{message.msg} ({message.id})", message.hint or "See docs/reference/checks.md.")


def page(report: DoctorReport) -> Iterator[str]:
    """Yield the lines: below the heading of each topic its findings, last how many there are."""
    for topic, group in groupby(report.findings, key=lambda finding: finding.topic):
        yield topic
        yield from _lines(list(group))
        yield ""
    counts = [(report.count("error"), "error"), (report.count("warning"), "warning")]
    counts.append((report.count("note"), "note"))
    parts = [counted(count, noun) for count, noun in counts if count]
    yield f"{', '.join(parts)}." if parts else "Nothing to complain about."


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings; a suggestion that several in a row share stands below the last one."""
    following: list[Finding | None] = [*findings[1:], None]
    for finding, after in zip(findings, following, strict=True):
        yield f"  {finding.level.ljust(LEVEL_COLUMNS)}  {plain(finding.what)}"
        comes_again = after is not None and after.suggestion == finding.suggestion
        if finding.suggestion is not None and not comes_again:
            yield f"  {' ' * LEVEL_COLUMNS}  -> {plain(finding.suggestion)}"
