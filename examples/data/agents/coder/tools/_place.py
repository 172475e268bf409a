"""Where the coder works, and that no path leads out of there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).absolute().parents[3] / "workspace"
"""The one folder that the coder sees. Change this line to give it another one."""

LARGEST = 1_000_000
"""Bytes of a file that is read."""


def inside(path: str) -> Path:
    """The absolute place of a path that is given relative to the folder.

    Raises:
        ValueError: it would lead out of the folder, or through a link; or it cannot be a path.
    """
    relative = PurePosixPath(path.strip())
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"{path!r} is not a path within the workspace, such as src/main.py.")
    root = FOLDER.resolve()
    place = root / relative
    try:
        # A link could lead anywhere, and be changed after this look.
        straight = place.resolve() == place
    except (OSError, RuntimeError, ValueError):
        straight = False
    if not straight:
        raise ValueError(f"{path!r} leads through a link, or cannot be a path.")
    return place


def shown(place: Path) -> str:
    """The path of a place as the tools are given it."""
    path = place.relative_to(FOLDER.resolve()).as_posix()
    return path.encode("utf-8", "replace").decode("utf-8")


def text_of(place: Path) -> str:
    """The text of a plain file: no folder, no link, no pipe that would wait for ever.

    Line ends stay as they are.

    Raises:
        ValueError: there is no such file, or it is too large, or no text.
    """
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{shown(place)!r} is not a file.")
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{shown(place)!r} is larger than {LARGEST} bytes.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{shown(place)!r} is not a text file.") from None


def refusal(place: Path, error: OSError) -> str:
    """In words for a model, without the place of the folder on this machine."""
    if error.errno == errno.ENOENT:
        return f"There is no file {shown(place)!r}; list_files shows what there is."
    if error.errno in {errno.EISDIR, errno.ELOOP, errno.ENXIO}:
        return f"{shown(place)!r} is not a file."
    return f"{shown(place)!r}: {error.strerror}."
