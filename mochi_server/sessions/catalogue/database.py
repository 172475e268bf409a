"""The SQLite file of the catalogue: opened, checked, and created again if it is lost or broken."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ...core.files import PRIVATE_FILE, hand_over, make_folder
from .document import SearchDocument

T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
"""Longest wait for another process that writes."""

SCHEMA_VERSION = 3
"""A file of another version is made anew. Raise it also when the code of ``rows``,
``text_folding`` or ``document`` stores something else."""

_APPLICATION = 0x6D6F6368  # "moch"

_FORMER_NAME = "search.sqlite3"
"""An older server's file in the same folder; it holds texts of conversations, so it is removed."""

_SCHEMA = f"""
CREATE TABLE state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO state VALUES ('revision', 0);
CREATE TABLE sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL UNIQUE,
  version TEXT NOT NULL,
  position INTEGER NOT NULL,
  line BLOB NOT NULL,
  is_problem INTEGER NOT NULL,
  archived INTEGER NOT NULL,
  text_version TEXT
);
CREATE INDEX in_order ON sessions (position, session_id) WHERE NOT is_problem;
CREATE INDEX by_archived ON sessions (archived, position, session_id) WHERE NOT is_problem;
CREATE INDEX problems ON sessions (position, session_id) WHERE is_problem;
CREATE INDEX without_text ON sessions (position, session_id)
  WHERE NOT is_problem AND text_version IS NOT version;
CREATE TABLE tags (
  tag TEXT NOT NULL, position INTEGER NOT NULL, session_id TEXT NOT NULL, number INTEGER NOT NULL,
  PRIMARY KEY (tag, position, session_id)
) WITHOUT ROWID;
CREATE INDEX tags_of_session ON tags (number, tag);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""

_TEXT_SCHEMA = f"""
CREATE VIRTUAL TABLE texts USING fts5 (
  {", ".join(SearchDocument._fields)}, tokenize="unicode61 remove_diacritics 2", prefix='2 3'
);
"""

_SETTINGS = """
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 8000;
PRAGMA secure_delete = ON;
"""
"""A change that a power cut undoes is found by a check. Checkpoints, which wait for the disk, come
after 32 MB. Deleted texts are overwritten."""

_TEMPORARY = ("locked", "busy", "full", "unable to open", "readonly")
"""In messages of SQLite about files that may be usable later."""


class Unusable(Exception):
    """The file is missing, broken or of another program: it must be created again."""

    def __init__(self, reason: str, identity: int | None = None) -> None:
        super().__init__(reason)
        self.identity = identity
        """Of the database that is broken; None when there is none."""


class Refused(Exception):
    """The file cannot be used now: it is locked, the disk is full, the folder is read-only."""


def has_full_text() -> bool:
    """Tell whether this Python's SQLite was built with FTS5."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


class CatalogueDatabase:
    """A connection to the catalogue's file, or without a path to a database in memory.

    For one thread. Others may have the same file open; one that was deleted or replaced meanwhile
    is noticed at the next use. Only ``prepare`` makes a file, and only one process at a time may
    call it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.identity = 0
        """Differs between this file and the one that replaces it."""
        self.has_deleted = False
        """Whether deleted texts may still be in SQLite's log: see ``tidy``."""
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._log_inodes: list[int] = []
        self._fault: str | None = None

    def is_usable(self, broken: int | None = None) -> bool:
        """Tell whether there is a file that can be used, other than the one that is broken.

        Raises:
            Refused: there is one, and it cannot be used now.
        """
        try:
            self.connection()
        except Unusable:
            return False
        return self.identity != broken

    def prepare(self, broken: int | None = None) -> None:
        """Open the file; make a new and empty one if it is not usable.

        Raises:
            Refused: it cannot be made; the text says why.
        """
        if not self.is_usable(broken):
            logger.debug("Making the catalogue of sessions anew: %s", self.path or "in memory")
            self.close()
            self._make()

    def _make(self) -> None:
        try:
            if self.path is not None:
                _make_empty(self.path)
            connection = self._connect()
        except OSError as error:
            raise Refused(error.strerror or str(error)) from error
        except sqlite3.Error as error:
            raise Refused(str(error)) from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN;{_SCHEMA}{_TEXT_SCHEMA * has_full_text()}COMMIT;")
        except sqlite3.Error as error:
            connection.close()
            raise Refused(str(error)) from error
        self._keep(connection)

    def _connect(self) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            name, timeout=BUSY_SECONDS, isolation_level=None, uri=True, check_same_thread=False
        )
        try:
            connection.executescript(_SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep(self, connection: sqlite3.Connection) -> None:
        self._connection, self._fault = connection, None
        self._inode, self._log_inodes = self._inode_now(), self._log_inodes_now()
        self.identity = self._inode if self.path is not None else self.identity + 1

    def _inode_now(self) -> int:
        """Return 0 in memory, and -1 where there is no file."""
        return 0 if self.path is None else _inode_of(self.path)

    def _log_inodes_now(self) -> list[int]:
        """Return the inodes of SQLite's log and of the index of it."""
        if self.path is None:
            return []
        name = self.path.name
        return [_inode_of(self.path.with_name(name + tail)) for tail in ("-wal", "-shm")]

    def connection(self) -> sqlite3.Connection:
        """Return the open connection.

        Raises:
            Unusable: there is no file, or one that is broken or of another version.
            Refused: it cannot be opened now.
        """
        if self._connection is not None:
            if self._inode == self._inode_now():
                if self._log_inodes != self._log_inodes_now():
                    self._fault = "its log was deleted or replaced"
                if self._fault is not None:
                    raise Unusable(self._fault, self.identity)
                return self._connection
            self.close()
        if self.path is None or self._inode_now() < 0:
            raise Unusable("there is none")
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        try:
            self._check_version(connection)
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return connection

    @contextmanager
    def transaction(self, mode: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        """Read a state of the file, or with ``IMMEDIATE`` change it, as a whole or not at all.

        Raises:
            Unusable: there is no file, or one that is broken or of another version.
            Refused: it cannot be read or written now.
        """
        connection = self.connection()
        try:
            connection.execute(f"BEGIN {mode}")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            meaning = self._meaning(error)
            if isinstance(meaning, Unusable):
                self._fault = str(meaning)
            raise meaning from error
        except ValueError as error:  # what was stored is no longer UTF-8, a number, or JSON
            self._fault = str(error)
            raise Unusable(self._fault, self.identity) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _check_version(self, connection: sqlite3.Connection) -> None:
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        if (application, version) != (_APPLICATION, SCHEMA_VERSION):
            raise Unusable("it is of another version")

    def _meaning(self, error: sqlite3.Error) -> Exception:
        text = str(error)
        if isinstance(error, sqlite3.OperationalError) and any(
            words in text for words in _TEMPORARY
        ):
            return Refused(text)
        return Unusable(text, self.identity)

    def tidy(self) -> None:
        """Move the log that writing left into the file, so that what was deleted is gone."""
        self.has_deleted = False
        try:
            checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
            busy, _, _ = self.connection().execute(checkpoint).fetchone()
            self.has_deleted = bool(busy)
        except (sqlite3.Error, Unusable, Refused) as error:
            logger.debug("The catalogue's log stays for now: %s", error)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        self.close()


def _inode_of(path: Path) -> int:
    """Return -1 where there is no file."""
    try:
        return path.stat().st_ino
    except OSError:
        return -1


def _make_empty(path: Path) -> None:
    """Create an empty private file; SQLite gives its helper files the same mode."""
    make_folder(path.parent, private=True)
    for name in (path.name, _FORMER_NAME):  # the file first, so that no process opens it now
        for tail in ("", "-wal", "-shm"):
            path.with_name(name + tail).unlink(missing_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE)
    hand_over(path, handle)
    os.close(handle)


class DatabaseThread:
    """A thread with a database of its own."""

    def __init__(self, path: Path | None, name: str) -> None:
        self.database = CatalogueDatabase(path)
        self._name = name
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[CatalogueDatabase], T]) -> Future[T]:
        """Hand in work for the thread, which does one after the other."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        return self._executor.submit(work, self.database)

    async def run(self, work: Callable[[CatalogueDatabase], T]) -> T:
        """Do the work in the thread.

        Raises:
            Unusable: the file must be made anew.
            Refused: it cannot be used now.
        """
        return await asyncio.wrap_future(self.submit(work))

    async def aclose(self) -> None:
        """Close the file and end the thread; the next use begins anew."""
        if self._executor is not None:
            await self.run(CatalogueDatabase.close)
            self._executor.shutdown()
            self._executor = None
