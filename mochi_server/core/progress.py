"""How long work tells a person where it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

BAR_WIDTH: Final = 30
REDRAW_SECONDS: Final = 0.1
LINE_PERCENT: Final = 10
"""Without a terminal, a line for each tenth."""


Advance = Callable[[int, int], object]
"""Is told how many are done, of how many."""


class Progress(Protocol):
    """What long work reports to."""

    @property
    def interactive(self) -> bool:
        """Whether a person watches, so that an installer may draw its own bar."""
        ...

    def say(self, text: str) -> None:
        """One line about what happens now."""

    def advance(self, done: int, total: int) -> None:
        """Steps (of a download: bytes) that are done, of how many."""


class StreamProgress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(
        self,
        stream: TextIO | None = None,
        shown: Callable[[int], str] | None = None,
        patience: float = 0.0,
    ) -> None:
        """Begin with nothing done.

        Args:
            stream: where to write; stderr if none is given.
            shown: writes the total, such as "12 sessions"; bytes as megabytes if none is given.
            patience: seconds in which nothing is shown; work that ends within stays silent.
        """
        self._stream = sys.stderr if stream is None else stream
        self._shown = shown or megabytes
        self._silent_until = time.monotonic() + patience
        self._drawn_at = 0.0
        self._percent = 0
        self._open = False

    @property
    def interactive(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def say(self, text: str) -> None:
        """Write a line, below a bar that is being drawn."""
        self._write(f"{self._end_bar()}{text}\n")

    def advance(self, done: int, total: int) -> None:
        """Draw the bar, or write a line when another tenth is there."""
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
    """A number of bytes for a person."""
    return f"{size / 1e6:.0f} MB"


def counted(number: int, noun: str) -> str:
    """``1 tool``, ``1,200 tools``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
