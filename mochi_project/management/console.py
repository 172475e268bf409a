"""What commands print: tables, JSON, questions, and the progress of long work."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TextIO

from django.core.management.base import CommandError

from mochi_server.core.aio import in_daemon_thread
from mochi_server.core.progress import Progress

_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile("[\x7f-\x9f]")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def table(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> str:
    """Lay out columns as wide as their longest cell, below their names; no newline at the end.

    None is shown as ``-``, true and false as ``yes`` and ``no``. Line breaks and other control
    characters in a cell become blanks: what a model wrote must not move the cursor.
    """
    cells = [[*columns], *([shown(value) for value in row] for row in rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(
            cell + " " * (widest - width(cell)) for cell, widest in zip(row, widths, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(str(value))


def plain(text: str) -> str:
    """Return the text on one line and without control characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        " " if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else each
        for each in text
    )


def plain_lines(text: str) -> str:
    """Return the text without characters that would move the cursor; its lines stay lines."""
    return "\n".join(plain(line.expandtabs(4)).rstrip() for line in text.split("\n"))


def width(text: str) -> int:
    """Return how many columns the text takes on a terminal."""
    if text.isascii():
        return len(text)
    bare = [each for each in text if not unicodedata.combining(each)]
    return len(bare) + sum(unicodedata.east_asian_width(each) in {"W", "F"} for each in bare)


def cut(text: str, columns: int) -> str:
    """Return the text on one line, with ``...`` where it is wider than so many columns."""
    text = plain(text).strip()
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 3:
        text = text[:-1]
    return f"{text.rstrip()}..."


def as_json(value: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """Return JSON for people and programs: indented, with the letters of every language.

    What is no text, as in names of files, becomes U+FFFD. Controls that JSON allows are escaped.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = _SURROGATES.sub("\ufffd", text)
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


async def confirmed(question: str) -> bool:
    """Ask on stderr, so that stdout stays clean; return whether the answer is yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # Without Python's buffer, whose lock the interpreter would want at its end.
    answer = await in_daemon_thread(os.read, sys.stdin.fileno(), 1024)
    return answer.strip().lower() in {b"y", b"yes"}


def progress(unit: str, stream: TextIO | None = None, patience: float = 0.5) -> Progress:
    """Return a bar on a terminal, plain lines elsewhere; on stderr, as stdout stays clean.

    ``patience`` are the seconds before anything is shown.
    """
    return Progress(stream, lambda total: f"{total:,} {unit}", patience)


def moment_before(age: timedelta | None) -> datetime | None:
    """Return the moment so long ago, in UTC; None without an age."""
    try:
        return None if age is None else datetime.now(timezone.utc) - age
    except OverflowError as error:
        raise CommandError("--older-than is longer ago than any calendar begins.") from error


def duration(text: str) -> timedelta:
    """Read a length of time such as ``30d``, ``12h``, ``90m`` or ``2w``; ``type=`` of an option."""
    match = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time such as 30d, 12h, 2w")
    return timedelta(**{UNITS[match[2]]: int(match[1])})
