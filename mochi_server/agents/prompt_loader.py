"""The prompts of an agent's two phases: sent with a request, never stored."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..core.files import read_plain, text_of
from ..core.parsed_file import ParsedFile
from ..tools.base import Tool

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 100_000

TOOLS = "{tools}"
"""Placeholder in a prompt for the list of the agent's tools."""

_BUILT_IN = Path(__file__).parent / "prompts"


class PromptLoader:
    """The two prompts, from files in the data folder, or the built-in ones.

    A file is read again when it has changed. One that cannot be used is logged once.
    """

    def __init__(self, planning: Path, execution: Path) -> None:
        self._planning = _PromptFile(planning, "planning.md")
        self._execution = _PromptFile(execution, "execution.md")

    def planning(self, tools: Sequence[Tool] = ()) -> str:
        return self._planning.text().replace(TOOLS, listed(tools))

    def execution(self, tools: Sequence[Tool] = ()) -> str:
        return self._execution.text().replace(TOOLS, listed(tools))


class _PromptFile:
    def __init__(self, path: Path, built_in: str) -> None:
        self._file = ParsedFile(path, _read)
        self._built_in = built_in
        self._problem = ""

    def text(self) -> str:
        """Return the text of the file as it is now; reading a small file is not worth a thread."""
        text, problem = None, ""
        try:
            text = self._file.load()
        except OSError as error:
            problem = error.strerror or str(error)
        except ValueError as error:
            problem = str(error)
        if problem and problem != self._problem:
            shown = "%s cannot be used, the built-in prompt is: %s"
            logger.warning(shown, self._file.path, problem)
        self._problem = problem
        return text or built_in(self._built_in)


def _read(path: Path) -> str:
    content, _ = read_plain(path, MAX_FILE_BYTES + 1)
    text = text_of(content).strip()
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES:,} bytes")
    if not text:
        raise ValueError("it is empty")
    return text


@cache
def built_in(name: str) -> str:
    return (_BUILT_IN / name).read_text("utf-8").strip()


def listed(tools: Sequence[Tool]) -> str:
    firsts = [(tool.name, tool.description.strip().partition("\n")[0]) for tool in tools]
    lines = (f"- {name}: {line}" for name, line in firsts)
    return "\n".join(lines) or "(They are told in the next step.)"
