"""The SQLite file of the catalogue: opened, checked, and created again if it is lost or broken."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from ...core.files import make_folder
from ...core.leases import FileLock
from ...core.sqlite import HELPERS, connect, create_file, remove_helpers, transaction
from .search_text import SearchDocument

T = TypeVar("T")

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 5
"""Part of the file's name; a file of another version is made anew. Raise it also when the code of
``rows`` or ``search_text`` stores something else."""

_APPLICATION = 0x6D6F6368  # "moch"

_FORMER_NAME = "search.sqlite3"
"""An older server's file in the same folder; it holds texts of conversations, so it is removed."""

_NAME = re.compile(r"catalogue(-\d+)?\.sqlite3")
"""The file of some version of the server."""

BUILD_LOCK, WATCH_LOCK = "lock", "watch"
"""Ends of the names of the locks beside a file: who creates it, and the server process that keeps
it up to date, which holds it as long as it runs."""

_SCHEMA = f"""
CREATE TABLE state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL UNIQUE,
  version TEXT NOT NULL,
  changed_at INTEGER NOT NULL,
  line BLOB NOT NULL,
  is_problem INTEGER NOT NULL,
  archived INTEGER NOT NULL,
  owner TEXT,
  text_version TEXT
);
CREATE INDEX in_order ON sessions (changed_at DESC, session_id) WHERE NOT is_problem;
CREATE INDEX by_archived ON sessions (archived, changed_at DESC, session_id) WHERE NOT is_problem;
CREATE INDEX by_owner ON sessions (owner, changed_at DESC, session_id)
  WHERE NOT is_problem AND owner IS NOT NULL;
CREATE INDEX problems ON sessions (changed_at DESC, session_id) WHERE is_problem;
CREATE INDEX without_text ON sessions (changed_at DESC, session_id)
  WHERE NOT is_problem AND text_version IS NOT version;
CREATE TABLE tags (
  tag TEXT NOT NULL, changed_at INTEGER NOT NULL, session_id TEXT NOT NULL, number INTEGER NOT NULL,
  PRIMARY KEY (tag, changed_at DESC, session_id)
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


class RebuildNeeded(Exception):
    """The file is missing, broken, not complete or of another program: build it again."""


class TemporarilyUnavailable(Exception):
    """The file cannot be used now: it is locked, the disk is full, the folder is read-only."""


def has_full_text() -> bool:
    """Return whether this Python's SQLite was built with FTS5."""
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
    is noticed at the next use, one that turns out to be broken is deleted. Only ``prepare`` makes a
    file, and only one process at a time may call it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.identity = 0
        """Differs between this file and the one that replaces it."""
        self.has_deleted = False
        """Whether deleted texts may still be in SQLite's log: see ``tidy``."""
        self._connection: sqlite3.Connection | None = None
        self._inodes: list[int] = []

    def _is_gone(self) -> bool:
        return self.path is not None and _inode_of(self.path) < 0

    def exists(self) -> bool:
        return self._connection is not None if self.path is None else _inode_of(self.path) >= 0

    def is_usable(self) -> bool:
        """Return whether the file can be opened."""
        try:
            self.connection()
        except RebuildNeeded:
            return False
        return True

    def prepare(self) -> None:
        """Open the file; make a new and empty one if it is not usable.

        Raises:
            RebuildNeeded: another process has deleted it meanwhile.
            TemporarilyUnavailable: it cannot be made; the text says why.
        """
        if self.is_usable():
            return
        logger.debug("Making the catalogue of sessions anew: %s", self.path or "in memory")
        self.close()
        try:
            if self.path is not None:
                make_folder(self.path.parent, private=True)
                self.path.unlink(missing_ok=True)
                _unlink(self.path.with_name(_FORMER_NAME))
                create_file(self.path)
            connection = connect(self.path, _SETTINGS, _create_tables)
        except OSError as error:
            raise TemporarilyUnavailable(error.strerror or str(error)) from error
        except sqlite3.Error as error:
            if self._is_gone():
                raise RebuildNeeded("it was deleted") from error
            raise TemporarilyUnavailable(str(error)) from error
        self._keep(connection)

    def _keep(self, connection: sqlite3.Connection) -> None:
        self._connection, self._inodes = connection, self._inodes_now()
        self.identity = self._inodes[0] if self._inodes else self.identity + 1

    def _inodes_now(self) -> list[int]:
        """Return the inodes of the file, of SQLite's log and of the index of it; none in memory."""
        if self.path is None:
            return []
        names = [self.path.name + tail for tail in ("", *HELPERS)]
        return [_inode_of(self.path.with_name(name)) for name in names]

    def connection(self) -> sqlite3.Connection:
        """Return the open connection.

        Raises:
            RebuildNeeded: there is no file, or one that is broken or of another version.
            TemporarilyUnavailable: it cannot be opened now.
        """
        if self._connection is not None:
            inodes = self._inodes_now()
            if inodes == self._inodes:
                return self._connection
            if inodes[0] == self._inodes[0]:
                self._delete()
                raise RebuildNeeded("its log was deleted or replaced")
            self.close()
        if not self.exists():
            raise RebuildNeeded("there is none")
        try:
            connection = connect(self.path, _SETTINGS, _check_version)
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        self._keep(connection)
        return connection

    @contextmanager
    def transaction(self, mode: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        """Read a state of the file, or with ``IMMEDIATE`` change it, as a whole or not at all.

        Raises:
            RebuildNeeded: there is no file, or one that is broken or of another version.
            TemporarilyUnavailable: it cannot be read or written now.
        """
        connection = self.connection()
        try:
            with transaction(connection, mode):
                yield connection
        except (sqlite3.Error, ValueError) as error:  # no longer UTF-8, a number, or JSON
            meaning = self._meaning(error)
            if isinstance(meaning, RebuildNeeded):
                self._delete()
            raise meaning from error

    def _meaning(self, error: Exception) -> Exception:
        text = str(error)
        is_temporary = any(each in text for each in _TEMPORARY)
        if isinstance(error, sqlite3.OperationalError) and is_temporary and not self._is_gone():
            return TemporarilyUnavailable(text)
        return RebuildNeeded(text)

    def _delete(self) -> None:
        """Close the file, and delete it unless another has taken its place."""
        is_same = self._inodes[:1] == self._inodes_now()[:1]
        self.close()
        if is_same and self.path is not None:
            try:
                _unlink(self.path)
            except OSError as error:
                raise TemporarilyUnavailable(error.strerror or str(error)) from error

    def tidy(self) -> None:
        """Move the log that writing left into the file, so that what was deleted is gone."""
        self.has_deleted = False
        try:
            checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
            busy, _, _ = self.connection().execute(checkpoint).fetchone()
            self.has_deleted = bool(busy)
        except (sqlite3.Error, RebuildNeeded, TemporarilyUnavailable) as error:
            logger.debug("The catalogue's log stays for now: %s", error)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        self.close()


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    schema = _SCHEMA + _TEXT_SCHEMA if has_full_text() else _SCHEMA
    connection.executescript(f"BEGIN;{schema}COMMIT;")


def _check_version(connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application, version) != (_APPLICATION, SCHEMA_VERSION):
        raise RebuildNeeded("it is of another version")


def _inode_of(path: Path) -> int:
    """Return -1 where there is no file, or none that can be seen."""
    try:
        return path.stat().st_ino
    except OSError:
        return -1


def _unlink(path: Path) -> None:
    """Remove a database; the file goes first, so that no process opens it meanwhile."""
    path.unlink(missing_ok=True)
    remove_helpers(path)


def file_lock(path: Path, name: str) -> FileLock:
    """Return a lock beside the file."""
    return FileLock(path.with_name(f"{path.name}.{name}"))


def remove_unused(own: Path) -> None:
    """Remove the files of other versions that no process has open: they have texts.

    Who opens one just then notices that it is gone, and makes it anew.
    """
    for path in [*own.parent.glob("*.sqlite3")]:
        if path == own or _NAME.fullmatch(path.name) is None:
            continue
        locks = [file_lock(path, name) for name in (BUILD_LOCK, WATCH_LOCK)]
        try:
            if all(lock.acquire() for lock in locks) and _is_unused(path):
                _unlink(path)
        except OSError as error:
            logger.debug("%s stays for now: %s", path, error)
        finally:
            for lock in locks:
                lock.release(remove=True)


def _is_unused(path: Path) -> bool:
    """Return whether nobody has the file open: only then SQLite can do without its log."""
    name = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with closing(
            sqlite3.connect(name, timeout=0, isolation_level=None, uri=True)
        ) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            return bool(mode == "delete")
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:  # it is no database any more
        return True


class DatabaseThread:
    """A thread with a database of its own."""

    def __init__(self, path: Path | None, name: str) -> None:
        self.database = CatalogueDatabase(path)
        self._name = name
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[CatalogueDatabase], T]) -> Future[T]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        return self._executor.submit(work, self.database)

    async def run(self, work: Callable[[CatalogueDatabase], T]) -> T:
        """Do the work in the thread."""
        return await asyncio.wrap_future(self.submit(work))

    async def tidy(self) -> None:
        """Remove what was deleted from SQLite's log."""
        if self.database.has_deleted:
            await self.run(CatalogueDatabase.tidy)

    async def aclose(self) -> None:
        """Close the file and end the thread; the next use begins anew."""
        if self._executor is not None:
            await self.run(CatalogueDatabase.close)
            self._executor.shutdown()
            self._executor = None
