"""What is put into the tables of the catalogue, and what is read from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..storage.base import Entry
from .document import SearchDocument
from .rows import Position, Row, SessionFilter, version_text
from .search_query import Query

COMPARED_AT_ONCE = 333
"""Entries in one statement, which has three variables for each; old SQLite allows 999."""

_COLUMNS = ", ".join(SearchDocument._fields)
_WEIGHTS = "10.0, 8.0, 5.0, 2.0, 1.5, 0.3"
"""Of the columns of ``SearchDocument``: a title says more than what a tool printed."""

# What reads many rows returns one: after each row, Python waits for the interpreter lock.
_COMPARE = """
WITH stored (place, session_id, version) AS (VALUES {})
SELECT
  group_concat(CASE WHEN sessions.version IS NOT stored.version
    THEN stored.place || ' ' || coalesce(sessions.version, '-') END, '\n')
FROM stored LEFT JOIN sessions USING (session_id)
"""
_PUT = """
INSERT INTO sessions (session_id, version, position, line, is_problem, archived)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET
  version = excluded.version, position = excluded.position, line = excluded.line,
  is_problem = excluded.is_problem, archived = excluded.archived
"""
_PUT_IF_SEEN = f"{_PUT} WHERE sessions.version = ?"
_ALL = "FROM sessions AS place WHERE NOT is_problem"
_TAGGED = """
FROM tags AS place CROSS JOIN sessions ON sessions.number = place.number
WHERE tag = ? AND NOT is_problem
"""
_HAS_TAG = " AND EXISTS (SELECT 1 FROM tags WHERE tags.number = place.number AND tag = ?)"
_IN_ORDER = "ORDER BY place.position, place.session_id"

_BEST = f"""
SELECT rowid, -bm25(texts, {_WEIGHTS}) AS score FROM texts WHERE texts MATCH ?
ORDER BY score DESC LIMIT ?
"""
_OTHERS = """
SELECT rowid, 0.0 AS score FROM
(SELECT rowid FROM texts_docsize EXCEPT SELECT rowid FROM texts WHERE texts MATCH ?) LIMIT ?
"""
_MATCHING = """
FROM (SELECT rowid, round(score, 4) AS rounded FROM ({})) AS matching
JOIN sessions AS place ON place.number = matching.rowid WHERE NOT is_problem
"""
_BEST_IN_ORDER = "ORDER BY rounded DESC, place.position, place.session_id LIMIT ? OFFSET ?"
_WITHOUT_TEXT = "WHERE NOT is_problem AND text_version IS NOT version"
_PUT_TEXT = f"""
INSERT INTO texts (rowid, {_COLUMNS}) VALUES (?{", ?" * len(SearchDocument._fields)})
"""


def storable(text: str) -> str:
    """Return the text as SQLite takes it: without the half characters of odd file names."""
    return text.encode("utf-8", "backslashreplace").decode()


# The rows


def set_state(connection: sqlite3.Connection, name: str, value: str | int | None) -> None:
    """Keep a value under a name."""
    connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def get_state(connection: sqlite3.Connection, name: str) -> str | int | None:
    """Return what was kept under a name, None when nothing was."""
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


class Difference(NamedTuple):
    """A session that the catalogue does not have as the storage has it."""

    entry: Entry
    known_version: str
    """The version that the catalogue has; ``-`` when it has none."""


def compare(connection: sqlite3.Connection, entries: Sequence[Entry]) -> list[Difference]:
    """Return those of the entries that differ from their rows, or have none."""
    values: list[object] = []
    for place, entry in enumerate(entries):
        values += (place, storable(entry.session_id), version_text(entry.signature))
    statement = _COMPARE.format(", ".join(["(?, ?, ?)"] * len(entries)))
    (lines,) = connection.execute(statement, values).fetchone()
    differences = []
    for line in (lines or "").splitlines():
        place_text, known_version = line.split(" ")
        differences.append(Difference(entries[int(place_text)], known_version))
    return differences


def put_row(connection: sqlite3.Connection, row: Row, seen_version: str | None = None) -> None:
    """Put in a session's row, in the place of the one that may be there.

    Args:
        connection: in a transaction.
        row: of the session.
        seen_version: leave the present row alone unless it is still of this version.
    """
    session_id = storable(row.session_id)
    values = (session_id, row.version, row.position, row.line, row.is_problem, row.archived)
    if seen_version is None:
        connection.execute(_PUT, values)
    elif not connection.execute(_PUT_IF_SEEN, (*values, seen_version)).rowcount:
        return
    number = _number_of(connection, session_id)
    connection.execute("DELETE FROM tags WHERE number = ?", (number,))
    tags = [(storable(tag), row.position, session_id, number) for tag in {*row.tags}]
    connection.executemany("INSERT INTO tags VALUES (?, ?, ?, ?)", tags)
    if row.is_problem:
        _forget_text(connection, number)
    _count_revision(connection)


def remove_row(connection: sqlite3.Connection, session_id: str) -> bool:
    """Take out a session and its texts; return whether it was there."""
    number = _number_of(connection, storable(session_id))
    if number is None:
        return False
    _forget_text(connection, number)
    connection.execute("DELETE FROM tags WHERE number = ?", (number,))
    connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
    _count_revision(connection)
    return True


def _number_of(connection: sqlite3.Connection, session_id: str) -> int | None:
    statement = "SELECT number FROM sessions WHERE session_id = ?"
    row = connection.execute(statement, (session_id,)).fetchone()
    return None if row is None else row[0]


def _count_revision(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'revision'")


def count_sessions(connection: sqlite3.Connection) -> int:
    """Return how many rows there are, problems included."""
    (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    return int(count)


def session_ids(connection: sqlite3.Connection, largest_number: int) -> list[str]:
    """Return the ids of the rows with these numbers, as ``storable`` has them."""
    statement = "SELECT group_concat(session_id, '/') FROM sessions WHERE number <= ?"
    (joined,) = connection.execute(statement, (largest_number,)).fetchone()
    return joined.split("/") if joined is not None else []  # no file's name has a slash


# Lists


class Page(NamedTuple):
    """A part of the list, its lines joined."""

    sessions: bytes
    problems: bytes
    next_position: Position | None
    """The last of these sessions, if there are more behind it."""


def read_page(
    connection: sqlite3.Connection,
    separator: str,
    after: Position | None,
    limit: int | None,
    session_filter: SessionFilter,
) -> Page:
    """Return the sessions that the filter selects behind a position, and all problems."""
    values: list[str | int] = []
    source, tags = _ALL, session_filter.tags
    if tags:
        source, tags, values = _TAGGED, tags[1:], [storable(tags[0])]
    source = _filtered(source, values, session_filter, tags)
    if after is not None:
        source += " AND (place.position, place.session_id) > (?, ?)"
        values += after
    next_position: Position | None = None
    if limit is not None:
        statement = f"SELECT place.position, place.session_id {source} {_IN_ORDER} LIMIT 2 OFFSET ?"
        last = connection.execute(statement, (*values, limit - 1)).fetchall()
        next_position = last[0] if len(last) > 1 else None
    statement = f"SELECT line {source} {_IN_ORDER} LIMIT ?"
    sessions = _joined(connection, statement, separator, *values, limit or -1)
    return Page(sessions, read_problems(connection, separator), next_position)


def _filtered(
    source: str, values: list[str | int], session_filter: SessionFilter, tags: Iterable[str]
) -> str:
    """Add the conditions of a filter to a statement, and their values to its own."""
    if session_filter.archived is not None:
        source += " AND archived = ?"
        values.append(session_filter.archived)
    for tag in tags:
        source += _HAS_TAG
        values.append(storable(tag))
    return source


def read_problems(connection: sqlite3.Connection, separator: str) -> bytes:
    """Return the lines of all problems, joined."""
    statement = f"SELECT line FROM sessions AS place WHERE is_problem {_IN_ORDER} LIMIT ?"
    return _joined(connection, statement, separator, -1)


def _joined(
    connection: sqlite3.Connection, statement: str, separator: str, *values: str | int
) -> bytes:
    """Return the lines in the order of the statement, which needs a LIMIT to keep it."""
    joining = f"SELECT CAST(group_concat(line, ?) AS BLOB) FROM ({statement})"
    (lines,) = connection.execute(joining, (separator, *values)).fetchone()
    return lines or b""


# Texts


class Hit(NamedTuple):
    """A session that a query matches."""

    number: int
    """Of its row."""
    score: float
    """Larger is better; comparable within one answer."""
    line: bytes


def find(
    connection: sqlite3.Connection,
    query: Query,
    session_filter: SessionFilter,
    *,
    most: int,
    start: int,
    limit: int,
) -> tuple[list[Hit], bool]:
    """Return a page of the matching sessions, the best first, and whether there are more.

    Of equals, the one changed last comes first.

    Args:
        connection: in a transaction.
        query: which is not empty.
        session_filter: which sessions are shown.
        most: how many of the best sessions are looked at; -1 for all.
        start: how many to leave out.
        limit: most sessions of the page.
    """
    values: list[str | int] = [query.match, most]
    source = _MATCHING.format(_BEST if query.required else _OTHERS)
    source = _filtered(source, values, session_filter, session_filter.tags)
    page = f"SELECT number, rounded, line {source} {_BEST_IN_ORDER}"
    hits = [Hit(*each) for each in connection.execute(page, (*values, limit + 1, start))]
    return hits[:limit], len(hits) > limit


def read_text(connection: sqlite3.Connection, number: int) -> SearchDocument:
    """Return the texts of a session; empty when there are none."""
    statement = f"SELECT {_COLUMNS} FROM texts WHERE rowid = ?"
    row = connection.execute(statement, (number,)).fetchone()
    return SearchDocument() if row is None else SearchDocument(*row)


def sessions_without_text(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the sessions whose texts are not those of their version.

    The session changed last comes first, for that one is looked for most often.
    """
    statement = f"SELECT session_id FROM sessions AS place {_WITHOUT_TEXT} {_IN_ORDER} LIMIT -1"
    joining = f"SELECT group_concat(session_id, ' ') FROM ({statement})"
    (joined,) = connection.execute(joining).fetchone()
    return joined.split(" ") if joined else []


def count_without_text(connection: sqlite3.Connection) -> int:
    """Return how many sessions have texts that are not those of their version."""
    (count,) = connection.execute(f"SELECT count(*) FROM sessions {_WITHOUT_TEXT}").fetchone()
    return int(count)


def put_text(
    connection: sqlite3.Connection,
    session_id: str,
    version: str | None,
    document: SearchDocument | None,
) -> None:
    """Put in the texts of a session that has a row, in the place of those that were there.

    Args:
        connection: in a transaction.
        session_id: whose texts they are.
        version: of the content that they are from; None stands for that of the row.
        document: the texts; None when they cannot be read.
    """
    number = _number_of(connection, session_id)
    if number is None:
        return
    _forget_text(connection, number)
    if document is not None:
        connection.execute(_PUT_TEXT, (number, *document))
    statement = "UPDATE sessions SET text_version = coalesce(?, version) WHERE number = ?"
    connection.execute(statement, (version, number))


def _forget_text(connection: sqlite3.Connection, number: int | None) -> None:
    statement = "SELECT text_version FROM sessions WHERE number = ?"
    if connection.execute(statement, (number,)).fetchone() != (None,):
        connection.execute("DELETE FROM texts WHERE rowid = ?", (number,))
        connection.execute("UPDATE sessions SET text_version = NULL WHERE number = ?", (number,))
