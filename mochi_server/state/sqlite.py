"""The state in a file of SQLite, which the processes of one machine share, or in memory."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

from ..core.aio import in_thread, in_thread_if, in_thread_to_completion
from ..core.files import flush_folder, locked, make_folder
from ..core.leases import FileLock, is_locked, remove_free_locks
from ..core.sqlite import BUSY_SECONDS, connect, create_file, remove_helpers, transaction
from ..errors import StorageError
from .base import State
from .statements import Statements

T = TypeVar("T")

logger = logging.getLogger(__name__)

FORMAT: Final = 1

LOG_BYTES = 4_000_000
"""Size of the write-ahead log from which on it is written back, in a thread."""

_SETTINGS = f"""
PRAGMA secure_delete = ON;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = {LOG_BYTES // 2};
"""
"""What was deleted is overwritten."""


class Conversion(Protocol):
    """What an earlier version has stored elsewhere, which is taken over once."""

    def is_needed(self) -> bool: ...

    def convert(self, statements: Statements) -> None:
        """Store it, within the transaction that makes the tables."""

    def finish(self) -> None:
        """Remove it, as it is stored now."""


class SQLiteState(State):
    """Rows and lines of a folder; without one, of this process.

    The file is made by the first write. One that was deleted or replaced is noticed at the next
    use; one that is broken is set aside. Who holds something has a file in a folder beside it,
    whose lock the kernel frees when the process ends.
    """

    def __init__(
        self,
        folder: Path | None = None,
        name: str = "state",
        *,
        is_durable: bool = True,
        conversion: Conversion | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            folder: Where the file is; None: in memory.
            name: Of the file, and of the folder of holders.
            is_durable: Whether each change waits for the disk; if not, a power cut may take the
                last ones.
            conversion: What is taken over when the file is made.
        """
        self._path = None if folder is None else folder / f"{name}.sqlite3"
        self._holders = None if folder is None else folder / name
        self.look_seconds = 0.25 if folder is None else 0.05
        self._settings = f"{_SETTINGS}PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'};"
        self._is_durable = is_durable
        self._conversion = conversion
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        """Of the file that is open; None: there is none, and the connection is one to memory."""
        self._is_patient = True
        """Whether the connection waits for others that write."""
        self._holder = ""
        self._holder_lock: FileLock | None = None

    async def read(self, work: Callable[[Statements], T], *, is_small: bool = False) -> T:
        if is_small and (done := self._at_once("DEFERRED", work)) is not None:
            return done[0]
        return await in_thread_if(self._path is not None, self._run, "DEFERRED", work)

    async def write(self, work: Callable[[Statements], T]) -> T:
        if self._path is None:
            return self._run("IMMEDIATE", work)
        return await in_thread_to_completion(self._run, "IMMEDIATE", work)

    def write_at_once(self, work: Callable[[Statements], T]) -> tuple[T] | None:
        if self._path is None:
            return (self._run("IMMEDIATE", work),)
        # What is durable waits for the disk.
        return None if self._is_durable else self._at_once("IMMEDIATE", work)

    def _at_once(self, mode: str, work: Callable[[Statements], T]) -> tuple[T] | None:
        """Do work where nothing has to be waited for; None: it is not done."""
        if self._lock.acquire(blocking=False):
            try:
                if (
                    self._connection is not None
                    and self._inode == self._inode_now()
                    and (mode == "DEFERRED" or (self._inode and self._is_log_short()))
                ):
                    self._be_patient(is_patient=False)
                    with self._transaction(self._connection, mode) as statements:
                        return (work(statements),)
            except (OSError, sqlite3.Error):
                pass  # done again, it is found out why
            finally:
                self._lock.release()
        return None

    def _be_patient(self, *, is_patient: bool) -> None:
        if is_patient is not self._is_patient and self._connection is not None:
            seconds = BUSY_SECONDS if is_patient else 0
            self._connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
            self._is_patient = is_patient

    def _is_log_short(self) -> bool:
        assert self._path is not None  # noqa: S101 - there is a file
        try:
            return os.stat(f"{self._path}-wal").st_size < LOG_BYTES  # noqa: PTH116 - at each write
        except FileNotFoundError:
            return True

    def hold(self) -> str:
        with _translate_errors():
            if self._holders is None:
                self._holder = self._holder or secrets.token_hex(8)
            elif self._holder_lock is None or not self._holder_lock.is_in_place:
                self._end_holding()
                make_folder(self._holders, private=True)
                self._holder = self._holder or secrets.token_hex(8)
                lock = FileLock(self._holders / f"{self._holder}.lock")
                while not lock.acquire():  # another process prunes just now
                    pass
                self._holder_lock = lock
        return self._holder

    def _end_holding(self) -> None:
        if self._holder_lock is not None:
            with suppress(OSError):  # it is free all the same, and ``prune`` removes the file
                self._holder_lock.release(remove=True)
        self._holder_lock = None

    async def release(self) -> None:
        self._end_holding()
        self._holder = ""

    def _lives(self, holder: str) -> bool:
        if self._holders is None:
            return holder == self._holder
        return is_locked(self._holders / f"{holder}.lock")

    async def prune(self) -> None:
        if self._holders is not None:
            await in_thread(remove_free_locks, self._holders, "*.lock")

    async def aclose(self) -> None:
        """Close the file; the next use opens it again. What is in memory stays."""
        if self._path is not None:
            await in_thread(self._close_when_idle)

    def __del__(self) -> None:
        self._close()

    def _close_when_idle(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._is_patient = True

    def _run(self, mode: str, work: Callable[[Statements], T]) -> T:
        with _translate_errors(), self._lock:
            connection = self._opened(make=mode == "IMMEDIATE")
            self._be_patient(is_patient=True)
            try:
                with self._transaction(connection, mode) as statements:
                    done = work(statements)
                if mode == "IMMEDIATE" and self._path is not None and not self._is_log_short():
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.DatabaseError as error:
                if _is_broken(error):
                    self._set_aside(error)
                raise
            return done

    def _opened(self, *, make: bool) -> sqlite3.Connection:
        path, inode = self._path, self._inode_now()
        is_enough = inode is not None or path is None or not make
        if self._connection is not None and self._inode == inode and is_enough:
            return self._connection
        self._close()
        self._inode = inode
        if path is None or (inode is None and not make and self._conversion_needed() is None):
            # In memory, also where there is nothing to be read.
            self._connection = connect(None, self._settings, self._create_tables)
            return self._connection
        make_folder(path.parent, private=True)
        try:
            self._connection = self._open_file(path)
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
            self._set_aside(error)
            self._connection = self._open_file(path)
        self._inode = self._inode_now()
        return self._connection

    def _open_file(self, path: Path) -> sqlite3.Connection:
        if self._inode_now() is not None:
            connection = connect(path, self._settings, _is_made)
            if _is_made(connection):
                self._finish_conversion(path)
                return connection
            connection.close()
        with locked(path.with_suffix(".lock")):
            if self._inode_now() is None:
                create_file(path)
                flush_folder(path.parent)
            return connect(path, self._settings, self._fill)

    def _fill(self, connection: sqlite3.Connection) -> None:
        """Make the tables unless there are some, with what an earlier version has stored."""
        if _is_made(connection):
            return
        conversion = self._conversion_needed()
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode not in ("wal", "memory"):
            text = "The file system of %s refuses SQLite's log: processes wait for each other. %s"
            logger.warning(text, self._path, "Keep .mochi on a local disk.")
        with self._transaction(connection, "IMMEDIATE") as statements:
            statements.create()
            if conversion is not None:
                conversion.convert(statements)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        if conversion is not None:
            conversion.finish()

    def _finish_conversion(self, path: Path) -> None:
        """Remove what a process has taken over that was killed before it could remove it."""
        if (conversion := self._conversion_needed()) is not None:
            with locked(path.with_suffix(".lock")):
                conversion.finish()

    def _conversion_needed(self) -> Conversion | None:
        conversion = self._conversion
        return conversion if conversion is not None and conversion.is_needed() else None

    def _set_aside(self, error: Exception) -> None:
        """Rename a broken file, unless another process has done it."""
        self._close()
        if (path := self._path) is None:
            return
        with locked(path.with_suffix(".lock")):
            if self._inode_now() is not None and not self._is_sound(path):
                aside = path.with_suffix(f".broken{path.suffix}")
                logger.warning("%s is broken (%s). It is now %s.", path, error, aside.name)
                path.replace(aside)
                remove_helpers(path)

    def _inode_now(self) -> int | None:
        """Return None where there is no file, and in memory."""
        if self._path is None:
            return None
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return None

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        with self._transaction(connection, "IMMEDIATE") as statements:
            statements.create()

    def _is_sound(self, path: Path) -> bool:
        try:
            with closing(connect(path, self._settings, _is_made)) as connection:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                return str(found) == "ok"
        except sqlite3.DatabaseError as error:
            return not _is_broken(error)

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, mode: str) -> Iterator[Statements]:
        with transaction(connection, mode):
            yield Statements(connection.execute, self._lives)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise StorageError.because(error, f"The state cannot be used: {error}") from error


def _is_made(connection: sqlite3.Connection) -> bool:
    """Return whether it has tables.

    Raises:
        sqlite3.NotSupportedError: those of another version.
    """
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    if number not in (0, FORMAT):
        (*_, (_, _, path)) = connection.execute("PRAGMA database_list")
        raise sqlite3.NotSupportedError(
            f"{path} is of another version of mochi-server: it has format {number}, this one "
            f"knows {FORMAT}. Update mochi-server, or move the file away, with what is in it."
        )
    return bool(number)


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    return type(error) is sqlite3.DatabaseError  # what may pass has classes of its own
