"""A look through a folder of session files."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from pathlib import Path

from ...errors import StorageError
from .base import SESSION_ID, Entry

logger = logging.getLogger(__name__)

LEFTOVER = re.compile(rf"\.{SESSION_ID.pattern}\.[0-9a-f]{{16}}\.tmp")
"""How ``files.replace_file`` names the temporary file of a session; other files are not ours."""

LEFTOVER_SECONDS = 600
"""A temporary file this old belongs to a process that crashed."""


def signature_of(status: os.stat_result) -> tuple[int, ...]:
    """``(mtime_ns, size, inode)``."""
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def scan(folder: Path, *, tidy: bool = True) -> list[Entry]:
    """Every session file, and what looks like one.

    Args:
        folder: where they are.
        tidy: remove leftovers of crashed processes on the way.

    Raises:
        StorageError: the folder is there, and cannot be listed.
    """
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _not_listed(folder, error) from error
    try:
        return _entries(place, tidy=tidy)
    except OSError as error:
        raise _not_listed(folder, error) from error
    finally:
        os.close(place)


def _not_listed(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"{folder} cannot be listed: {error.strerror or error}")


def _entries(place: int, *, tidy: bool) -> list[Entry]:
    """The entries of an open folder; written for speed, a search does this with each query."""
    found: list[Entry] = []
    look, is_id, is_plain = os.stat, SESSION_ID.fullmatch, stat.S_ISREG
    for name in os.listdir(place):
        if not name.endswith(".json") or name.startswith("."):
            if tidy and LEFTOVER.fullmatch(name):
                _remove_leftover(name, place)
            continue
        try:
            status = look(name, dir_fd=place, follow_symlinks=False)
        except FileNotFoundError:
            continue
        session_id, time_ns = name[:-5], status.st_mtime_ns
        signature = (time_ns, status.st_size, status.st_ino)
        if is_plain(status.st_mode) and is_id(session_id):
            found.append(Entry(session_id, signature, time_ns // 1000))
        else:
            reason = _reason(status)
            found.append(Entry(session_id, signature, time_ns // 1000, reason))
    return found


def _reason(status: os.stat_result) -> str:
    """Why what looks like a session is none."""
    if stat.S_ISREG(status.st_mode):
        return "the file's name is not a session id"
    return "not a plain file"


def _remove_leftover(name: str, place: int) -> None:
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=place, follow_symlinks=False)
        if time.time() - status.st_mtime > LEFTOVER_SECONDS:
            logger.info("Removing %s, left by a process that crashed", name)
            os.unlink(name, dir_fd=place)
