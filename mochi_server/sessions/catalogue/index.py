"""The list of sessions in memory, so that a request does not parse every file again."""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ...core.aio import in_thread, yield_to_loop
from ...errors import MochiError, SessionNotFound
from ..storage.base import Entry, SessionStorage
from .pages import Page
from .rows import (
    ALL,
    Key,
    Row,
    SessionFilter,
    row_of_error,
    row_of_file,
    row_of_prefix,
    row_of_problem,
)

PREFIX_BYTES = 16_384
"""Read of each new file; enough for the metadata and the first user message of nearly all."""

_AT_ONCE = 500

_BREATH = 64
"""Rows made before other threads may run, about a millisecond."""


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Table:
    """The rows by id, and their order."""

    rows: dict[str, Row] = field(default_factory=dict)
    sessions: list[Key] = field(default_factory=list)
    problems: list[Key] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Table:
        """A table of these rows."""
        table = cls({row.key[1]: row for row in rows})
        for row in table.rows.values():
            table.order_of(row).append(row.key)
        table.sessions.sort()
        table.problems.sort()
        return table

    def order_of(self, row: Row) -> list[Key]:
        """The list in which the row has its place."""
        return self.problems if row.is_problem else self.sessions

    def put(self, session_id: str, row: Row | None) -> None:
        """Replace the row of a session; None takes it away."""
        if old := self.rows.pop(session_id, None):
            keys = self.order_of(old)
            del keys[bisect_left(keys, old.key)]
        if row is not None:
            self.rows[session_id] = row
            insort(self.order_of(row), row.key)

    def page(self, behind: Key | None, limit: int | None, wanted: SessionFilter = ALL) -> Page:
        """A stretch of the sessions, and all problems."""
        start = 0 if behind is None else bisect_right(self.sessions, behind)
        # Which are wanted, a thread sees; of all, only the page and the one behind it are needed.
        end = start + limit + 1 if limit is not None and wanted == ALL else None
        return Page(dict(self.rows), self.sessions[start:end], list(self.problems), limit, wanted)


class SessionIndex:
    """A row for each stored session, in the order of the list.

    Valid while the storage's generation stands still and the last look at every entry is younger
    than ``sweep_seconds``: a text editor that writes in place moves no generation.
    """

    def __init__(
        self,
        storage: SessionStorage,
        *,
        sweep_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._sweep_seconds = sweep_seconds
        self._clock = clock
        self._table = Table()
        self._generation: object | None = None
        self._swept_at: float | None = None
        self._meanwhile: dict[str, Row | None] | None = None
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self.version = 0
        """Grows with each change of the table."""

    async def table(self, *, look: bool = False) -> Table:
        """The rows as they are now; read them before the next ``await``.

        With ``look`` also what was changed in place a moment ago is seen: every entry is looked at.
        """
        asked = self._clock()
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            now, generation = self._clock(), await self._storage.generation()
            looked = self._swept_at is not None and self._swept_at >= asked
            if not self._is_valid(now, generation) or (look and not looked):
                await self._sweep(now, generation)
        return self._table

    def _is_valid(self, now: float, generation: object | None) -> bool:
        return (
            self._swept_at is not None
            and generation is not None
            and generation == self._generation
            and now - self._swept_at < self._sweep_seconds
        )

    @asynccontextmanager
    async def own_change(self) -> AsyncIterator[Callable[[str, Row | None], None]]:
        """Around a write or a removal of ours; hands out the function that enters its row.

        The folder's change is then known, unless somebody else's fell together with it.
        """
        if self._swept_at is None and self._meanwhile is None:
            yield self._ignore
            return
        before = await self._storage.generation()
        yield self._enter
        after = await self._storage.generation()
        if before is not None and before == self._generation:
            self._generation = after

    def _ignore(self, session_id: str, row: Row | None) -> None:
        """Nobody has asked for a list yet."""

    def _enter(self, session_id: str, row: Row | None) -> None:
        self._table.put(session_id, row)
        self.version += 1
        if self._meanwhile is not None:
            self._meanwhile[session_id] = row

    async def _sweep(self, now: float, generation: object | None) -> None:
        """Look at every entry, read what is new. Own changes of the same time are kept."""
        self._meanwhile = {}
        try:
            known = dict(self._table.rows)
            entries = await self._storage.entries()
            rows, unread = await in_thread(_known_rows, entries, known)
            same = len(rows) == len(entries) == len(known) and not unread
            for start in range(0, len(unread), _AT_ONCE):
                rows += await self._read(unread[start : start + _AT_ONCE])
            if not same:
                _report(rows, known)
                table = await in_thread(Table.of, rows)
                for session_id, row in self._meanwhile.items():
                    table.put(session_id, row)
                self._table = table
                self.version += 1
            self._generation, self._swept_at = generation, now
        finally:
            self._meanwhile = None

    async def _read(self, entries: list[Entry]) -> list[Row]:
        strange = [each for each in entries if each.problem is not None]
        entries = [each for each in entries if each.problem is None]
        heads = await self._storage.read_heads([each.session_id for each in entries], PREFIX_BYTES)
        rows, long = await in_thread(_rows_of_prefixes, entries, heads)
        rows += [row_of_problem(each, each.problem or "") for each in strange]
        for entry in long:
            rows += await self._read_whole(entry)
        return rows

    async def _read_whole(self, entry: Entry) -> list[Row]:
        """The row; none when the session went away meanwhile."""
        try:
            data, signature = await self._storage.read(entry.session_id)
        except SessionNotFound:
            return []
        except MochiError as error:
            return [row_of_error(entry, error)]
        return [await in_thread(row_of_file, entry._replace(signature=signature), data)]


def _report(rows: list[Row], known: dict[str, Row]) -> None:
    """Log each problem once."""
    for row in rows:
        session_id = row.key[1]
        old = known.get(session_id)
        if row.is_problem and (old is None or old.encoded != row.encoded):
            logger.warning("Session file that cannot be read: %s", row.encoded.decode())


def _known_rows(entries: list[Entry], known: dict[str, Row]) -> tuple[list[Row], list[Entry]]:
    """The rows that still hold, and the entries that must be read."""
    rows: list[Row] = []
    unread: list[Entry] = []
    for entry in entries:
        if (row := known.get(entry.session_id)) and row.signature == entry.signature:
            rows.append(row)
        else:
            unread.append(entry)
    return rows, unread


def _rows_of_prefixes(
    entries: list[Entry], heads: list[bytes | MochiError]
) -> tuple[list[Row], list[Entry]]:
    """The rows, and the entries of which the prefix says too little."""
    rows: list[Row] = []
    long: list[Entry] = []
    for number, (entry, head) in enumerate(zip(entries, heads, strict=True), start=1):
        if number % _BREATH == 0:
            yield_to_loop()
        if isinstance(head, SessionNotFound):
            continue
        if isinstance(head, MochiError):
            row: Row | None = row_of_error(entry, head)
        else:
            row = row_of_prefix(entry, head, PREFIX_BYTES)
        if row is None:
            long.append(entry)
        else:
            rows.append(row)
    return rows, long
