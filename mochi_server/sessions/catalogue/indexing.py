"""The index follows the files: what has changed is entered before it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import anyio

from ...core.aio import in_thread, yield_to_loop
from ...core.files import make_folder
from ...core.leases import FileLock
from ...core.logs import outside_request
from ...errors import SessionNotFound, StorageError
from .. import SessionManager
from .database import SearchFile
from .document import contents_of
from .rows import Row
from .tables import Damaged, Indexed

T = TypeVar("T")

_BATCH_SESSIONS = 64
_BATCH_BYTES = 500_000
"""Entered in one step, less than a tenth of a second; searches come in between."""

_TIDY_SESSIONS = 1000
_ATTEMPTS = 3
_LOOK_SECONDS = 0.1
"""Pause between looks at what another process is indexing."""


class Indexing(NamedTuple):
    """How far the index is."""

    done: int
    """Sessions that are in it as they are now."""
    total: int


class Look(NamedTuple):
    """The sessions at one moment."""

    version: int
    """Grows with each change of the list."""
    rows: Mapping[str, Row]


class _Stale(NamedTuple):
    """Where index and files differ."""

    changed: list[str]
    """The session changed last first, for that one is looked for most often."""
    gone: list[str]


class Indexer:
    """Brings an index up to date. All that is done with the file is done in one thread."""

    def __init__(self, sessions: SessionManager, file: SearchFile) -> None:
        self._sessions = sessions
        self._file = file
        self._thread: ThreadPoolExecutor | None = None
        self._update: asyncio.Task[None] | None = None
        self._complete: tuple[int, object] | None = None
        self.indexing = Indexing(0, 0)
        """Where the update is that runs, or was the last one."""

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do something with the file."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="mochi-search")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def look(self) -> Look:
        """The sessions as they are now."""
        return Look(*await self._sessions.rows())

    def is_complete(self, look: Look, state: object) -> bool:
        """Whether an index in this state has what the look saw."""
        return state is not None and self._complete == (look.version, state)

    async def catch_up(
        self, look: Look, state: object, wait_seconds: float | None
    ) -> Indexing | None:
        """Wait until the index has what the look saw; how far it is when the time was too short.

        Args:
            look: what must be in it.
            state: of the index, as it was seen.
            wait_seconds: the work goes on after this time. None: no end.

        Raises:
            StorageError: the index cannot be made.
        """
        if self._complete is not None and self._complete[1] != state:
            self._complete = None
        with anyio.move_on_after(wait_seconds):
            while self._complete is None or self._complete[0] < look.version:
                update = self._running() or self._start(look)
                await asyncio.wait([update])
                update.result()
            return None
        return self.indexing

    def _running(self) -> asyncio.Task[None] | None:
        update = self._update
        if update is None or update.done() or update.get_loop() is not asyncio.get_running_loop():
            return None
        return update

    def _start(self, look: Look) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        self._update = outside_request(loop.create_task, self._follow(look), name="search index")
        self._update.add_done_callback(_look_at_error)
        return self._update

    async def _follow(self, look: Look) -> None:
        self.indexing = Indexing(0, len(look.rows))
        async with self._alone(look):
            for _ in range(_ATTEMPTS):
                try:
                    await self._enter_all(look)
                except Damaged:
                    continue
                return
        raise StorageError("The search index cannot be used: it breaks again and again")

    @asynccontextmanager
    async def _alone(self, look: Look) -> AsyncIterator[None]:
        """Exclude other processes; what they do meanwhile counts."""
        path = self._file.path
        if path is None:
            yield
            return
        lock = FileLock(path.with_name(f"{path.name}.lock"))
        while not await in_thread(_acquire, lock):
            done = len(await self.in_thread(self._known_or_none))
            self.indexing = Indexing(min(done, len(look.rows)), len(look.rows))
            await anyio.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _known_or_none(self) -> Mapping[str, str]:
        try:
            return self._file.known()
        except Damaged:
            return {}

    async def _enter_all(self, look: Look) -> None:
        changed, gone = await self.in_thread(partial(self._stale, look))
        if gone:
            await self.in_thread(partial(self._file.remove, gone))
        total = len(look.rows)
        self.indexing = Indexing(total - len(changed), total)
        place = 0
        while place < len(changed):
            batch, place = await self._read(changed, place)
            await self.in_thread(partial(self._enter, batch))
            self.indexing = Indexing(total - len(changed) + place, total)
        if gone or len(changed) > _TIDY_SESSIONS:  # what was deleted shall not stay in the log
            await self.in_thread(self._file.tidy)
        self._complete = (look.version, await self.in_thread(self._file.state))

    def _stale(self, look: Look) -> _Stale:
        self._file.prepare()
        known = self._file.known()
        rows = [row for row in look.rows.values() if not row.is_problem]
        changed = [row.key for row in rows if known.get(row.key[1]) != str(row.signature)]
        gone = known.keys() - {row.key[1] for row in rows}
        return _Stale([session_id for _, session_id in sorted(changed)], sorted(gone))

    async def _read(
        self, session_ids: list[str], place: int
    ) -> tuple[list[tuple[str, str, bytes]], int]:
        """Ids, signatures and contents of the sessions from this place on; the place behind."""
        batch: list[tuple[str, str, bytes]] = []
        size = 0
        for session_id in session_ids[place : place + _BATCH_SESSIONS]:
            place += 1
            try:
                data, signature = await self._sessions.storage.read(session_id)
            except (SessionNotFound, StorageError):
                continue  # the next look sees why
            batch.append((session_id, str(signature), data))
            size += len(data)
            if size >= _BATCH_BYTES:
                break
        return batch, place

    def _enter(self, batch: list[tuple[str, str, bytes]]) -> None:
        entries = []
        for session_id, signature, data in batch:
            yield_to_loop()
            entries.append(Indexed(session_id, signature, contents_of(data, session_id)))
        self._file.put(entries)

    async def aclose(self) -> None:
        """Stop an update, what it has entered stays; give back the file and the thread."""
        if (update := self._running()) is not None:
            update.cancel()
            await asyncio.wait([update])
        if self._thread is not None:
            await self.in_thread(self._file.close)
            self._thread.shutdown()
            self._thread = None


def _acquire(lock: FileLock) -> bool:
    try:
        make_folder(lock.path.parent, private=True)
        return lock.acquire()
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"The search index cannot be used: {reason}") from error


def _look_at_error(update: asyncio.Task[None]) -> None:
    """Who waits for it gets the error; nobody may wait any more."""
    if not update.cancelled():
        update.exception()
