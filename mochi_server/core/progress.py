"""The progress of long work, shown to a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

BAR_WIDTH: Final = 30
REDRAW_SECONDS: Final = 0.1
LINE_PERCENT: Final = 10
"""Percent between two lines where there is no terminal."""

Advance = Callable[[int, int], object]
"""Takes the number of steps that are done, and of all steps."""


class ProgressReporter(Protocol):
    """Takes the progress of long work."""

    @property
    def interactive(self) -> bool:
        """Whether a person watches, so that an installer may draw its own bar."""

    def say(self, text: str) -> None:
        """Take a line about what happens."""

    def advance(self, done: int, total: int) -> None:
        """Take how many steps (of a download: bytes) are done, of how many."""


class Progress:
    """How far long work is: a bar on a terminal, lines elsewhere.

    Args:
        stream: Where to write; stderr by default.
        shown: Formats the total, such as "12 sessions"; by default bytes as megabytes.
        patience: Seconds in which nothing is shown; shorter work stays silent.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        shown: Callable[[int], str] | None = None,
        patience: float = 0.0,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = shown or megabytes
        self._silent_until = time.monotonic() + patience
        self._drawn_at = 0.0
        self._percent = 0
        self._open = False

    @property
    def interactive(self) -> bool:
        """Whether a person watches, so that an installer may draw its own bar."""
        return self._stream.isatty()

    def say(self, text: str) -> None:
        """Write a line, below the bar if one is being drawn."""
        self._write(f"{self._end_bar()}{text}\n")

    def advance(self, done: int, total: int) -> None:
        """Show how many steps (of a download: bytes) are done, of how many."""
        if self._silent_until > time.monotonic():
            return
        percent = 100 * done // total if total else 100
        if self.interactive:
            self._draw(done, total, percent)
        elif percent // LINE_PERCENT != self._percent // LINE_PERCENT:
            self._write(f"{percent} % of {self._shown(total)}\n")
        self._percent = percent

    def _draw(self, done: int, total: int, percent: int) -> None:
        if done < total and time.monotonic() - self._drawn_at < REDRAW_SECONDS:
            return
        self._drawn_at = time.monotonic()
        bar = ("#" * (BAR_WIDTH * percent // 100)).ljust(BAR_WIDTH, ".")
        self._open = True
        self._write(f"\r[{bar}] {percent:3} % of {self._shown(total)}")
        if done >= total:
            self._write(self._end_bar())

    def _end_bar(self) -> str:
        ended, self._open = "\n" if self._open else "", False
        return ended

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 tool`` or ``1,200 tools``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
