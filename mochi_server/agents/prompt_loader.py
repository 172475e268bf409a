"""The prompts of an agent's two phases: sent with a request, never stored."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..core.files import read_plain
from ..tools.base import Tool

logger = logging.getLogger(__name__)

LARGEST_FILE = 100_000
"""Bytes of a prompt."""

TOOLS = "{tools}"
"""Stands in a prompt for the list of the agent's tools."""

_BUILT_IN = Path(__file__).parent / "prompts"
_Facts = tuple[int, int, int]


class PromptLoader:
    """The two prompts: of files in the data folder, ours where there are none.

    A file is read again when it has changed. One that cannot be used is told in the log once.
    """

    def __init__(self, planning: Path, execution: Path) -> None:
        """The paths are absolute; neither file need be there."""
        self._planning = _PromptFile(planning, "planning.md")
        self._execution = _PromptFile(execution, "execution.md")

    def planning(self, tools: Sequence[Tool] = ()) -> str:
        """What an agent is told when it is to plan; ``tools`` are those that it will have."""
        return self._planning.text().replace(TOOLS, listed(tools))

    def execution(self, tools: Sequence[Tool] = ()) -> str:
        """What it is told in each round of its work."""
        return self._execution.text().replace(TOOLS, listed(tools))


class _PromptFile:
    def __init__(self, path: Path, built_in: str) -> None:
        self._path = path
        self._built_in = built_in
        self._facts: _Facts | None = None
        self._text = ""

    def text(self) -> str:
        """As the file is now. One look at a small file: not worth a thread."""
        facts = _facts(self._path)
        if facts is None:
            self._facts = None
            return built_in(self._built_in)
        if facts != self._facts:
            self._facts = facts
            self._text = self._read() or built_in(self._built_in)
        return self._text

    def _read(self) -> str:
        """Its text; empty, and told, where it cannot be used."""
        try:
            content, _ = read_plain(self._path, LARGEST_FILE + 1)
            text = content.decode("utf-8-sig").strip()
        except OSError as error:
            return self._refuse(error.strerror or str(error))
        except UnicodeDecodeError:
            return self._refuse("it is not UTF-8 text")
        if len(content) > LARGEST_FILE:
            return self._refuse(f"it is larger than {LARGEST_FILE:,} bytes")
        return text or self._refuse("it is empty")

    def _refuse(self, reason: str) -> str:
        text = "%s cannot be used, the built-in prompt is: %s"
        logger.warning(text, self._path, reason)
        return ""


def _facts(path: Path) -> _Facts | None:
    """Null where nothing is, or nothing that we may look at."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


@cache
def built_in(name: str) -> str:
    """A prompt of this package."""
    return (_BUILT_IN / name).read_text("utf-8").strip()


def listed(tools: Sequence[Tool]) -> str:
    """``- name: what it does``, one line each."""
    lines = (f"- {tool.name}: {_first_line(tool.description)}" for tool in tools)
    return "\n".join(lines) or "(They are told in the next step.)"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
