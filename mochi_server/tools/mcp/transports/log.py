"""The command that starts an MCP server, and the last lines that the server has written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...process.output import printable
from ..secret_values import SecretValues

LOG_LINES = 200
LOG_LINE = 2_000
"""Characters of a line that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioCommand:
    """How a server's process is started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment."""
    cwd: Path | None = None


@dataclass(slots=True)
class ServerLog:
    """The last lines that a server has written to stderr, and notes of ours between them."""

    secrets: SecretValues = field(default_factory=SecretValues)
    """What no line has."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    last: str = ""
    """The last line since the server was started."""
    _rest: bytes = b""
    _is_cut: bool = False

    def note(self, text: str) -> None:
        """Add a line of ours, in brackets; the same one is not added twice in a row."""
        line = f"[{printable(self.secrets.redacted(text, LOG_LINE))[:LOG_LINE]}]"
        if not self.lines or self.lines[-1] != line:
            self.lines.append(line)
        self.last = line

    def begin(self) -> None:
        """Note that the server is started."""
        self.note("started")
        self.last = ""

    def note_flood(self) -> None:
        self.note("messages were dropped: too many that nobody asked for")

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._add(lines[0])
        for line in lines[1:][-LOG_LINES:]:
            self._add(line)
        if len(self._rest) > 2 * LOG_LINE:  # so a secret at the end of what is kept is whole
            self._add(self._rest)
            self._rest, self._is_cut = b"", True

    def flush(self) -> None:
        """Add the line that has no end yet."""
        self._add(self._rest)
        self._rest = b""

    def _add(self, line: bytes) -> None:
        is_rest, self._is_cut = self._is_cut, False
        if line.strip() and not is_rest:
            text = line[: 4 * LOG_LINE].decode("utf-8", "replace").rstrip()
            self.last = printable(self.secrets.redacted(text, LOG_LINE)[:LOG_LINE])
            self.lines.append(self.last)
