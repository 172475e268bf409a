"""Snapshots of a folder's Python files, to notice that one has changed."""

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

MAX_ENTRIES = 10_000
"""Files and folders that are looked at; a change beyond them needs a reload."""

DEEPEST = 8

RELOAD_STAMP = "reload-tools"
"""Name of the stamp below ``MochiServerSettings.state_path``."""

_SKIPPED = frozenset({"__pycache__", "site-packages", "venv", "node_modules"})


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """The Python files of a folder at one moment; two are equal when nothing has changed."""

    digest: bytes
    is_empty: bool
    """Whether there is no Python file, perhaps not even the folder."""


def check_folder(folder: Path, stamp: Path | None = None) -> FolderSnapshot:
    """Take a snapshot of every ``.py`` file below the folder, and of the stamp. Blocks.

    It may be a file itself. Hidden folders, caches and virtual environments are skipped. Contents
    are not read: a file has changed when its time, its size or its inode has.
    """
    digest = blake2b(digest_size=16)
    is_empty = True
    for path, status in _python_files(folder):
        digest.update(_line(path, status))
        is_empty = False
    if stamp is not None:
        digest.update(_line(os.fspath(stamp), _status(stamp)))
    return FolderSnapshot(digest.digest(), is_empty)


def write_stamp(stamp: Path) -> None:
    """Make every process that checks the stamp load its tools again; blocks, may raise OSError."""
    replace_file(stamp, [b"%d\n" % time.time_ns()], private=True)


def _line(path: str, status: os.stat_result | None) -> bytes:
    facts = (status.st_mtime_ns, status.st_size, status.st_ino) if status is not None else None
    return b"%b\0%b\n" % (os.fsencode(path), repr(facts).encode())


def _status(path: os.PathLike[str]) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return os.stat(path)  # noqa: PTH116 - also of an entry, which is no Path
    return None


def _python_files(folder: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield path and status of each file; None for a file or folder that cannot be looked at."""
    left = MAX_ENTRIES
    waiting = [(os.fspath(folder), 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            entries = _entries(path, left)
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            yield path, _status(Path(path))
            continue
        except OSError:
            yield path, None
            continue
        left -= len(entries)
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, _status(entry)
            elif depth < DEEPEST and _may_be_package(entry):
                waiting.append((entry.path, depth + 1))


def _entries(folder: str, most: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(islice(entries, most), key=lambda entry: entry.name)


def _may_be_package(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in _SKIPPED:
        return False
    with contextlib.suppress(OSError):
        return entry.is_dir()
    return False
