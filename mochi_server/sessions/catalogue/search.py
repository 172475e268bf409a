"""Searching: a question, the sessions that answer it, and why."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson

from ...core.aio import yield_to_loop
from ...core.progress import Progress
from ...errors import InvalidRequest, JSONObject
from .. import MemoryStorage, SessionFilter, SessionManager
from .cursors import foreign_cursor, read_cursor, write_cursor
from .database import SearchFile
from .document import Contents
from .indexing import Indexer, Indexing, Look
from .query import Query, parse
from .rows import ALL, Key, Row
from .snippets import passage_of
from .tables import Damaged, Hit

PAGE = 20
MOST = 1000
"""Of more sessions than these nobody reads the list; the best ones are shown."""

INDEX = "search.sqlite3"
"""The name of the index in the state folder of the sessions that it is about."""

WAIT_SECONDS = 2.0
"""Longest wait for the index; then the answer is made of what it has."""


_CURSOR = re.compile("search:([0-9]{1,9})")


@dataclass(slots=True)
class SearchResult:
    """What was found, the best first, or a page of it."""

    sessions: list[JSONObject] = field(default_factory=list)
    """Entries of the list of sessions, each with ``score`` (larger is better), ``found_in`` and
    ``snippet``, a list of ``{"text", "match"}``."""
    problems: list[JSONObject] = field(default_factory=list)
    """As in the list: what cannot be read, so cannot be found."""
    next_cursor: str | None = None
    indexing: Indexing | None = None
    """Set when the index was not complete yet; None when everything was looked at."""

    def as_json(self) -> JSONObject:
        """The answer over HTTP."""
        return {
            "sessions": [*self.sessions],
            "problems": [*self.problems],
            "next_cursor": self.next_cursor,
            "indexing": None if self.indexing is None else {**self.indexing._asdict()},
        }


@dataclass(frozen=True, slots=True)
class _Page:
    """What is asked for."""

    query: Query
    wanted: SessionFilter
    start: int
    limit: int


class SessionSearch:
    """Full-text search over the sessions of a manager. Usable from one event loop after another.

    Work goes to a thread of its own. Several processes may share the file: one of them writes.
    """

    def __init__(self, sessions: SessionManager, path: Path | None) -> None:
        """Nothing is opened or made before the first search.

        Args:
            sessions: what is searched.
            path: the file of the index. None: in memory, as for sessions that are in memory.
        """
        in_memory = path is None or isinstance(sessions.storage, MemoryStorage)
        self._file = SearchFile(None if in_memory else path)
        self._indexer = Indexer(sessions, self._file)

    async def search(
        self,
        text: str,
        *,
        limit: int = PAGE,
        cursor: str | None = None,
        wanted: SessionFilter = ALL,
        wait_seconds: float | None = WAIT_SECONDS,
    ) -> SearchResult:
        """The sessions that have all the words, as they are stored now.

        Any text is a query (docs/explanation/search.md).

        Args:
            text: words, ``"phrases"``, ``-not``, ``begin*``.
            limit: most sessions of a page.
            cursor: ``next_cursor`` of the page before.
            wanted: which sessions are looked at.
            wait_seconds: longest wait for an index that is being made; None for no end.

        Raises:
            InvalidRequest: the limit is below one, or the cursor is none of ours.
            StorageError: the folder cannot be listed, or the index cannot be made.
        """
        if limit < 1:
            raise InvalidRequest("The limit must be at least 1.", details={"limit": limit})
        query, start = parse(text), 0 if cursor is None else place_of(cursor)
        find = partial(self._find, query, MOST if wanted == ALL else -1)
        look, hits, indexing = await self._found(find, wait_seconds)
        page = _Page(query, wanted, start, limit)
        return await self._indexer.in_thread(partial(self._result, page, look, hits, indexing))

    async def _found(
        self, find: Callable[[], tuple[list[Hit], object]], wait_seconds: float | None
    ) -> tuple[Look, list[Hit], Indexing | None]:
        """The index is asked while the files are looked at, and again if any has changed."""
        search = asyncio.ensure_future(self._indexer.in_thread(find))
        try:
            look = await self._indexer.look()
        finally:
            await asyncio.wait([search])
        hits, state = search.result()
        if self._indexer.is_complete(look, state):
            return look, hits, None
        indexing = await self._indexer.catch_up(look, state, wait_seconds)
        hits, _ = await self._indexer.in_thread(find)
        return look, hits, indexing

    def _find(self, query: Query, most: int) -> tuple[list[Hit], object]:
        """What the index has, and its state; nothing where it is broken."""
        try:
            hits = self._file.find(query, most) if query else []
        except Damaged:
            return [], None
        return hits, self._file.state()

    def _result(
        self, page: _Page, look: Look, hits: list[Hit], indexing: Indexing | None
    ) -> SearchResult:
        shown = _in_order(page.wanted, look, hits)
        stop = page.start + page.limit
        problems = sorted((row for row in look.rows.values() if row.is_problem), key=_key)
        return SearchResult(
            [self._entry(page.query, look, hit) for hit in shown[page.start : stop]],
            [orjson.loads(row.encoded) for row in problems],
            write_cursor(f"search:{stop}") if len(shown) > stop else None,
            indexing,
        )

    def _entry(self, query: Query, look: Look, hit: Hit) -> JSONObject:
        """A line of the list, and why it was found."""
        yield_to_loop()
        try:
            contents = self._file.contents(hit.session_id)
        except Damaged:
            contents = Contents()
        passage = passage_of(contents, query)
        return {
            **orjson.loads(look.rows[hit.session_id].encoded),
            "score": hit.score,
            "found_in": passage.found_in,
            "snippet": [{**part._asdict()} for part in passage.parts],
        }

    async def update(self, progress: Progress | None = None) -> None:
        """Bring the index up to date, however long it takes, and tell how far it is.

        Raises:
            StorageError: the folder cannot be listed, or the index cannot be made.
        """
        look = await self._indexer.look()
        state = await self._indexer.in_thread(self._file.state)
        if self._indexer.is_complete(look, state):
            return
        work = asyncio.ensure_future(self._indexer.catch_up(look, state, None))
        try:
            await self._tell(work, progress)
        finally:
            work.cancel()
            await asyncio.wait([work])
        work.result()

    async def _tell(self, work: asyncio.Future[Indexing | None], progress: Progress | None) -> None:
        told = Indexing(0, 0)
        while not work.done():
            await asyncio.wait([work], timeout=0.1)
            if progress is not None and told != self._indexer.indexing:
                told = self._indexer.indexing
                progress.advance(*told)

    async def aclose(self) -> None:
        """Stop indexing and give back the file; what is indexed stays."""
        await self._indexer.aclose()


def _in_order(wanted: SessionFilter, look: Look, hits: list[Hit]) -> list[Hit]:
    """Those that are wanted and still there; of equals, the one changed last first."""
    rows = look.rows
    there = [
        hit
        for hit in hits
        if (row := rows.get(hit.session_id)) and not row.is_problem and wanted.matches(row)
    ]
    return sorted(there, key=lambda hit: (-hit.score, rows[hit.session_id].key))


def _key(row: Row) -> Key:
    return row.key


def place_of(cursor: str) -> int:
    """The place at which the cursor's page begins.

    Raises:
        InvalidRequest: it is none of ours.
    """
    if (found := _CURSOR.fullmatch(read_cursor(cursor))) is None:
        raise foreign_cursor()
    return int(found[1])
