"""Where the files are, and that no path leads out of there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).absolute().parent.parent.parent / "files"
"""The one folder that these tools see. Change this line to give them another one."""


def inside(path: str) -> Path:
    """The absolute place of a path that is given relative to the folder.

    Raises:
        ValueError: it would lead out of the folder, or through a link; or it cannot be a path.
    """
    relative = PurePosixPath(path.strip())
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"{path!r} is not a path within the folder, such as notes/today.txt.")
    root = FOLDER.resolve()
    place = root / relative
    try:
        # A link could lead anywhere, and be changed after this look.
        steps = [place, *place.parents][: len(relative.parts)]
        straight = place.resolve() == place and not any(step.is_symlink() for step in steps)
    except (OSError, RuntimeError, ValueError):
        straight = False
    if not straight:
        raise ValueError(f"{path!r} leads through a link, or cannot be a path.")
    return place


def shown(place: Path) -> str:
    """The path of a place as the tools are given it."""
    path = place.relative_to(FOLDER.resolve()).as_posix()
    return path.encode("utf-8", "replace").decode("utf-8")


def open_plain(place: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a plain file: no folder, no link, no pipe that would wait for ever.

    Raises:
        ValueError: there is no such file, or it cannot be opened.
    """
    try:
        handle = os.open(place, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ValueError(refusal(place, error)) from None
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise ValueError(f"{shown(place)!r} is not a file.")


def refusal(place: Path, error: OSError) -> str:
    """In words for a model, without the place of the folder on this machine."""
    if error.errno == errno.ENOENT:
        return f"There is no file {shown(place)!r}; list_files shows what there is."
    if error.errno in {errno.EISDIR, errno.ELOOP, errno.ENXIO}:
        return f"{shown(place)!r} is not a file."
    return f"{shown(place)!r}: {error.strerror}."
