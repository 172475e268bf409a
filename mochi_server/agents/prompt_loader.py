"""The prompts of an agent's two phases: sent with a request, never stored."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..core.files import NotUTF8, read_plain, text_of
from ..tools.base import Tool
from .folder import FileVersion, file_version

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
        self._path = path
        self._built_in = built_in
        self._version: FileVersion | None = None
        self._text = ""

    def text(self) -> str:
        """Return the text of the file as it is now; reading a small file is not worth a thread."""
        version = file_version(self._path)
        if version is None:
            self._version = None
            return built_in(self._built_in)
        if version != self._version:
            self._version = version
            self._text = self._read() or built_in(self._built_in)
        return self._text

    def _read(self) -> str:
        try:
            content, _ = read_plain(self._path, MAX_FILE_BYTES + 1)
            text = text_of(content).strip()
        except OSError as error:
            return self._refuse(error.strerror or str(error))
        except NotUTF8 as error:
            return self._refuse(str(error))
        if len(content) > MAX_FILE_BYTES:
            return self._refuse(f"it is larger than {MAX_FILE_BYTES:,} bytes")
        return text or self._refuse("it is empty")

    def _refuse(self, reason: str) -> str:
        text = "%s cannot be used, the built-in prompt is: %s"
        logger.warning(text, self._path, reason)
        return ""


@cache
def built_in(name: str) -> str:
    return (_BUILT_IN / name).read_text("utf-8").strip()


def listed(tools: Sequence[Tool]) -> str:
    firsts = [(tool.name, tool.description.strip().partition("\n")[0]) for tool in tools]
    lines = (f"- {name}: {line}" for name, line in firsts)
    return "\n".join(lines) or "(They are told in the next step.)"
