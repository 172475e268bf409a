"""The catalogue of all sessions: a cache of the storage that answers lists."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from ...core.aio import KeyedLocks, in_thread
from ...core.files import make_folder
from ...core.leases import FileLock
from ...core.logs import outside_request
from ...errors import MochiError, StorageError, StorageUnavailable
from ..storage.base import SessionStorage
from .database import (
    BUILD_LOCK,
    SCHEMA_VERSION,
    WATCH_LOCK,
    CatalogueDatabase,
    DatabaseThread,
    RebuildNeeded,
    TemporarilyUnavailable,
    file_lock,
    remove_unused,
)
from .refresh import Refresh
from .rows import Row, get_state, put_row, remove_row

T = TypeVar("T")

logger = logging.getLogger(__name__)

CATALOGUE = f"catalogue-{SCHEMA_VERSION}.sqlite3"
"""The name of the catalogue in the state folder of the sessions that it is about: versions of the
server that run side by side have a file each."""

ATTEMPTS = 3
"""How often something is read from a file that is found broken or lost each time."""

_OWN_CHANGE_SECONDS = 0.02
"""Longest wait of a conversation for its change to be in the catalogue."""

_PAUSE_FACTOR = 30
"""Shortest pause after a check of all sessions, in multiples of its duration."""

_MAX_PAUSE = 30.0
"""Most seconds of this pause, also after a check that waited for a lock."""

_RETRY_SECONDS = 60.0
"""Seconds after which a file that could not be used is tried again."""

_LOCK_SECONDS = 0.1
_CHECK = "check"


class SessionCatalogue:
    """A cache of all sessions in one SQLite file, which answers lists and may be deleted.

    Each process that shares the file writes its own changes. Other changes of the storage are found
    by a check of all sessions: in the background after ``watch``, otherwise before a list if the
    storage has changed or the last check is too old. Lists wait while it is built.

    While the file cannot be used, a catalogue in memory takes its place.
    """

    def __init__(
        self,
        storage: SessionStorage,
        path: Path | None,
        *,
        sweep_seconds: float = 2.0,
    ) -> None:
        """Open nothing before the first use; without a path the catalogue is in memory."""
        self.storage = storage
        self.path = path
        self.unavailable: TemporarilyUnavailable | None = None
        """Why the file is not used now."""
        self._sweep_seconds = sweep_seconds
        self._use(path)
        self._locks = KeyedLocks()
        self._own_changes: deque[tuple[str, Row | None]] = deque()
        """Appended in the event loop, taken out in the writing thread, which ``deque`` allows."""
        self._pending_write: Future[None] | None = None
        """The latest order to the writing thread to write them."""
        self._watch: asyncio.Task[None] | None = None
        self._is_failing = False
        """Whether the last check in the background has failed."""

    def _use(self, path: Path | None) -> None:
        self.writer = DatabaseThread(path, "mochi-catalogue-write")
        self._reader = self.writer if path is None else DatabaseThread(path, "mochi-catalogue-read")
        self._refresh: Refresh | None = None
        self._checked_at: float | None = None
        self._generation: object | None = None
        self._opened_at = time.monotonic()

    # Reading what is up to date

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in the reading thread, when the rows are up to date."""
        for _ in range(ATTEMPTS):
            await self.bring_up_to_date()
            reader = self._reader
            try:
                return await self.read_once(work)
            except RebuildNeeded:
                self.invalidate()
            except TemporarilyUnavailable as error:
                if self._reader is reader:
                    await self._fall_back(error)
        raise StorageUnavailable("The catalogue of sessions breaks again and again")

    async def read_once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in the reading thread, on the rows as they are.

        Raises:
            RebuildNeeded: the file is gone, broken or not complete; ``invalidate`` and begin again.
            TemporarilyUnavailable: the file cannot be used now.
        """
        return await self._reader.run(partial(_read_complete, work))

    def invalidate(self) -> None:
        """Make the next use check all sessions, which builds the file if it is lost."""
        self._checked_at = None

    async def bring_up_to_date(self) -> None:
        """Wait until the rows agree with the storage, own changes included.

        Raises:
            StorageError: the folder cannot be listed.
        """
        await self._wait_for_own_changes()
        if self.unavailable and time.monotonic() - self._opened_at > _RETRY_SECONDS:
            await self._replace(self.path, None)
        if self._is_watched and self._checked_at is not None:
            return
        async with self._locks.holding(_CHECK):
            await self._check_if_due()

    async def _check_if_due(self) -> None:
        now, generation = time.monotonic(), await self.storage.generation()
        if self._is_watched:
            if self._checked_at is None and await self._is_known(generation):
                self._checked_at = now  # the check that wrote this file still holds
            is_due = self._checked_at is None
        else:
            is_due = (
                self._checked_at is None
                or generation is None
                or generation != self._generation
                or now - self._checked_at >= self._sweep_seconds
            )
        if is_due:
            await self._check()

    async def _check_again(self) -> None:
        """Check all sessions, unless the storage knows that none has changed."""
        storage = self.storage
        if storage.changes_in_place or await storage.generation() != self._generation:
            await self._check()

    async def _is_known(self, generation: object | None) -> bool:
        if generation is None:
            return False
        try:
            known = await self.read_once(lambda connection: get_state(connection, "generation"))
        except (RebuildNeeded, TemporarilyUnavailable):
            return False
        return known == repr(generation)

    async def _check(self) -> None:
        began, generation = time.monotonic(), await self.storage.generation()
        writer = self.writer
        try:
            if not await writer.run(CatalogueDatabase.is_usable):
                async with self.exclusively():
                    await writer.run(CatalogueDatabase.prepare)
            self._refresh = Refresh(self.storage, self._reader, writer)
            await self._refresh.run(generation)
        except RebuildNeeded:
            self.invalidate()  # whoever reads next begins again
            return
        except TemporarilyUnavailable as error:
            if self.writer is writer:
                await self._fall_back(error)
            return
        finally:
            self._refresh = None
        self._checked_at, self._generation = began, generation

    async def _fall_back(self, error: TemporarilyUnavailable) -> None:
        if self.unavailable is not None:
            text = f"The catalogue of sessions cannot be used: {error}"
            raise StorageError.because(error, text)
        logger.warning("The catalogue of sessions cannot be used: %s (%s)", error, self.path)
        await self._replace(None, error)

    async def _replace(self, path: Path | None, unavailable: TemporarilyUnavailable | None) -> None:
        """Continue with another file, or in memory, and close what was used before."""
        threads = {self.writer, self._reader}
        self._use(path)
        self.unavailable = unavailable
        for thread in threads:
            await thread.aclose()

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """Exclude other processes from creating the file and from indexing texts."""
        lock = self._file_lock(BUILD_LOCK)
        try:
            while lock is not None and not _acquire(lock):  # noqa: ASYNC110 - a file's lock
                await anyio.sleep(_LOCK_SECONDS)
            yield
        finally:
            if lock is not None:
                lock.release()

    def _file_lock(self, name: str) -> FileLock | None:
        path = self.writer.database.path
        return None if path is None else file_lock(path, name)

    # Own changes

    async def change(self, session_id: str, make: Callable[[], Awaitable[Row | None]]) -> None:
        """Change a session in the storage, and write the row that this returns; None removes it.

        What could not be written in a moment is written before the next list of this process.
        """
        is_checked = not self._is_watched and self._checked_at is not None
        before = await self.storage.generation() if is_checked else None
        row = await make()
        if self.writer.database.exists():
            if self._refresh is not None:
                self._refresh.own_changes.add(session_id)
            self._own_changes.append((session_id, row))
            self._pending_write = self.writer.submit(self._write_own_changes)
            await self._wait_for_own_changes(_OWN_CHANGE_SECONDS)
        if before is not None and before == self._generation:
            self._generation = await self.storage.generation()

    async def _wait_for_own_changes(self, seconds: float | None = None) -> None:
        if self._pending_write is not None and not self._pending_write.done():
            await asyncio.wait([asyncio.wrap_future(self._pending_write)], timeout=seconds)

    def _write_own_changes(self, database: CatalogueDatabase) -> None:
        """Write all recorded changes in one transaction; later calls find nothing to do."""
        rows: dict[str, Row | None] = {}
        while self._own_changes:
            session_id, row = self._own_changes.popleft()
            rows[session_id] = row
        try:
            if rows:
                _write_rows(rows, database)
        except RebuildNeeded:
            self.invalidate()
        except TemporarilyUnavailable as error:
            logger.warning("A change is not in the catalogue of sessions yet: %s", error)
            self.invalidate()

    # The background

    @property
    def _is_watched(self) -> bool:
        watch = self._watch
        return (
            watch is not None
            and not watch.done()
            and watch.get_loop() is asyncio.get_running_loop()
        )

    def watch(self) -> None:
        """Check all sessions in the background, until ``aclose``.

        Only one of the processes that share the file does it.
        """
        if not self._is_watched:
            loop = asyncio.get_running_loop()
            self._watch = outside_request(loop.create_task, self._keep_watching())

    async def _keep_watching(self) -> None:
        lock = self._file_lock(WATCH_LOCK)
        try:
            while True:
                began, unavailable = time.monotonic(), self.unavailable
                if unavailable or self._checked_at is not None or self.writer.database.exists():
                    await self._watch_once(began, lock)
                if self.unavailable is unavailable:  # else there is another catalogue to check
                    pause = min((time.monotonic() - began) * _PAUSE_FACTOR, _MAX_PAUSE)
                    await anyio.sleep(max(self._sweep_seconds, pause))
        finally:
            if lock is not None:
                lock.release()

    async def _watch_once(self, began: float, lock: FileLock | None) -> None:
        try:
            if self.unavailable or lock is None or lock.held or _acquire(lock):
                await self.bring_up_to_date()
                if self._checked_at is not None and self._checked_at < began:
                    async with self._locks.holding(_CHECK):
                        await self._check_again()
            await self.writer.tidy()
            if self.path is not None and lock is not None and lock.held:
                await in_thread(remove_unused, self.path)
        except (MochiError, TemporarilyUnavailable) as error:
            if not self._is_failing:
                logger.warning("The sessions cannot be checked: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False
        finally:
            if self.unavailable and lock is not None:
                lock.release()  # so that another process checks the file

    async def aclose(self) -> None:
        """Stop watching and close the file; the next use opens it again."""
        if self._is_watched and self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._replace(None if self.unavailable else self.path, self.unavailable)


def _read_complete(work: Callable[[sqlite3.Connection], T], database: CatalogueDatabase) -> T:
    with database.transaction() as connection:
        if not get_state(connection, "complete"):
            raise RebuildNeeded("it is being built")
        return work(connection)


def _write_rows(changes: dict[str, Row | None], database: CatalogueDatabase) -> None:
    with database.transaction("IMMEDIATE") as connection:
        for session_id, row in changes.items():
            if row is not None:
                put_row(connection, row)
            else:
                remove_row(connection, session_id)
                database.has_deleted = True


def _acquire(lock: FileLock) -> bool:
    """Take a lock beside the catalogue, and return whether it is held; takes microseconds."""
    try:
        make_folder(lock.path.parent, private=True)
        return lock.acquire()
    except OSError as error:
        raise TemporarilyUnavailable(error.strerror or str(error)) from error
