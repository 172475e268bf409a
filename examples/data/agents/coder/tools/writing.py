"""Tools that change files."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from ._place import LARGEST, inside, refusal, shown, text_of


def write_file(path: str, content: str, overwrite: bool = False) -> str:
    """Write a whole text file; sub-folders are made as needed.

    Args:
        path: The file, such as "src/main.py".
        content: The whole text of the file.
        overwrite: Whether a file that is there already may be replaced.
    """
    place = _file(path)
    if place.exists() and not overwrite:
        raise ValueError(f"{shown(place)!r} is there already; set 'overwrite' to replace it.")
    _write(place, content)
    return f"Wrote {content.count(chr(10)) + 1} lines to {shown(place)}."


def replace_in_file(path: str, old: str, new: str) -> str:
    """Replace a part of a file that is in it exactly once.

    Args:
        path: The file, such as "src/main.py".
        old: The text to replace, letter by letter as it stands in the file, without line numbers.
        new: What shall stand there; empty to take it away.
    """
    place = _file(path)
    text = text_of(place)
    times = text.count(old) if old else 0
    if times != 1:
        how = "not in the file" if times == 0 else f"in the file {times} times"
        raise ValueError(f"'old' is {how}. Copy a longer part of it, which is there once.")
    _write(place, text.replace(old, new))
    line = text[: text.index(old)].count("\n") + 1
    return f"Replaced the text at line {line} of {shown(place)}."


def delete_file(path: str) -> str:
    """Delete a file for good.

    Args:
        path: The file, such as "src/old.py".
    """
    place = _file(path)
    try:
        place.unlink()
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    return f"Deleted {shown(place)}."


def _file(path: str) -> Path:
    """The place of a path that is a file, or is not there yet."""
    place = inside(path)
    if place == inside(""):
        raise ValueError("Name a file, such as src/main.py.")
    if place.exists() and not place.is_file():
        raise ValueError(f"{shown(place)!r} is not a file.")
    return place


def _write(place: Path, content: str) -> None:
    """Replace a file in one step: nobody ever sees half of it."""
    encoded = content.encode("utf-8")
    if len(encoded) > LARGEST:
        raise ValueError(f"The text is larger than {LARGEST} bytes.")
    temporary = place.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(encoded)
        if place.exists():
            temporary.chmod(place.stat().st_mode & 0o777)
        temporary.replace(place)
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
