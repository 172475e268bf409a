"""A check of all sessions, which updates the rows of the catalogue that differ."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ...core.aio import in_thread, yield_to_loop
from ...errors import MochiError, SessionNotFound
from ..storage.base import Entry, SessionStorage
from .database import CatalogueDatabase, DatabaseThread, RebuildNeeded
from .rows import (
    COMPARED_AT_ONCE,
    Difference,
    Row,
    compare,
    get_state,
    put_row,
    remove_row,
    row_of_error,
    row_of_file,
    row_of_prefix,
    row_of_problem,
    session_ids,
    set_state,
    storable,
)

PREFIX_BYTES = 16_384
"""Read of each new file; enough for the metadata and the first user message of nearly all."""

_YIELD_EVERY = 64
"""Rows made before other threads may run, about a millisecond."""

logger = logging.getLogger(__name__)


class _Beginning(NamedTuple):
    """What the catalogue has when a check begins."""

    identity: int
    """Of the file: when another takes its place meanwhile, the check counts for nothing."""
    largest_number: int
    """Of a row; those that others enter meanwhile have larger ones."""
    state: tuple[object, object]
    """Whether it is complete, and of which generation."""


class Refresh:
    """A check of all sessions. Rows that are entered by others meanwhile stay as they are."""

    def __init__(
        self, storage: SessionStorage, reader: DatabaseThread, writer: DatabaseThread
    ) -> None:
        self._storage = storage
        self._reader = reader
        self._writer = writer
        self.own_changes: set[str] = set()
        """Ids of the sessions that this process has changed since the check began."""

    async def run(self, generation: object | None) -> None:
        """Compare every session with its row, and update the rows that differ."""
        beginning = await self._writer.run(_begin)
        seen: set[str] = set()
        entries = await self._storage.entries()
        for start in range(0, len(entries), COMPARED_AT_ONCE):
            part = entries[start : start + COMPARED_AT_ONCE]
            differences = await self._reader.run(partial(_compare, part, seen))
            if differences:
                await self._update(beginning, differences)
        await self._end(beginning, seen, generation)

    async def _update(self, beginning: _Beginning, differences: list[Difference]) -> None:
        known_versions = {each.entry.session_id: each.known_version for each in differences}
        rows = await self._read([each.entry for each in differences])
        for row in rows:
            if row.is_problem and row.version != known_versions[row.session_id]:
                logger.warning("Session file that cannot be read: %s", row.line.decode())

        def update(database: CatalogueDatabase) -> None:
            with database.transaction("IMMEDIATE") as connection:
                _check_identity(database, beginning)
                for row in rows:
                    if row.session_id not in self.own_changes:
                        put_row(connection, row, seen_version=known_versions[row.session_id])

        await self._writer.run(update)

    async def _read(self, entries: Sequence[Entry]) -> list[Row]:
        """Make the rows of sessions; none of those that went away meanwhile."""
        rows = [row_of_problem(entry, entry.problem) for entry in entries if entry.problem]
        entries = [entry for entry in entries if not entry.problem]
        heads = await self._storage.read_heads([each.session_id for each in entries], PREFIX_BYTES)
        made, long = await in_thread(_rows_of_prefixes, entries, heads)
        rows += made
        for entry in long:
            rows += await self._read_whole(entry)
        return rows

    async def _read_whole(self, entry: Entry) -> list[Row]:
        try:
            data, version = await self._storage.read(entry.session_id)
        except SessionNotFound:
            return []
        except MochiError as error:
            return [row_of_error(entry, error)]
        return [await in_thread(row_of_file, entry._replace(version=version), data)]

    async def _end(self, beginning: _Beginning, seen: set[str], generation: object | None) -> None:
        gone = await self._reader.run(partial(_find_gone, beginning, seen))
        gone -= {storable(session_id) for session_id in self.own_changes}
        state = (1, None if generation is None else repr(generation))
        if not gone and beginning.state == state:
            return

        def end(database: CatalogueDatabase) -> None:
            with database.transaction("IMMEDIATE") as connection:
                _check_identity(database, beginning)
                for session_id in gone:
                    remove_row(connection, session_id)
                    database.has_deleted = True
                set_state(connection, "complete", state[0])
                set_state(connection, "generation", state[1])

        await self._writer.run(end)


def _begin(database: CatalogueDatabase) -> _Beginning:
    with database.transaction() as connection:
        (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM sessions").fetchone()
        state = (get_state(connection, "complete"), get_state(connection, "generation"))
        return _Beginning(database.identity, number, state)


def _check_identity(database: CatalogueDatabase, beginning: _Beginning) -> None:
    if database.identity != beginning.identity:
        raise RebuildNeeded("it was replaced")


def _compare(
    entries: Sequence[Entry], seen: set[str], database: CatalogueDatabase
) -> list[Difference]:
    seen.update(storable(entry.session_id) for entry in entries)
    with database.transaction() as connection:
        return compare(connection, entries)


def _find_gone(beginning: _Beginning, seen: set[str], database: CatalogueDatabase) -> set[str]:
    with database.transaction() as connection:
        return set(session_ids(connection, beginning.largest_number)) - seen


def _rows_of_prefixes(
    entries: Sequence[Entry], heads: Sequence[bytes | MochiError]
) -> tuple[list[Row], list[Entry]]:
    """Make the rows, and return the entries of which the prefix says too little."""
    rows: list[Row] = []
    long: list[Entry] = []
    for number, (entry, head) in enumerate(zip(entries, heads, strict=True), start=1):
        if number % _YIELD_EVERY == 0:
            yield_to_loop()
        if isinstance(head, SessionNotFound):
            continue
        if isinstance(head, MochiError):
            rows.append(row_of_error(entry, head))
        elif (row := row_of_prefix(entry, head, PREFIX_BYTES)) is not None:
            rows.append(row)
        else:
            long.append(entry)
    return rows, long
