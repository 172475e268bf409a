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

from django.core.management.base import BaseCommand

from mochi_project.diagnosis import CHECKS_OF_DJANGO, runtime_to_check
from mochi_project.management.console import as_json, plain
from mochi_server.core.progress import counted
from mochi_server.doctor.findings import Finding
from mochi_server.doctor.run import DoctorReport, diagnose

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
            report = asyncio.run(diagnose(runtime_to_check(), CHECKS_OF_DJANGO))
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
