"""``manage.py doctor``: what is well with this server's data and surroundings, on one page."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import groupby
from typing import Any

from django.conf import settings
from django.core.checks import ERROR, CheckMessage
from django.core.management.base import BaseCommand

from mochi_project.backends import InvalidBackend, ProviderHandler, StorageHandler
from mochi_project.checks import check_backends, check_processes
from mochi_project.management.console import as_json, plain
from mochi_server.diagnosis import Check, Finding, Report, diagnose, error, warning
from mochi_server.runtime import Runtime

LEVEL_COLUMNS = len("warning")


class Command(BaseCommand):
    """Looks at everything, changes nothing."""

    help = (
        "Checks folders, models, tools, agents, prompts, sessions, security and what else a "
        "server needs; changes nothing. The exit code is 1 where something must be corrected."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``doctor [--json]``."""
        parser.add_argument("--json", action="store_true", help="Print JSON.")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Print what was found; exit with 1 if there is an error."""
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
    """What modules print does not stand in our JSON; what would be logged, the page says."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logging.disable(before)


def _runtime() -> Runtime:
    """One of our own, with the backends of the settings; with the usual ones if those are wrong."""
    try:
        return Runtime(
            settings.MOCHI, providers=dict(ProviderHandler()), storages=dict(StorageHandler())
        )
    except (InvalidBackend, KeyError):  # told by the check of them
        return Runtime(settings.MOCHI)


async def look_at_backends(_: Runtime) -> list[Finding]:
    """The system checks of what several processes share, and of what is replaceable."""
    return [_finding_of(message) for message in (*check_backends(), *check_processes())]


async def look_at_django(_: Runtime) -> list[Finding]:
    """Django settings that open the server to others; ours never set them."""
    found = []
    if getattr(settings, "CORS_ALLOW_ALL_ORIGINS", False):
        text = "CORS_ALLOW_ALL_ORIGINS is set: every web page may use this server."
        found.append(warning(text, "Name the pages in MOCHI_CORS_ORIGINS instead."))
    if settings.DEBUG:
        text = "DEBUG is set: errors show the insides of the server, and memory grows."
        found.append(warning(text, "Take it out of the Django settings."))
    return found


MORE = (
    Check(topic="security", look=look_at_django),
    Check(topic="several processes", look=look_at_backends),
)


def _finding_of(message: CheckMessage) -> Finding:
    level = error if message.level >= ERROR else warning
    return level(f"{message.msg} ({message.id})", message.hint or "See docs/reference/checks.md.")


def page(report: Report) -> Iterator[str]:
    """The lines: a heading for each topic, below it what was found, last how much of it."""
    for topic, group in groupby(report.findings, key=lambda finding: finding.topic):
        yield topic
        yield from _lines(list(group))
        yield ""
    counts = [(report.count("error"), "error"), (report.count("warning"), "warning")]
    counts.append((report.count("note"), "note"))
    told = [f"{count} {noun}" + ("" if count == 1 else "s") for count, noun in counts if count]
    yield f"{', '.join(told)}." if told else "Nothing to complain about."


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    """A suggestion that is the same for several in a row stands below the last of them."""
    following: list[Finding | None] = [*findings[1:], None]
    for finding, after in zip(findings, following, strict=True):
        yield f"  {finding.level.ljust(LEVEL_COLUMNS)}  {plain(finding.what)}"
        told = after is not None and after.suggestion == finding.suggestion
        if finding.suggestion is not None and not told:
            yield f"  {' ' * LEVEL_COLUMNS}  -> {plain(finding.suggestion)}"
