"""The rows of the catalogue: how they are made of sessions, stored, compared and removed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from ...errors import JSONObject, MochiError
from ..codec import NotASession, disassemble, encode, is_user, open_prefix
from ..messages import preview_of
from ..session import ChatSession
from ..storage.base import Entry
from ..types import SessionMetadata
from ..versions import NotMetadata, microseconds, read_metadata

COMPARED_AT_ONCE = 333
"""Entries in one statement, which has three variables for each; old SQLite allows 999."""

# What reads many rows returns one: after each row, Python waits for the interpreter lock.
_COMPARE = """
WITH stored (place, session_id, version) AS (VALUES {})
SELECT
  group_concat(CASE WHEN sessions.version IS NOT stored.version
    THEN stored.place || ' ' || coalesce(sessions.version, '-') END, '\n')
FROM stored LEFT JOIN sessions USING (session_id)
"""


class Row(NamedTuple):
    """A session in the catalogue: a line of the list, or a problem."""

    session_id: str
    version: str
    """Of the content that the row was made of; empty when it must be read again."""
    changed_at: int
    """Microseconds since 1970, by which the list is sorted."""
    line: bytes
    """The line of the list as JSON."""
    is_problem: bool = False
    tags: tuple[str, ...] = ()
    archived: bool = False
    owner: str | None = None
    """To whom it belongs."""


_COLUMNS = tuple(name for name in Row._fields if name != "tags")
_PUT = f"""
INSERT INTO sessions ({", ".join(_COLUMNS)})
VALUES ({", ".join(f":{name}" for name in _COLUMNS)})
ON CONFLICT (session_id) DO UPDATE
SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])}
"""
_PUT_IF_SEEN = f"{_PUT} WHERE sessions.version = :seen_version"


# Made of sessions


def version_text(version: tuple[int, ...]) -> str:
    """Return a storage's version as the catalogue keeps it; empty for none."""
    return ".".join(map(str, version))


def row_of_session(session: ChatSession, version: tuple[int, ...]) -> Row:
    changed_at = microseconds(session.metadata.updated_at, otherwise=0)
    return _row(session.metadata, version, changed_at, session.preview)


def row_of_problem(entry: Entry, reason: str) -> Row:
    line = encode({"session_id": entry.session_id, "reason": reason})
    version = version_text(entry.version)
    return Row(entry.session_id, version, entry.modified, line, is_problem=True)


def row_of_error(entry: Entry, error: MochiError) -> Row:
    """Make the row of what the storage could not read, which is tried again at the next check."""
    return row_of_problem(entry._replace(version=()), error.message)


def row_of_prefix(entry: Entry, prefix: bytes, size: int) -> Row | None:
    """Make the row from the first ``size`` bytes of a file; None when more of it is needed."""
    if len(prefix) < size:
        return row_of_file(entry, prefix)
    opening = open_prefix(prefix)
    return None if opening is None else _row_of(entry, opening.head, opening.first_user)


def row_of_file(entry: Entry, data: bytes) -> Row:
    """Make the row from the whole file, of any layout."""
    try:
        document = disassemble(data)
    except NotASession as error:
        return row_of_problem(entry, str(error))
    messages = (orjson.loads(line) for line in document.lines)
    first = next((message for message in messages if is_user(message)), None)
    head = orjson.loads(document.head)
    return _row_of(entry, {**head, "message_count": len(document.lines)}, first)


def _row_of(entry: Entry, head: JSONObject, first_user: JSONObject | None) -> Row:
    try:
        metadata = read_metadata(head, entry.session_id)
    except NotMetadata as error:
        return row_of_problem(entry, str(error))
    changed_at = microseconds(metadata.updated_at, otherwise=entry.modified)
    return _row(metadata, entry.version, changed_at, preview_of(first_user))


def _row(metadata: SessionMetadata, version: tuple[int, ...], changed_at: int, preview: str) -> Row:
    summary, labels = metadata.summary, metadata.labels
    shown = {
        "session_id": metadata.session_id,
        "model": metadata.model,
        "created_at": metadata.created_at,
        "updated_at": metadata.updated_at,
        "message_count": metadata.message_count,
        "summary": None if summary is None else summary.model_dump(mode="json"),
        "preview": preview,
        **labels,
    }
    return Row(
        metadata.session_id,
        version_text(version),
        changed_at,
        encode(shown),
        tags=tuple(labels["tags"]),
        archived=labels["archived"],
        owner=metadata.owner,
    )


# Stored


def storable(text: str) -> str:
    """Return the text as SQLite takes it: without the half characters of odd file names."""
    return text.encode("utf-8", "backslashreplace").decode()


def set_state(connection: sqlite3.Connection, name: str, value: str | int | None) -> None:
    connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def get_state(connection: sqlite3.Connection, name: str) -> str | int | None:
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
        values += (place, storable(entry.session_id), version_text(entry.version))
    statement = _COMPARE.format(", ".join(["(?, ?, ?)"] * len(entries)))
    (lines,) = connection.execute(statement, values).fetchone()
    differences = []
    for line in (lines or "").splitlines():
        place_text, known_version = line.split(" ")
        differences.append(Difference(entries[int(place_text)], known_version))
    return differences


def put_row(connection: sqlite3.Connection, row: Row, seen_version: str | None = None) -> None:
    """Add or replace a session's row; with ``seen_version``, only a row of this version."""
    session_id = storable(row.session_id)
    owner = None if row.owner is None else storable(row.owner)
    values = {**row._asdict(), "session_id": session_id, "owner": owner}
    if seen_version is None:
        connection.execute(_PUT, values)
    elif not connection.execute(_PUT_IF_SEEN, {**values, "seen_version": seen_version}).rowcount:
        return
    number = number_of(connection, session_id)
    connection.execute("DELETE FROM tags WHERE number = ?", (number,))
    tags = [(storable(tag), row.changed_at, session_id, number) for tag in {*row.tags}]
    connection.executemany("INSERT INTO tags VALUES (?, ?, ?, ?)", tags)
    if row.is_problem:
        forget_text(connection, number)


def remove_row(connection: sqlite3.Connection, session_id: str) -> None:
    """Take out a session and its texts, if it is there."""
    number = number_of(connection, storable(session_id))
    forget_text(connection, number)
    connection.execute("DELETE FROM tags WHERE number = ?", (number,))
    connection.execute("DELETE FROM sessions WHERE number = ?", (number,))


def number_of(connection: sqlite3.Connection, session_id: str) -> int | None:
    statement = "SELECT number FROM sessions WHERE session_id = ?"
    row = connection.execute(statement, (session_id,)).fetchone()
    return None if row is None else row[0]


def session_ids(connection: sqlite3.Connection, largest_number: int) -> list[str]:
    """Return the ids of the rows with these numbers, as ``storable`` has them."""
    statement = "SELECT group_concat(session_id, '/') FROM sessions WHERE number <= ?"
    (joined,) = connection.execute(statement, (largest_number,)).fetchone()
    return joined.split("/") if joined is not None else []  # no file's name has a slash


def ids_of_owner(connection: sqlite3.Connection, owner: str | None) -> set[str]:
    """Return the ids of the sessions of an owner, as ``storable`` has them; None: of nobody."""
    statement = "SELECT group_concat(session_id, '/') FROM sessions WHERE owner IS ?"
    values = (None if owner is None else storable(owner),)
    (joined,) = connection.execute(statement, values).fetchone()
    return set(joined.split("/")) if joined is not None else set()


def forget_text(connection: sqlite3.Connection, number: int | None) -> None:
    """Remove what is indexed of a row's session."""
    statement = "SELECT text_version FROM sessions WHERE number = ?"
    if connection.execute(statement, (number,)).fetchone() not in {None, (None,)}:
        connection.execute("DELETE FROM texts WHERE rowid = ?", (number,))
        connection.execute("UPDATE sessions SET text_version = NULL WHERE number = ?", (number,))
