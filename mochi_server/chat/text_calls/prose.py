"""Where in Markdown a text ends: what is quoted, or shown as code, is no call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_FENCE: Final = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_TICKS: Final = re.compile(r"`+")


@dataclass(slots=True)
class TextEnd:
    """The end of a text that grows; blocks and inline code are those of CommonMark."""

    line: str = ""
    """The last line, as far as it goes."""
    fence: str = ""
    """What has begun the block of code that is open."""
    _ticks: int = 0
    """Backticks that have begun inline code in the lines before, of this paragraph."""
    _is_quoted: bool = False
    """Whether the lines before, of this paragraph, are a quotation."""

    def add(self, text: str) -> None:
        *ended, line = (self.line + text).split("\n")
        for each in ended:
            self._end(each)
        self.line = "" if line.isspace() else line

    @property
    def is_quoted(self) -> bool:
        """Whether this is a quotation; its last lines may lack the ``>``."""
        return self._is_quoted or self.line.lstrip().startswith(">")

    @property
    def begins_line(self) -> bool:
        """Whether a block of code or a paragraph may begin here."""
        return not (self.line or self.fence or self.is_quoted)

    @property
    def is_code(self) -> bool:
        """Whether this is a block of code, its first line, or inline code."""
        return bool(self.fence or _FENCE.match(self.line) or self._ticks_behind(self.line))

    def _end(self, line: str) -> None:
        if self.fence:
            end = line.strip()
            if end.startswith(self.fence) and not end.strip(self.fence[0]):
                self.fence = ""
        elif not line.strip():
            self._ticks, self._is_quoted = 0, False
        elif fence := _FENCE.match(line):
            self.fence, self._ticks = fence[1], 0
        else:
            self._is_quoted |= line.lstrip().startswith(">")
            self._ticks = self._ticks_behind(line)

    def _ticks_behind(self, line: str) -> int:
        ticks = self._ticks
        for run in _TICKS.findall(line):
            ticks = 0 if ticks == len(run) else ticks or len(run)
        return ticks
