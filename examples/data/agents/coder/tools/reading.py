"""Tools that look and change nothing."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from ._place import inside, shown, text_of

SKIPPED = {"__pycache__", "node_modules", "venv"}
MOST_FILES = 500
MOST_LINES = 400
"""Lines of a file in one call."""
MOST_MATCHES = 100
LONGEST_LINE = 300
"""Characters of a matching line that are shown."""


def list_files(folder: str = "") -> str:
    """List the files in the workspace, one path on each line, sub-folders included.

    Args:
        folder: A sub-folder to look into; empty for all.
    """
    found: list[str] = []
    for place in _files(inside(folder)):
        if len(found) == MOST_FILES:
            found.append(f"... and more than these {MOST_FILES}; name a sub-folder.")
            break
        found.append(shown(place))
    return "\n".join(found) or "There are no files."


def read_file(path: str, first_line: int = 1) -> str:
    """Read a text file. Each line is shown behind its number and a bar, which are not in the file.

    Args:
        path: The file, such as "src/main.py".
        first_line: The line to begin with, from 1; for the rest of a long file.
    """
    if first_line < 1:
        raise ValueError("'first_line' must be 1 or more.")
    lines = text_of(inside(path)).splitlines()
    part = lines[first_line - 1 : first_line - 1 + MOST_LINES]
    if not part:
        return "The file is empty." if not lines else f"The file has only {len(lines)} lines."
    found = [f"{number:>4}| {line}" for number, line in enumerate(part, start=first_line)]
    after = first_line + len(part)
    if after <= len(lines):
        found.append(f"[{len(lines)} lines in all; read further with first_line={after}.]")
    return "\n".join(found)


def search_files(text: str, folder: str = "") -> str:
    """Find the lines of all files that have a text in them, taken literally.

    Args:
        text: What to look for, such as "def main"; capitals matter.
        folder: A sub-folder to look into; empty for all.
    """
    if not text.strip():
        raise ValueError("There is nothing to look for: 'text' is empty.")
    found: list[str] = []
    for place, number, line in _lines(inside(folder)):
        if text in line:
            found.append(f"{shown(place)}:{number}: {line.strip()[:LONGEST_LINE]}")
        if len(found) == MOST_MATCHES:
            found.append(f"... and perhaps more than these {MOST_MATCHES}.")
            break
    return "\n".join(found) or f"No file has {text!r} in it."


def check_python(path: str) -> str:
    """Check the syntax of a Python file without running it.

    Args:
        path: The file, such as "src/main.py".
    """
    source = text_of(inside(path))
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"Line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"It cannot be read as Python: {error}"
    return "The syntax is correct."


def _files(folder: Path) -> Iterator[Path]:
    """The plain files below a folder by name; nothing hidden, and no link is followed."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _skipped(name))
        for name in sorted(files):
            place = Path(here, name)
            if not _skipped(name) and place.is_file() and not place.is_symlink():
                yield place


def _skipped(name: str) -> bool:
    return name.startswith(".") or name in SKIPPED


def _lines(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Place, number and text of each line below a folder; what is no text is left out."""
    for place in _files(folder):
        try:
            lines = text_of(place).splitlines()
        except ValueError:
            continue
        for number, line in enumerate(lines, start=1):
            yield place, number, line
