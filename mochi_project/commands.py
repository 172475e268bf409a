"""What the commands of several apps do alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from django.core.management.base import CommandError

from mochi_server.tools.fingerprint import write_stamp

from . import console


def tell_servers(stamp: Path) -> None:
    """Make every running server that looks at this file load again, at the next use.

    Raises:
        CommandError: it cannot be written.
    """
    try:
        write_stamp(stamp)
    except OSError as error:
        raise CommandError(f"{stamp} cannot be written: {error.strerror}.") from error


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, its first row being the names of the columns."""
    yield from console.table(rows[1:], rows[0]).splitlines()
