"""The tables of the index, and what is asked of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from ...errors import StorageError
from .document import Contents

SCHEMA_VERSION = 1
"""A file of another one is made anew; counts in the code of ``letters`` and ``contents`` too."""

_APPLICATION = 0x6D6F6368  # "moch"

_WEIGHTS = "10.0, 8.0, 5.0, 2.0, 1.5, 0.3"
"""Of the columns, which are those of ``Contents``: a title says more than what a tool printed."""

_COLUMNS = ", ".join(Contents._fields)

SCHEMA = f"""
CREATE TABLE sessions (
  number INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, signature TEXT NOT NULL
);
CREATE VIRTUAL TABLE texts USING fts5 (
  {_COLUMNS}, tokenize="unicode61 remove_diacritics 2", prefix='2 3'
);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""

_NUMBER = "SELECT number FROM sessions WHERE session_id = ?"
BEST = f"""
SELECT session_id, score FROM (
  SELECT rowid, -bm25(texts, {_WEIGHTS}) AS score FROM texts WHERE texts MATCH ?
  ORDER BY score DESC LIMIT ?
) AS found JOIN sessions ON number = found.rowid
"""  # noqa: S608 - our own words
OTHERS = """
SELECT session_id, 0.0 AS score FROM sessions WHERE number IN
(SELECT rowid FROM texts_docsize EXCEPT SELECT rowid FROM texts WHERE texts MATCH ?) LIMIT ?
"""
IN_ONE_ROW = "SELECT group_concat(session_id || ' ' || round(score, 4), '\n') FROM ({})"
"""Each row costs a wait for the interpreter lock, which a look at the files wants all the time."""

CONTENTS = f"SELECT {_COLUMNS} FROM texts WHERE rowid = ({_NUMBER})"  # noqa: S608
_ENTER = f"INSERT INTO texts (rowid, {_COLUMNS}) VALUES (?{', ?' * len(Contents._fields)})"  # noqa: S608

_NO_FAULT_OF_THE_FILE = ("locked", "busy", "full", "unable to open", "readonly", "no such module")


class Damaged(Exception):
    """The file is none of ours, or is broken: ``prepare`` makes a new one."""


class Hit(NamedTuple):
    """A session that was found."""

    session_id: str
    score: float
    """Larger is better; comparable within one answer."""


class Indexed(NamedTuple):
    """What the index shall hold of a session; no contents when its file is no session."""

    session_id: str
    signature: str
    contents: Contents | None


def forget(connection: sqlite3.Connection, session_ids: Iterable[str]) -> None:
    """Take out these sessions, those of them that are there."""
    for session_id in session_ids:
        found = connection.execute(_NUMBER, (session_id,)).fetchall()
        connection.executemany("DELETE FROM texts WHERE rowid = ?", found)
        connection.executemany("DELETE FROM sessions WHERE number = ?", found)


def enter(connection: sqlite3.Connection, batch: Iterable[Indexed]) -> None:
    """Put in these sessions, which must not be there."""
    for session_id, signature, contents in batch:
        cursor = connection.execute(
            "INSERT INTO sessions (session_id, signature) VALUES (?, ?)", (session_id, signature)
        )
        if contents is not None:
            connection.execute(_ENTER, (cursor.lastrowid, *contents))


def check(connection: sqlite3.Connection) -> None:
    """See that the file is one of this version.

    Raises:
        Damaged: it is not.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise meaning(error) from error
    if (application, version) != (_APPLICATION, SCHEMA_VERSION):
        raise Damaged("it is of another version")


def meaning(error: sqlite3.Error) -> Exception:
    """Whether the file is broken, or only cannot be used now."""
    text = str(error)
    if isinstance(error, sqlite3.OperationalError) and any(
        word in text for word in _NO_FAULT_OF_THE_FILE
    ):
        return refusal(text)
    return Damaged(text)


def refusal(reason: str) -> StorageError:
    """The error for a person who searches."""
    if "no such module" in reason:
        reason = "this Python's SQLite was built without full-text search (FTS5)"
    return StorageError(f"The search index cannot be used: {reason}")
