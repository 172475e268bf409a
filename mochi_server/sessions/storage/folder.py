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
    found: list[Entry | None] = []
    try:
        with os.scandir(folder) as listing:
            for item in listing:
                if item.name.endswith(".json") and not item.name.startswith("."):
                    found.append(_entry(item))
                elif tidy and LEFTOVER.fullmatch(item.name):
                    _remove_leftover(item)
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{folder} cannot be listed: {reason}") from error
    return [entry for entry in found if entry is not None]


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """The entry of one file; None when it went away meanwhile."""
    session_id = item.name[: -len(".json")]
    try:
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    problem = None
    if not stat.S_ISREG(status.st_mode):
        problem = "not a plain file"
    elif SESSION_ID.fullmatch(session_id) is None:
        problem = "the file's name is not a session id"
    return Entry(session_id, signature_of(status), status.st_mtime_ns // 1000, problem)


def _remove_leftover(item: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):
        if time.time() - item.stat(follow_symlinks=False).st_mtime > LEFTOVER_SECONDS:
            logger.info("Removing %s, left by a process that crashed", item.path)
            os.unlink(item.path)  # noqa: PTH108 - a DirEntry has no unlink
