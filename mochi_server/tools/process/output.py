"""What tools print, in the server's log: whole lines, and no more than a log can bear."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable

from ...core.logs import outside_request
from ...core.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

MAX_LINE = 2_000
LINES_AT_ONCE = 200
LINES_PER_SECOND = 20.0
READ_BYTES = 65_536
DRAINED_PIECES = 2
"""Most reads of one drain: a pipe holds one piece, and endless output must not hold it up."""

PAUSE_SECONDS = 0.005

_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All but the tabulator: what reads the log obeys such characters, some as ends of lines."""


def printable(text: str) -> str:
    """Return the text with escapes instead of control characters."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class LineAllowance(TokenBucket):
    """Allows ``LINES_AT_ONCE``, then ``LINES_PER_SECOND``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(LINES_AT_ONCE, LINES_PER_SECOND, clock)
        self.refused = 0
        """Lines that were refused since this was last reported, and reset."""

    def take(self) -> bool:
        is_allowed = super().take()
        self.refused += not is_allowed
        return is_allowed


class OutputLog:
    """Reads a pipe without blocking and logs its lines at INFO, with a name in front."""

    def __init__(self, name: Callable[[], str], allowance: LineAllowance) -> None:
        self._name = name
        self._allowance = allowance
        self._rest = b""
        self._cut = False
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._source, self.sink = os.pipe()
        """``sink`` is the end for the child; the caller closes its own copy."""
        os.set_blocking(self._source, False)
        outside_request(self._loop.add_reader, self._source, self._on_readable)

    def _on_readable(self) -> None:
        """Take one piece, then pause: endless output must not hold up the server."""
        self._loop.remove_reader(self._source)
        if self._take():
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._source, self._on_readable)

    def _take(self) -> bool:
        try:
            piece = os.read(self._source, READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for number, line in enumerate(lines, 1):
            if not self._line(line):  # the others would be refused as well
                self._allowance.refused += len(lines) - number
                break
        if len(self._rest) > MAX_LINE:
            self._line(self._rest)
            self._rest, self._cut = b"", True
        return bool(piece)

    def _line(self, line: bytes) -> bool:
        """Log it, cut; the rest of a line that was cut before is dropped. False when refused."""
        if self._cut or not line.strip():
            self._cut = False
            return True
        if not self._allowance.take():
            return False
        self._say_what_is_missing()
        text = printable(line[:MAX_LINE].decode("utf-8", "replace").rstrip())
        logger.info("%s: %s%s", self._name(), text, "…" if len(line) > MAX_LINE else "")
        return True

    def _say_what_is_missing(self) -> None:
        if self._allowance.refused:
            logger.info("%s: … %d lines were left out", self._name(), self._allowance.refused)
            self._allowance.refused = 0

    def drain(self) -> None:
        """Log what is in the pipe now, and the line that has no end yet."""
        if self._source < 0:
            return
        for _ in range(DRAINED_PIECES):
            self._take()
        self._line(self._rest)
        self._rest = b""

    def close(self) -> None:
        """Log what is still in the pipe, as far as one piece goes, and close it."""
        if self._source < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._source)
        self._take()
        self._line(self._rest)
        self._say_what_is_missing()
        os.close(self._source)
        self._source = -1
