"""Whether the Python files of a folder have changed since they were looked at last."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from ...core.files import replace_file

MOST_ENTRIES = 10_000
"""Files and folders that are looked at; a change beyond them is seen by a reload alone."""

DEEPEST = 8
"""Sub-folders below sub-folders that are looked into."""

RELOAD_STAMP = "reload-tools"
"""The stamp's name below ``MochiServerSettings.state_path``."""

_SKIPPED = frozenset({"__pycache__", "site-packages", "venv", "node_modules"})


@dataclass(frozen=True, slots=True)
class Look:
    """What a folder was like at one moment; two are equal when nothing has changed."""

    digest: bytes
    empty: bool
    """No Python file is there, perhaps not even the folder."""


def look_at(folder: Path, stamp: Path | None = None) -> Look:
    """Look at every ``.py`` file below the folder, and at the stamp. For a thread.

    Hidden folders, caches and virtual environments are skipped. Contents are not read: a file has
    changed when its time, its size or its inode has.
    """
    digest = blake2b(digest_size=16)
    empty = True
    for path, status in _python_files(folder):
        digest.update(_line(path, status))
        empty = False
    if stamp is not None:
        digest.update(_line(os.fspath(stamp), _status(stamp)))
    return Look(digest.digest(), empty)


def write_stamp(stamp: Path) -> None:
    """Make every process that looks at the stamp load its tools again. For a thread.

    Raises:
        OSError: the disk refused.
    """
    replace_file(stamp, [b"%d\n" % time.time_ns()], private=True)


def _line(path: str, status: os.stat_result | None) -> bytes:
    facts = (status.st_mtime_ns, status.st_size, status.st_ino) if status is not None else None
    return b"%b\0%b\n" % (os.fsencode(path), repr(facts).encode())


def _status(path: os.PathLike[str]) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return os.stat(path)  # noqa: PTH116 - also of an entry, which is no Path
    return None


def _python_files(folder: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Path and status of each file; null for one, or a folder, that cannot be looked at."""
    left = MOST_ENTRIES
    waiting = [(os.fspath(folder), 0)]
    while waiting:
        place, depth = waiting.pop()
        try:
            entries = _entries(place, left)
        except FileNotFoundError:
            continue
        except OSError:
            yield place, None
            continue
        left -= len(entries)
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, _status(entry)
            elif depth < DEEPEST and _is_package(entry):
                waiting.append((entry.path, depth + 1))


def _entries(place: str, most: int) -> list[os.DirEntry[str]]:
    with os.scandir(place) as found:
        return sorted(islice(found, most), key=lambda entry: entry.name)


def _is_package(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in _SKIPPED:
        return False
    with contextlib.suppress(OSError):
        return entry.is_dir()
    return False
