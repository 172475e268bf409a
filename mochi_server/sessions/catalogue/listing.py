"""Lists of sessions: their order, filters, pages and cursors."""

from __future__ import annotations

import base64
import sqlite3
from dataclasses import dataclass, field, replace

import orjson

from ...core.aio import yield_to_loop
from ...core.caller import current_caller
from ...errors import InvalidRequest, JSONObject
from .rows import storable

LARGEST = 2**63 - 2
"""About the largest integer of SQLite."""

MAX_KEPT = 8_000_000
"""Bytes of a whole list that is kept; about 20,000 sessions."""

IN_ORDER = "place.changed_at DESC, place.session_id"
"""The order of all lists; ``place`` is the alias of ``sessions`` or ``tags`` in a statement."""

_BEHIND = " AND place.changed_at <= ? AND (place.changed_at < ? OR place.session_id > ?)"
_ALL = "FROM sessions AS place WHERE NOT is_problem"
_TAGGED = """
FROM tags AS place CROSS JOIN sessions ON sessions.number = place.number
WHERE tag = ? AND NOT is_problem
"""
_HAS_TAG = " AND EXISTS (SELECT 1 FROM tags WHERE tags.number = place.number AND tag = ?)"
_TAGS = """
SELECT json_group_array(json_object('tag', tag, 'session_count', session_count)) FROM (
  SELECT tag, count(*) AS session_count FROM tags {}
  GROUP BY tag ORDER BY session_count DESC, tag
)
"""
_OF_SESSIONS = "WHERE number IN (SELECT place.number {})"
_YIELD_EVERY = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions a list shows."""

    archived: bool | None = None
    """Only archived sessions, or only the others; None: both."""
    tags: tuple[str, ...] = ()
    """A session must have all of these."""
    owner: str | None = None
    """Only sessions that belong to this one, and no problems, which belong to nobody; None: all."""

    def for_caller(self) -> SessionFilter:
        """Return the filter without the sessions that the caller does not see."""
        owner = current_caller().owner
        return self if owner is None else replace(self, owner=owner)

    def conditions(self, *, first_tag: int = 0) -> tuple[str, list[str | int]]:
        """Return the conditions for a statement, and their values."""
        conditions = ""
        values: list[str | int] = []
        if self.archived is not None:
            conditions += " AND archived = ?"
            values.append(self.archived)
        if self.owner is not None:
            conditions += " AND owner = ?"
            values.append(storable(self.owner))
        for tag in self.tags[first_tag:]:
            conditions += _HAS_TAG
            values.append(storable(tag))
        return conditions, values

    def source(self) -> tuple[str, list[str | int]]:
        """Return the FROM and WHERE of a statement that has ``IN_ORDER``, and their values."""
        conditions, values = self.conditions(first_tag=1)
        if not self.tags:
            return _ALL + conditions, values
        return _TAGGED + conditions, [storable(self.tags[0]), *values]


ALL = SessionFilter()


@dataclass(slots=True)
class SessionPage:
    """The list of sessions, or a page of it."""

    entries: list[JSONObject] = field(default_factory=list)
    """``session_id, model, created_at, updated_at, message_count, summary, preview, title, tags,
    pinned, archived``, the one changed last first."""
    problems: list[JSONObject] = field(default_factory=list)
    """``{"session_id", "reason"}`` of files that cannot be read."""
    next_cursor: str | None = None
    """Where the next page begins; None on the last one."""


class ListQuery:
    """A list of the sessions that a filter selects, the one changed last first; all, or a page."""

    def __init__(
        self, limit: int | None, cursor: str | None, session_filter: SessionFilter
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidRequest("The limit must be at least 1.", details={"limit": limit})
        self._limit = None if limit is None else min(limit, LARGEST)
        self._after = None if cursor is None else _position_of(cursor)
        self._filter = session_filter

    def page(self, connection: sqlite3.Connection) -> SessionPage:
        sessions, next_cursor = self._read(connection, "\n")
        return SessionPage(_objects(sessions), self._problems(connection), next_cursor)

    def json(self, connection: sqlite3.Connection) -> bytes:
        """Return the page as ``GET /sessions`` answers it; ``next_cursor`` only in pages."""
        sessions, next_cursor = self._read(connection, ",")
        problems = orjson.dumps(self._problems(connection))
        parts = [b'{"sessions":[', sessions, b'],"problems":', problems]
        if self._limit is not None or self._after is not None:
            parts += [b',"next_cursor":', orjson.dumps(next_cursor)]
        return b"".join([*parts, b"}"])

    def _problems(self, connection: sqlite3.Connection) -> list[JSONObject]:
        return [] if self._filter.owner is not None else read_problems(connection)

    def _read(self, connection: sqlite3.Connection, separator: str) -> tuple[bytes, str | None]:
        """Return the lines of the page, joined, and the cursor of the next one."""
        source, values = self._filter.source()
        if self._after is not None:
            source += _BEHIND
            changed_at, session_id = self._after
            values += [changed_at, changed_at, session_id]
        source += f" ORDER BY {IN_ORDER} LIMIT ?"
        next_cursor = None
        if self._limit is not None:
            statement = f"SELECT place.changed_at, place.session_id {source} OFFSET ?"
            # The last session of this page, and the one behind it if there is any.
            last = connection.execute(statement, (*values, 2, self._limit - 1)).fetchall()
            next_cursor = _cursor_after(*last[0]) if len(last) > 1 else None
        return _lines(connection, source, separator, *values, self._limit or -1), next_cursor


class WholeList:
    """The whole list as JSON, kept until the database changes, if it is not very large."""

    def __init__(self) -> None:
        self._kept: tuple[object, bytes] = (None, b"")

    def json(self, connection: sqlite3.Connection) -> bytes:
        (others,) = connection.execute("PRAGMA data_version").fetchone()
        state = (connection, others, connection.total_changes)
        kept_state, json = self._kept
        if kept_state != state:
            json = ListQuery(None, None, ALL).json(connection)
            self._kept = (state, json) if len(json) <= MAX_KEPT else (None, b"")
        return json


def read_tags(connection: sqlite3.Connection, session_filter: SessionFilter) -> bytes:
    """Return the tags of the sessions that a filter selects, as the JSON of ``GET /tags``.

    The most frequent one comes first.
    """
    source, values = session_filter.source()
    # Of all sessions, which need not be looked at, 200,000 tags are counted in 40 ms.
    of_sessions = "" if session_filter == ALL else _OF_SESSIONS.format(source)
    (tags,) = connection.execute(_TAGS.format(of_sessions), values).fetchone()
    return b'{"tags":%b}' % tags.encode()


def read_problems(connection: sqlite3.Connection) -> list[JSONObject]:
    source = f"FROM sessions AS place WHERE is_problem ORDER BY {IN_ORDER} LIMIT ?"
    return _objects(_lines(connection, source, "\n", -1))


def _lines(
    connection: sqlite3.Connection, source: str, separator: str, *values: str | int
) -> bytes:
    """Return the lines in the order of the source, which needs a LIMIT to keep it.

    A line that is damaged is an error of SQLite.
    """
    checked = "json(CAST(line AS TEXT))"
    joining = f"SELECT CAST(group_concat({checked}, ?) AS BLOB) FROM (SELECT line {source})"
    (lines,) = connection.execute(joining, (separator, *values)).fetchone()
    return lines or b""


def _objects(lines: bytes) -> list[JSONObject]:
    objects: list[JSONObject] = []
    for number, line in enumerate(lines.splitlines(), start=1):
        objects.append(orjson.loads(line))
        if number % _YIELD_EVERY == 0:
            yield_to_loop()
    return objects


# Cursors: positions in a list as opaque texts for clients


def write_cursor(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the place that was written; the caller checks that it is one of its own list.

    Raises:
        InvalidRequest: it is no cursor.
    """
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError as error:
        raise foreign_cursor() from error


def foreign_cursor() -> InvalidRequest:
    """Return the error for a cursor of another list, or for no cursor at all."""
    return InvalidRequest("The cursor is not one of this list.")


def _cursor_after(changed_at: int, session_id: str) -> str:
    """Return the cursor of the page behind this session; its number grows along the list."""
    return write_cursor(f"{-changed_at}:{session_id}")


def _position_of(cursor: str) -> tuple[int, str]:
    """Return time and id of the session behind which the cursor's page begins."""
    number, _, session_id = read_cursor(cursor).partition(":")
    try:
        return max(-LARGEST, min(-int(number), LARGEST)), session_id
    except ValueError as error:
        raise foreign_cursor() from error
