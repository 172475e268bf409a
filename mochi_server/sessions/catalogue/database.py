"""The index: one SQLite file with a full-text table, which may be deleted at any time."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.files import PRIVATE_FILE, hand_over, make_folder
from .document import Contents
from .query import Query
from .tables import (
    BEST,
    CONTENTS,
    IN_ONE_ROW,
    OTHERS,
    SCHEMA,
    Damaged,
    Hit,
    Indexed,
    check,
    enter,
    forget,
    meaning,
    refusal,
)

logger = logging.getLogger(__name__)

BUSY_SECONDS = 10.0


def has_full_text() -> bool:
    """Whether this Python's SQLite was built with FTS5."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


class SearchFile:
    """The index in a file, or without a path in memory. For one thread.

    Others may have the same file open; one that was deleted or replaced meanwhile is noticed at the
    next use. Only ``prepare`` makes one, and only one process at a time may call it, ``put`` and
    ``remove``.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._known: dict[str, str] = {}
        self._known_at: object = None
        self._fault: str | None = None

    def prepare(self) -> None:
        """Have a usable file, new and empty if need be.

        Raises:
            StorageError: it cannot be made; the text says why.
        """
        try:
            if self._opened() is not None:
                return
            logger.info("Making the search index anew: %s", self.path or "in memory")
        except Damaged as error:
            logger.warning("The search index is made anew: %s (%s)", error, self.path)
        self.close()
        self._make()

    def _make(self) -> None:
        try:
            if self.path is not None:
                self._make_empty(self.path)
            connection = self._connect()
        except OSError as error:
            raise refusal(error.strerror or str(error)) from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
        except sqlite3.Error as error:
            connection.close()
            raise refusal(str(error)) from error
        self._keep(connection)

    def _make_empty(self, path: Path) -> None:
        """An empty file that nobody else may read; SQLite gives its helpers the same mode."""
        make_folder(path.parent, private=True)
        for name in (path, *(path.with_name(path.name + tail) for tail in ("-wal", "-shm"))):
            name.unlink(missing_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE)
        hand_over(path, handle)
        os.close(handle)

    def _connect(self) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else f"{self.path.as_uri()}?mode=rw"
        connection = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
        # What is lost with the power is made anew; what was deleted shall be gone.
        try:
            connection.executescript("PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;")
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._inode = self._inode_now()
        self._known_at, self._fault = None, None

    def _inode_now(self) -> int:
        try:
            return 0 if self.path is None else self.path.stat().st_ino
        except OSError:  # where nothing can be, ``prepare`` tells why
            return -1

    def _opened(self) -> sqlite3.Connection | None:
        """The connection; None while there is no file.

        Raises:
            Damaged: there is one, and it is not usable.
        """
        if self._connection is not None:
            if self._inode == self._inode_now():
                if self._fault is not None:
                    raise Damaged(self._fault)
                return self._connection
            self.close()
        if self.path is None or self._inode_now() < 0:
            return None
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            raise meaning(error) from error
        try:
            check(connection)
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return connection

    def close(self) -> None:
        """Give back the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def state(self) -> object:
        """Equal as long as nobody has changed the index; None while there is no usable one."""
        try:
            if (connection := self._opened()) is None:
                return None
            (version,) = connection.execute("PRAGMA data_version").fetchone()
        except (Damaged, sqlite3.Error):
            return None
        return self._inode, version, connection.total_changes

    def known(self) -> dict[str, str]:
        """Signatures of the sessions that the index has, by id; not to be changed."""
        if (state := self.state()) is None or state != self._known_at:
            self._known = dict(self._rows("SELECT session_id, signature FROM sessions"))
            self._known_at = state
        return self._known

    def find(self, query: Query, most: int = -1) -> list[Hit]:
        """The sessions that the query matches, in no order: the best so many, or all."""
        statement = IN_ONE_ROW.format(BEST if query.wanted else OTHERS)
        for (lines,) in self._rows(statement, query.match, most):
            pairs = (line.split(" ") for line in (lines or "").splitlines())
            return [Hit(session_id, float(score)) for session_id, score in pairs]
        return []

    def contents(self, session_id: str) -> Contents:
        """The texts of a session; empty when the index has none."""
        return next((Contents(*row) for row in self._rows(CONTENTS, session_id)), Contents())

    def _rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        try:
            connection = self._opened()
            return [] if connection is None else connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._meaning(error) from error

    def put(self, batch: Sequence[Indexed]) -> None:
        """Enter these sessions, in the place of what was there."""
        self._change([each.session_id for each in batch], batch)

    def remove(self, session_ids: Sequence[str]) -> None:
        """Forget these sessions."""
        self._change(session_ids, ())

    def _change(self, gone: Sequence[str], new: Sequence[Indexed]) -> None:
        connection, known = self._opened(), self.known()
        if connection is None:
            raise Damaged("the file was deleted")
        try:
            connection.execute("BEGIN IMMEDIATE")
            forget(connection, gone)
            enter(connection, new)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        for session_id in gone:
            known.pop(session_id, None)
        known.update((each.session_id, each.signature) for each in new)
        self._known_at = self.state()

    def _meaning(self, error: sqlite3.Error) -> Exception:
        found = meaning(error)
        if isinstance(found, Damaged):
            self._fault = str(found)
        return found

    def tidy(self) -> None:
        """Let the log that writing left go into the file, if nobody reads."""
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")
