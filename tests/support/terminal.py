"""A program in a pseudo-terminal, whose screen a test reads as a person would."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pyte

from .server import environment

SECONDS = 100
"""Longest wait for a text."""

LINES = 5000
"""Lines above the screen that are kept."""


class Terminal:
    """A program, what it has written, and the screen that shows it.

    Attributes:
        raw: All that the program wrote, with its control sequences.
    """

    def __init__(self, child: pexpect.spawn, columns: int, lines: int) -> None:
        self._child = child
        self.raw = ""
        self._screen = pyte.HistoryScreen(columns, lines, history=LINES)
        self._screen.write_process_input = child.send  # it is asked where the cursor is
        self._stream = pyte.Stream(self._screen)

    def type(self, text: str) -> None:
        self._child.send(text)

    def enter(self, text: str) -> None:
        """Type a line."""
        self._child.send(f"{text}\r")

    def say(self, text: str) -> None:
        """Type a line where the next message is awaited: before, the terminal itself echoes it.

        It is entered once the prompt shows it, so that the next line cannot take this one's prompt
        for its own.
        """
        self.prompt()
        self.type(text)
        self.until(lambda shown: not shown.endswith("\n>"), f"what was typed: {text}")
        self.enter("")

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    def ctrl(self, letter: str) -> None:
        self._child.sendcontrol(letter)

    @property
    def text(self) -> str:
        """All lines, also those that have left the screen."""
        above = [self._line(line) for line in self._screen.history.top]
        return "\n".join([*above, *(line.rstrip() for line in self._screen.display)]).rstrip()

    def _line(self, line: dict[int, pyte.screens.Char]) -> str:
        return "".join(line[at].data for at in range(self._screen.columns)).rstrip()

    def prompt(self) -> None:
        """Wait until the next message can be written."""
        self.until(lambda shown: shown.endswith("\n>"), "the prompt")

    def see(self, text: str, times: int = 1) -> str:
        """Wait until the text is there so many times; return all text."""
        return self.until(lambda shown: shown.count(text) >= times, text)

    def gone(self, text: str) -> str:
        """Wait until the text is not there any more."""
        return self.until(lambda shown: text not in shown, f"no {text}")

    def until(self, holds: Callable[[str], bool], what: str) -> str:
        end = time.monotonic() + SECONDS
        while not holds(self.text):
            assert time.monotonic() < end, f"never came: {what!r}\n{self.text}"
            try:
                self._read()
            except pexpect.EOF:
                assert holds(self.text), f"ended without {what!r}\n{self.text}"
        return self.text

    def _read(self) -> None:
        try:
            chunk = self._child.read_nonblocking(65536, timeout=1)
        except pexpect.TIMEOUT:
            return
        self.raw += chunk
        self._stream.feed(chunk)

    def ended(self) -> int:
        """Wait until the program has ended; return its exit code."""
        end = time.monotonic() + SECONDS
        while True:
            assert time.monotonic() < end, f"still runs\n{self.text}"
            try:
                self._read()
            except pexpect.EOF:
                break
        self._child.wait()
        assert self._child.exitstatus is not None, f"signal {self._child.signalstatus}"
        return self._child.exitstatus


@contextmanager
def running(
    *arguments: str,
    cwd: Path,
    columns: int = 80,
    lines: int = 24,
    term: str = "xterm-256color",
    **settings: object,
) -> Iterator[Terminal]:
    """``mochi-server`` with these arguments in a terminal, until the block ends."""
    env = environment(**settings) | {"TERM": term, "LANG": "C.UTF-8"}
    for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR"):
        env.pop(name, None)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "mochi_server", *arguments],
        cwd=os.fspath(cwd),
        env=env,
        dimensions=(lines, columns),
        encoding="utf-8",
        codec_errors="replace",
        timeout=SECONDS,
    )
    try:
        yield Terminal(child, columns, lines)
    finally:
        child.close(force=True)


def api(url: str, method: str, path: str, body: Any = None) -> Any:
    """The JSON of one request below ``/api/v1``; None for an empty body."""
    request = urllib.request.Request(
        f"{url}/api/v1{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        content = response.read()
    return json.loads(content) if content else None
