"""Search in all sessions, and the index of their texts."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from functools import partial
from typing import Final, NamedTuple

import anyio

from ...core.aio import in_thread, yield_to_loop
from ...core.logs import outside_request
from ...core.progress import Progress
from ...errors import InvalidRequest, SessionNotFound, StorageError
from .answers import COLUMNS, Indexing, SearchResult, answer_to
from .catalogue import ATTEMPTS, SessionCatalogue
from .database import CatalogueDatabase, RebuildNeeded, TemporarilyUnavailable, has_full_text
from .listing import ALL, IN_ORDER, LARGEST, SessionFilter, foreign_cursor, read_cursor
from .rows import forget_text, number_of, version_text
from .search_query import parse
from .search_text import SearchDocument, search_document

PAGE = 20

WAIT_SECONDS = 2.0
"""Longest wait for the index of texts; then the answer is made of what it has."""

_CURSOR = re.compile("search:([0-9]{1,9})")
_BATCH_SESSIONS = 64
_BATCH_BYTES = 500_000
"""Indexed in one step, less than a tenth of a second; other changes come in between."""

_TIDY_SESSIONS = 1000
_TELL_SECONDS = 0.1
_WITHOUT_TEXT = "WHERE NOT is_problem AND text_version IS NOT version"
_PUT_TEXT = f"""
INSERT INTO texts (rowid, {COLUMNS}) VALUES (?{", ?" * len(SearchDocument._fields)})
"""


NO_FULL_TEXT: Final = (
    "The search index cannot be used: this Python's SQLite was built without full-text search "
    "(FTS5)"
)


class SessionSearch:
    """Full-text search over the sessions of a catalogue, whose file holds the index of texts.

    Texts are indexed at the next search, in the catalogue's writing thread, by one process at a
    time. Usable from one event loop after another.
    """

    def __init__(self, catalogue: SessionCatalogue) -> None:
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
        progress: Progress | None = None,
    ) -> SearchResult:
        """Return the sessions that have all the words.

        Args:
            text: any; ``"phrases"``, ``-not`` and ``begin*`` count (docs/explanation/search.md).
            limit: most sessions of a page.
            cursor: ``next_cursor`` of the page before.
            session_filter: which sessions are searched.
            wait_seconds: longest wait for an index that is being made; None for no end.
            progress: is told how far the index is.

        Raises:
            InvalidRequest: the limit is below one, or the cursor is none of this search.
            StorageError: the folder cannot be listed, or the index cannot be made.
        """
        if limit < 1:
            raise InvalidRequest("The limit must be at least 1.", details={"limit": limit})
        query, start = parse(text), 0 if cursor is None else _start_of(cursor)
        session_filter = session_filter.for_caller()
        answer = partial(answer_to, query, session_filter, start, min(limit, LARGEST))
        for _ in range(ATTEMPTS):
            await self._prepare()
            try:
                indexing = await self._catch_up(wait_seconds, progress, session_filter.owner)
                result = await self._catalogue.read_once(answer)
            except RebuildNeeded:
                self._catalogue.invalidate()
                continue
            except TemporarilyUnavailable as error:
                raise _unusable(error) from error
            result.indexing = indexing
            return result
        raise _unusable(TemporarilyUnavailable("it breaks again and again"))

    async def _prepare(self) -> None:
        """Have a catalogue in a file that can hold texts, with the rows of now."""
        await self._catalogue.bring_up_to_date()
        if (error := self._catalogue.unavailable) is not None:
            raise _unusable(error) from error
        if not has_full_text():
            raise StorageError(NO_FULL_TEXT)

    async def _catch_up(
        self, wait_seconds: float | None, progress: Progress | None, owner: str | None
    ) -> Indexing | None:
        """Wait until all texts are indexed; return how far that is if the time was too short.

        With an owner, that of the owner's sessions.
        """
        if not await self._catalogue.read_once(_count_without_text):
            await self._catalogue.writer.tidy()
            return None
        with anyio.move_on_after(wait_seconds) as waiting:
            await self._wait_for_index(progress)
        if waiting.cancelled_caught:
            return await self._catalogue.read_once(partial(_progress, owner=owner))
        return None

    async def _wait_for_index(self, progress: Progress | None) -> None:
        step = None if progress is None else _TELL_SECONDS
        for _ in range(ATTEMPTS):  # what changes again and again is left for the next search
            indexer = self._running() or self._start()
            while not indexer.done():
                await asyncio.wait([indexer], timeout=step)
                if progress is not None:
                    progress.advance(*await self._catalogue.read_once(_progress))
            indexer.result()
            if not await self._catalogue.read_once(_count_without_text):
                return

    def _running(self) -> asyncio.Task[None] | None:
        task = self._indexer
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return None
        return task

    def _start(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        self._indexer = outside_request(loop.create_task, self._index(), name="search index")
        # Those who wait get its error, and perhaps nobody waits.
        self._indexer.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._indexer

    async def _index(self) -> None:
        """Index the texts that are missing, while no other process does."""
        catalogue = self._catalogue
        async with catalogue.exclusively():
            session_ids = await catalogue.read_once(_sessions_without_text)
            start = 0
            while start < len(session_ids):
                texts, start = await self._read(session_ids, start)
                await catalogue.writer.run(partial(_put_texts, texts))
            if len(session_ids) > _TIDY_SESSIONS:
                await catalogue.writer.run(CatalogueDatabase.tidy)
        await catalogue.writer.tidy()

    async def _read(self, session_ids: list[str], start: int) -> tuple[list[_Text], int]:
        """Return the texts of the sessions from a place on, and the place behind them."""
        contents: list[tuple[str, str | None, bytes | None]] = []
        size = 0
        for session_id in session_ids[start : start + _BATCH_SESSIONS]:
            start += 1
            try:
                data, version = await self._catalogue.storage.read(session_id)
            except (SessionNotFound, StorageError):  # the next check of all sessions sees why
                contents.append((session_id, None, None))
                continue
            contents.append((session_id, version_text(version), data))
            size += len(data)
            if size >= _BATCH_BYTES:
                break
        return await in_thread(_texts_of, contents), start

    async def aclose(self) -> None:
        if (indexer := self._running()) is not None:
            indexer.cancel()
            await asyncio.wait([indexer])


# The index


class _Text(NamedTuple):
    """The texts of a session."""

    session_id: str
    version: str | None
    """Of the content that they are from; None when it could not be read."""
    document: SearchDocument | None


def _texts_of(contents: list[tuple[str, str | None, bytes | None]]) -> list[_Text]:
    texts = []
    for session_id, version, data in contents:
        yield_to_loop()
        document = None if data is None else search_document(data, session_id)
        texts.append(_Text(session_id, version, document))
    return texts


def _put_texts(texts: list[_Text], database: CatalogueDatabase) -> None:
    with database.transaction("IMMEDIATE") as connection:
        for text in texts:
            put_text(connection, *text)


def put_text(
    connection: sqlite3.Connection,
    session_id: str,
    version: str | None,
    document: SearchDocument | None,
) -> None:
    """Put in the texts of a session that has a row; no document if they cannot be read.

    Without a version, they count as those of the row's.
    """
    number = number_of(connection, session_id)
    if number is None:
        return
    forget_text(connection, number)
    if document is not None:
        connection.execute(_PUT_TEXT, (number, *document))
    statement = "UPDATE sessions SET text_version = coalesce(?, version) WHERE number = ?"
    connection.execute(statement, (version, number))


def _sessions_without_text(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the sessions whose texts are not current, the latest change first."""
    source = f"FROM sessions AS place {_WITHOUT_TEXT} ORDER BY {IN_ORDER} LIMIT -1"
    joining = f"SELECT group_concat(session_id, ' ') FROM (SELECT session_id {source})"
    (joined,) = connection.execute(joining).fetchone()
    return joined.split(" ") if joined else []


def _count_without_text(connection: sqlite3.Connection, owner: str | None = None) -> int:
    source = f"FROM sessions {_WITHOUT_TEXT} AND ? IN (owner, '')"
    (count,) = connection.execute(f"SELECT count(*) {source}", (owner or "",)).fetchone()
    return int(count)


def _progress(connection: sqlite3.Connection, *, owner: str | None = None) -> Indexing:
    counting = "SELECT count(*) FROM sessions WHERE ? IN (owner, '')"
    (total,) = connection.execute(counting, (owner or "",)).fetchone()
    return Indexing(total - _count_without_text(connection, owner), total)


# Answers


def _start_of(cursor: str) -> int:
    if (match := _CURSOR.fullmatch(read_cursor(cursor))) is None:
        raise foreign_cursor()
    return int(match[1])


def _unusable(error: TemporarilyUnavailable) -> StorageError:
    return StorageError.because(error, f"The search index cannot be used: {error}")
