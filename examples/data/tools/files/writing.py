"""Tools that change files."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from ._place import inside, open_plain, refusal, shown

LARGEST = 1_000_000
"""Characters that one call writes."""


def write_file(path: str, content: str, overwrite: bool = False) -> str:
    """Write a text file; sub-folders are made as needed.

    Args:
        path: The file, such as "notes/today.txt".
        content: The whole text of the file.
        overwrite: Whether a file that is there already may be replaced.
    """
    place = _writable(path, content)
    temporary = place.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        _be_file(place)
        if place.exists() and not overwrite:
            raise ValueError(f"{shown(place)!r} is there already; set 'overwrite' to replace it.")
        place.parent.mkdir(parents=True, exist_ok=True)
        # Replaced in one step: nobody ever sees half of it.
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(place)
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return f"Wrote {len(content)} characters to {shown(place)}."


def append_to_file(path: str, content: str) -> str:
    """Add text to the end of a file; the file is made if it is not there.

    Args:
        path: The file, such as "notes/today.txt".
        content: What to add; begin or end it with a line break where one is wanted.
    """
    place = _writable(path, content)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = open_plain(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    return f"Added {len(content)} characters to {shown(place)}."


def delete_file(path: str) -> str:
    """Delete a file for good.

    Args:
        path: The file, such as "notes/today.txt".
    """
    place = inside(path)
    try:
        _be_file(place)
        place.unlink()
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    return f"Deleted {shown(place)}."


def _be_file(place: Path) -> None:
    if place.exists() and not place.is_file():
        raise ValueError(f"{shown(place)!r} is not a file.")


def _writable(path: str, content: str) -> Path:
    place = inside(path)
    if place == inside(""):
        raise ValueError("Name a file, such as notes/today.txt.")
    if len(content) > LARGEST:
        raise ValueError(f"The text is longer than {LARGEST} characters.")
    return place
