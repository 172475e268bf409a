"""A file that others may change at any time: parsed again when it has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

FileVersion = tuple[int, ...]
"""What differs after each change of a file."""

_FINE_TICK_NS, _COARSE_TICK_NS = 100_000_000, 2_000_000_000


class ParsedFile(Generic[T]):
    """What a function makes of a file, kept in memory until the file changes."""

    def __init__(self, path: Path, parse: Callable[[Path], T]) -> None:
        self.path = path
        self._parse = parse
        self._kept: tuple[FileVersion, T] | None = None

    def load(self) -> T | None:
        """Return what the function makes of the file as it is now; None if there is no file.

        What it raises is not kept: it is called again the next time.

        Raises:
            OSError: It cannot be told whether there is a file.
        """
        version = file_version(self.path)
        if version is None:
            return None
        if (kept := self._kept) is not None and kept[0] == version:
            return kept[1]
        may_keep = is_steady(version[-1])  # before it is read: reading may take longer than a tick
        value = self._parse(self.path)
        # One assignment: several threads may be here.
        self._kept = (version, value) if may_keep else None
        return value


def file_version(path: Path) -> FileVersion | None:
    """Return the version of a file, whose last number is the time of its change.

    None: there is no file.

    Raises:
        OSError: It cannot be told whether there is a file.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_steady(changed_ns: int) -> bool:
    """Return whether a change after the given time would show as another time.

    Two changes within one tick of the file system's clock have the same time: a tick is a few
    milliseconds, on some systems two seconds.
    """
    tick = _COARSE_TICK_NS if changed_ns % 1_000_000 == 0 else _FINE_TICK_NS
    return time.time_ns() - changed_ns > tick
