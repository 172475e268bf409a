"""Search in all sessions: a query, the sessions that match it, and why."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import anyio
import orjson

from ...core.aio import in_thread, yield_to_loop
from ...core.logs import outside_request
from ...core.progress import Progress
from ...errors import InvalidRequest, JSONObject, SessionNotFound, StorageError
from .catalogue import SessionCatalogue
from .database import CatalogueDatabase, Refused, Unusable, has_full_text
from .document import SearchDocument, search_document
from .rows import (
    ALL,
    LARGEST,
    SessionFilter,
    foreign_cursor,
    read_cursor,
    version_text,
    write_cursor,
)
from .search_query import Query, parse
from .snippets import passage_of
from .tables import (
    Hit,
    count_sessions,
    count_without_text,
    find,
    put_text,
    read_problems,
    read_text,
    sessions_without_text,
)

PAGE = 20
MOST = 1000
"""Most sessions in a result without filter: the best ones."""

WAIT_SECONDS = 2.0
"""Longest wait for the index of texts; then the answer is made of what it has."""

_CURSOR = re.compile("search:([0-9]{1,9})")
_BATCH_SESSIONS = 64
_BATCH_BYTES = 500_000
"""Indexed in one step, less than a tenth of a second; other changes come in between."""

_TIDY_SESSIONS = 1000
_ATTEMPTS = 3
_TELL_SECONDS = 0.1


class Indexing(NamedTuple):
    """How far the index of texts is."""

    done: int
    """Sessions whose texts are in it as they are now."""
    total: int


@dataclass(slots=True)
class SearchResult:
    """The sessions that match, the best first, or a page of them."""

    sessions: list[JSONObject] = field(default_factory=list)
    """Entries of the list of sessions, each with ``score`` (larger is better), ``found_in`` and
    ``snippet``, a list of ``{"text", "match"}``."""
    problems: list[JSONObject] = field(default_factory=list)
    """As in the list: what cannot be read, so cannot be found."""
    next_cursor: str | None = None
    indexing: Indexing | None = None
    """Set when the index was not complete yet; None when every text was searched."""

    def as_json(self) -> JSONObject:
        """Return the answer over HTTP."""
        return {
            "sessions": [*self.sessions],
            "problems": [*self.problems],
            "next_cursor": self.next_cursor,
            "indexing": None if self.indexing is None else {**self.indexing._asdict()},
        }


class SessionSearch:
    """Full-text search over the sessions of a catalogue, whose file holds the index of texts.

    Texts are indexed at the next search, in the catalogue's writing thread, by one process at a
    time. Usable from one event loop after another.
    """

    def __init__(self, catalogue: SessionCatalogue) -> None:
        """Open nothing before the first search."""
        self._catalogue = catalogue
        self._indexer: asyncio.Task[None] | None = None

    async def search(
        self,
        text: str,
        *,
        limit: int = PAGE,
        cursor: str | None = None,
        session_filter: SessionFilter = ALL,
        wait_seconds: float | None = WAIT_SECONDS,
    ) -> SearchResult:
        """Return the sessions that have all the words.

        Any text is a query (docs/explanation/search.md).

        Args:
            text: words, ``"phrases"``, ``-not``, ``begin*``.
            limit: most sessions of a page.
            cursor: ``next_cursor`` of the page before.
            session_filter: which sessions are searched.
            wait_seconds: longest wait for an index that is being made; None for no end.

        Raises:
            InvalidRequest: the limit is below one, or the cursor is none of this search.
            StorageError: the folder cannot be listed, or the index cannot be made.
        """
        if limit < 1:
            raise InvalidRequest("The limit must be at least 1.", details={"limit": limit})
        query, start = parse(text), 0 if cursor is None else _start_of(cursor)
        answer = partial(_answer, query, session_filter, start, min(limit, LARGEST))
        for _ in range(_ATTEMPTS):
            await self._prepare()
            try:
                indexing = await self._catch_up(wait_seconds)
                result = await self._catalogue.read_once(answer)
            except Unusable as error:
                self._catalogue.lose(error)
                continue
            except Refused as error:
                raise _refusal(str(error)) from error
            result.indexing = indexing
            return result
        raise _refusal("it breaks again and again")

    async def update(self, progress: Progress | None = None) -> None:
        """Bring the index up to date, however long it takes, and tell how far it is.

        Raises:
            StorageError: the folder cannot be listed, or the index cannot be made.
        """
        await self._prepare()
        try:
            if not await self._catalogue.read_once(count_without_text):
                return
            work = asyncio.ensure_future(self._catch_up(None))
            try:
                while not work.done():
                    await asyncio.wait([work], timeout=_TELL_SECONDS)
                    if progress is not None:
                        progress.advance(*await self._catalogue.read_once(_progress))
            finally:
                work.cancel()
                await asyncio.wait([work])
            work.result()
        except Unusable as error:
            self._catalogue.lose(error)  # the search begins anew
        except Refused as error:
            raise _refusal(str(error)) from error

    async def _prepare(self) -> None:
        """Have a catalogue in a file that can hold texts, with the rows of now."""
        await self._catalogue.bring_up_to_date()
        if (refused := self._catalogue.refused) is not None:
            raise _refusal(str(refused)) from refused
        if not has_full_text():
            raise _refusal("this Python's SQLite was built without full-text search (FTS5)")

    async def _catch_up(self, wait_seconds: float | None) -> Indexing | None:
        """Wait until all texts are indexed; return how far that is if the time was too short."""
        if not await self._catalogue.read_once(count_without_text):
            await self._tidy()
            return None
        with anyio.move_on_after(wait_seconds):
            for _ in range(_ATTEMPTS):  # what changes again and again is left for the next search
                indexer = self._running() or self._start()
                await asyncio.wait([indexer])
                indexer.result()
                if not await self._catalogue.read_once(count_without_text):
                    break
            return None
        return await self._catalogue.read_once(_progress)

    async def _tidy(self) -> None:
        writer = self._catalogue.writer
        if writer.database.has_deleted:
            await writer.run(CatalogueDatabase.tidy)

    def _running(self) -> asyncio.Task[None] | None:
        task = self._indexer
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return None
        return task

    def _start(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        self._indexer = outside_request(loop.create_task, self._index(), name="search index")
        self._indexer.add_done_callback(_take_error)
        return self._indexer

    async def _index(self) -> None:
        """Index the texts that are missing, while no other process does."""
        catalogue = self._catalogue
        async with catalogue.exclusively():
            session_ids = await catalogue.read_once(sessions_without_text)
            start = 0
            while start < len(session_ids):
                texts, start = await self._read(session_ids, start)
                await catalogue.writer.run(partial(_put_texts, texts))
            if len(session_ids) > _TIDY_SESSIONS:
                await catalogue.writer.run(CatalogueDatabase.tidy)
        await self._tidy()

    async def _read(self, session_ids: list[str], start: int) -> tuple[list[_Text], int]:
        """Return the texts of the sessions from a place on, and the place behind them."""
        contents: list[tuple[str, tuple[bytes, tuple[int, ...]] | None]] = []
        size = 0
        for session_id in session_ids[start : start + _BATCH_SESSIONS]:
            start += 1
            try:
                content = await self._catalogue.storage.read(session_id)
            except (SessionNotFound, StorageError):  # the next check of all sessions sees why
                contents.append((session_id, None))
                continue
            contents.append((session_id, content))
            size += len(content[0])
            if size >= _BATCH_BYTES:
                break
        return await in_thread(_texts, contents), start

    async def aclose(self) -> None:
        """Stop indexing; what is indexed stays."""
        if (indexer := self._running()) is not None:
            indexer.cancel()
            await asyncio.wait([indexer])


class _Text(NamedTuple):
    """The texts of a session."""

    session_id: str
    version: str | None
    """Of the content that they are from; None when it could not be read."""
    document: SearchDocument | None


def _texts(contents: list[tuple[str, tuple[bytes, tuple[int, ...]] | None]]) -> list[_Text]:
    texts = []
    for session_id, content in contents:
        yield_to_loop()
        if content is None:
            texts.append(_Text(session_id, None, None))
        else:
            data, signature = content
            document = search_document(data, session_id)
            texts.append(_Text(session_id, version_text(signature), document))
    return texts


def _put_texts(texts: list[_Text], database: CatalogueDatabase) -> None:
    with database.transaction("IMMEDIATE") as connection:
        for session_id, version, document in texts:
            put_text(connection, session_id, version, document)


def _progress(connection: sqlite3.Connection) -> Indexing:
    total = count_sessions(connection)
    return Indexing(total - count_without_text(connection), total)


def _answer(
    query: Query,
    session_filter: SessionFilter,
    start: int,
    limit: int,
    connection: sqlite3.Connection,
) -> SearchResult:
    hits: list[Hit] = []
    has_more = False
    if query:
        most = MOST if session_filter == ALL else -1
        hits, has_more = find(
            connection, query, session_filter, most=most, start=start, limit=limit
        )
    problems = read_problems(connection, "\n").splitlines()
    return SearchResult(
        [_entry(connection, query, hit) for hit in hits],
        [orjson.loads(line) for line in problems],
        write_cursor(f"search:{start + limit}") if has_more else None,
    )


def _entry(connection: sqlite3.Connection, query: Query, hit: Hit) -> JSONObject:
    """Make a line of the answer: that of the list, and why the session matches."""
    yield_to_loop()
    passage = passage_of(read_text(connection, hit.number), query)
    return {
        **orjson.loads(hit.line),
        "score": hit.score,
        "found_in": passage.found_in,
        "snippet": [{**part._asdict()} for part in passage.parts],
    }


def _start_of(cursor: str) -> int:
    """Return the place at which the cursor's page begins.

    Raises:
        InvalidRequest: it is no cursor of a search.
    """
    if (match := _CURSOR.fullmatch(read_cursor(cursor))) is None:
        raise foreign_cursor()
    return int(match[1])


def _refusal(reason: str) -> StorageError:
    return StorageError(f"The search index cannot be used: {reason}")


def _take_error(task: asyncio.Task[None]) -> None:
    """Mark the error as seen: those who wait get it, and perhaps nobody waits."""
    if not task.cancelled():
        task.exception()
