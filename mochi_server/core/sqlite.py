"""Files of SQLite: created for their owner alone, opened, changed, removed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .files import PRIVATE_FILE, give_to_folder_owner

HELPERS: Final = ("-wal", "-shm")
"""How the names of SQLite's helper files end: its log, and the index of it."""

BUSY_SECONDS = 5.0
"""Longest wait for another process that writes."""


def connect(
    path: Path | None, settings: str, prepare: Callable[[sqlite3.Connection], object]
) -> sqlite3.Connection:
    """Open a file that exists, or a database in memory.

    Args:
        path: Of the file; None: in memory.
        settings: Statements that set up the connection.
        prepare: What is done first. If it fails, the connection is closed.
    """
    name = ":memory:" if path is None else f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(
        name, timeout=BUSY_SECONDS, isolation_level=None, uri=True, check_same_thread=False
    )
    try:
        connection.executescript(settings)
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, mode: str) -> Iterator[None]:
    """Commit what the block does, or nothing of it if it fails; the mode is that of ``BEGIN``."""
    try:
        connection.execute(f"BEGIN {mode}")
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def create_file(path: Path) -> None:
    """Create an empty private file; SQLite gives its helper files the same mode.

    Helper files that are there are of a deleted file, and removed: others may hold their locks.
    """
    remove_helpers(path)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE)
    give_to_folder_owner(path, handle)
    os.close(handle)


def remove_helpers(path: Path) -> None:
    """Remove the helper files of a file that is gone."""
    for tail in HELPERS:
        path.with_name(path.name + tail).unlink(missing_ok=True)
