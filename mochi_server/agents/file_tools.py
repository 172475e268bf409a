"""Tools with which an agent reads the files in its folder, and no others."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath

from ..core.aio import in_thread
from ..core.files import NOT_PLAIN, NotUTF8, read_plain, text_of
from ..errors import JSONObject
from ..tools.base import ToolFailed
from ..tools.folder.source import FunctionTool, function_tools
from ..tools.functions.python_tool import PythonTool
from ..tools.loading import FolderDescription, LoadedFolder
from ..tools.schema import ToolSchemaService

LIST = "list_skill_files"
READ = "read_skill_file"

MAX_FILES = 500
MAX_ENTRIES = 5_000
MAX_DEPTH = 6
MAX_CHARACTERS = 20_000
MAX_FILE_BYTES = 2_000_000

SCRIPTS = "scripts"
PROGRAM = re.compile(r"\.(bash|bat|cjs|js|mjs|php|pl|ps1|py|r|rb|sh|ts)")

_SECONDS = 30.0


def make_file_tools(folder: Path, *, source: str) -> list[FunctionTool]:
    return function_tools(_SkillFolder(folder, tuple(_functions().values())), source, _SECONDS)


@cache
def _functions() -> dict[str, PythonTool]:
    service, files = ToolSchemaService(), _SkillFolder(Path())
    described = (service.describe(files.list, LIST), service.describe(files.read, READ))
    return {tool.name: replace(tool, destructive=False) for tool in described}


class _SkillFolder(LoadedFolder):
    """The files of an agent; reading them runs no code of the user."""

    def __init__(self, folder: Path, tools: tuple[PythonTool, ...] = ()) -> None:
        self._folder = folder
        self.description = FolderDescription(folder=str(folder), tools=tools)

    async def call(self, name: str, arguments: JSONObject) -> str:
        work: Callable[..., str] = self.list if name == LIST else self.read
        return await in_thread(work, **_functions()[name].bind(arguments))

    async def aclose(self) -> None:
        """Do nothing: a call ends soon."""

    def list(self) -> str:
        """List the files that came with your instructions, one path and its size on each line."""
        lines: list[str] = []
        for path, size in _files(self._folder):
            if len(lines) == MAX_FILES:
                lines.append(f"... and more than these {MAX_FILES}.")
                break
            lines.append(f"{path} ({size} bytes)")
        return "\n".join(lines) or "There are no other files."

    def read(self, path: str, start: int = 0) -> str:
        """Read a text file that came with your instructions.

        Args:
            path: The file as list_skill_files names it, such as "references/guide.md".
            start: The first character to read, from 0; for the rest of a long file.
        """
        if start < 0:
            raise ToolFailed("'start' must be 0 or more.")
        text = _text(self._folder, path)
        part = text[start : start + MAX_CHARACTERS]
        if len(text) > start + MAX_CHARACTERS:
            part += f"\n[The file goes on; read further with start={start + MAX_CHARACTERS}.]"
        return part or ("The file is empty." if start == 0 else "The file ends before that.")


def _text(folder: Path, path: str) -> str:
    target = _inside(folder, path)
    try:
        content, _ = read_plain(target, MAX_FILE_BYTES + 1)
    except OSError as error:
        if error.errno in NOT_PLAIN:
            raise ToolFailed(f"there is no file {path!r}; {LIST} shows what there is.") from error
        raise ToolFailed(f"{path!r} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_FILE_BYTES:
        raise ToolFailed(f"{path!r} is larger than {MAX_FILE_BYTES:,} bytes.")
    try:
        return text_of(content)
    except NotUTF8 as error:
        raise ToolFailed(f"{path!r} cannot be read: {error}.") from error


def _inside(folder: Path, path: str) -> Path:
    """Return the absolute path of one that is relative to the folder.

    Raises ToolFailed if it leads out of the folder, to what is hidden, or through a link.
    """
    relative = PurePosixPath(path.strip())
    if relative.is_absolute() or any(part.startswith(".") for part in relative.parts):
        raise ToolFailed(f"{path!r} is not a path that {LIST} shows.")
    try:
        root = folder.resolve()
        target = root / relative
        straight = target.resolve() == target
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
        straight = False
    if not straight:
        raise ToolFailed(f"{path!r} leads through a link, or cannot be a path.")
    return target


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield path and size of each plain file, by name; skip hidden files and links."""
    left = MAX_ENTRIES
    for here, folders, files in os.walk(folder):
        left -= len(folders) + len(files)
        for path in (Path(here, name) for name in sorted(files) if not is_hidden(name)):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    shown = path.relative_to(folder).as_posix()
                    yield shown.encode("utf-8", "replace").decode(), status.st_size
        if left <= 0:
            return
        depth = len(Path(here).relative_to(folder).parts)
        inner = sorted(name for name in folders if not is_hidden(name))
        folders[:] = inner if depth < MAX_DEPTH else []


def find_scripts(folder: Path) -> tuple[str, ...]:
    """Find files that look like programs, in a folder ``scripts`` or beside ``SKILL.md``."""
    paths = [PurePosixPath(path) for path, _ in islice(_files(folder), MAX_FILES)]
    return tuple(str(path) for path in paths if _is_script(path))


def _is_script(path: PurePosixPath) -> bool:
    folders, is_program = path.parts[:-1], PROGRAM.fullmatch(path.suffix.lower()) is not None
    if path.name == "__init__.py":
        return False
    if SCRIPTS in folders:
        return is_program or not path.suffix
    return not folders and is_program


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"
