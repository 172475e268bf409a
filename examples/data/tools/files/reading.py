"""Tools that look and change nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ._place import inside, open_plain, shown

MOST_FILES = 1000
"""Files that are listed."""

MOST_MATCHES = 100

LONGEST_LINE = 300
"""Characters of a line that are shown."""

LARGEST = 1_000_000
"""Bytes of a file that is searched."""


def list_files(folder: str = "") -> str:
    """List the files in the folder with their sizes, one on each line, sub-folders included.

    Args:
        folder: A sub-folder to look into; empty for all.
    """
    found: list[str] = []
    for place, size in _files(inside(folder)):
        if len(found) == MOST_FILES:
            found.append(f"... and more than these {MOST_FILES}; name a sub-folder.")
            break
        found.append(f"{shown(place)} ({size} bytes)")
    return "\n".join(found) or "There are no files."


def read_file(path: str, start: int = 0, length: int = 20_000) -> str:
    """Read a text file, or a part of it.

    Args:
        path: The file, such as "notes/today.txt".
        start: The first character to read, from 0.
        length: How many characters to read at most, up to 100000.
    """
    if start < 0 or not 1 <= length <= 100_000:
        raise ValueError("'start' must be 0 or more, 'length' from 1 to 100000.")
    with os.fdopen(open_plain(inside(path)), encoding="utf-8", errors="replace") as file:
        _skip(file, start)
        text = file.read(length)
        more = bool(file.read(1))
    if more:
        return f"{text}\n[The file goes on; read further with start={start + length}.]"
    return text or ("The file is empty." if start == 0 else "The file ends before that.")


def find_in_files(words: str, folder: str = "") -> str:
    """Find the lines of all text files that have some words in them; capitals do not matter.

    Args:
        words: What to look for, literally.
        folder: A sub-folder to look into; empty for all.
    """
    wanted = words.casefold()
    if not wanted.strip():
        raise ValueError("There is nothing to look for: 'words' is empty.")
    found: list[str] = []
    for place, line in _lines(inside(folder)):
        if wanted in line.casefold():
            found.append(f"{place}: {line.strip()[:LONGEST_LINE]}")
        if len(found) == MOST_MATCHES:
            found.append(f"... and perhaps more than these {MOST_MATCHES}.")
            break
    return "\n".join(found) or f"No file has {words!r} in it."


def _skip(file: TextIO, count: int) -> None:
    while count > 0 and (text := file.read(min(count, 1_000_000))):
        count -= len(text)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """The plain files below a folder by name, with their sizes; no link is followed."""
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            place = Path(here, name)
            with contextlib.suppress(OSError):  # it may be gone by now
                status = place.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield place, status.st_size


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    """``path:number`` and the text for each line below a folder; what is no text is left out."""
    for place, size in _files(folder):
        text = _text(place) if size <= LARGEST else ""
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{shown(place)}:{number}", line


def _text(place: Path) -> str:
    """The text of a file; empty for one that holds no text, or cannot be read."""
    try:
        with os.fdopen(open_plain(place), "rb") as file:
            content = file.read(LARGEST)
    except ValueError:
        return ""
    return "" if b"\0" in content else content.decode("utf-8", "replace")
