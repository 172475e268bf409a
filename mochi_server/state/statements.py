"""Rows and lines, as statements within one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

SCHEMA = """
CREATE TABLE IF NOT EXISTS state_version (identity TEXT NOT NULL, number BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS state_rows (
  kind TEXT NOT NULL, id TEXT NOT NULL, number BIGINT NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS state_rows_by_number ON state_rows (kind, number, id);
CREATE TABLE IF NOT EXISTS state_lines (
  log TEXT NOT NULL, place BIGINT NOT NULL, id TEXT NOT NULL, line BLOB NOT NULL,
  PRIMARY KEY (log, place), UNIQUE (log, id)
);
CREATE TABLE IF NOT EXISTS state_parts (
  log TEXT NOT NULL, place BIGINT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (log, place)
) WITHOUT ROWID
"""


LAST = 2**62
"""A place behind all others."""


class Version(NamedTuple):
    """Says that something has changed, by any process, when it is another one."""

    identity: str
    """Differs between a state and the one that takes its place when it is lost."""
    number: int
    """Number of the last change."""


class StateRow(NamedTuple):
    """A value with a name."""

    id: str
    number: int
    """Number of its last change."""
    value: bytes


class Cursor(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...  # noqa: ANN401 - a row
    def __iter__(self) -> Iterator[Any]: ...


Values = tuple[str | int | bytes | None, ...]


class Execute(Protocol):
    """Executes a statement in the transaction; ``?`` stands for each of the values."""

    def __call__(self, statement: str, values: Values = (), /) -> Cursor: ...


class Statements:
    """What can be done within a transaction; texts are UTF-8 without NUL."""

    def __init__(self, execute: Execute, lives: Callable[[str], bool]) -> None:
        """Begin with nothing.

        Args:
            execute: Executes a statement.
            lives: Whether the process lives that holds what has this name.
        """
        self._execute = execute
        self.lives = lives

    def create(self) -> None:
        """Make the tables that are not there."""
        for statement in SCHEMA.split(";"):
            self._execute(statement)
        self._execute(
            "INSERT INTO state_version SELECT ?, 0 WHERE NOT EXISTS (SELECT * FROM state_version)",
            (secrets.token_hex(8),),
        )

    def version(self) -> Version:
        row = self._execute("SELECT identity, number FROM state_version").fetchone()
        return Version(*row)

    # Rows

    def row(self, kind: str, row_id: str) -> StateRow | None:
        found = self._execute(
            "SELECT id, number, value FROM state_rows WHERE kind = ? AND id = ?", (kind, row_id)
        ).fetchone()
        return None if found is None else _row(found)

    def row_ids(self, kind: str) -> set[str]:
        rows = self._execute("SELECT id FROM state_rows WHERE kind = ?", (kind,))
        return {row_id for (row_id,) in rows}

    def rows_since(self, kind: str, number: int) -> list[StateRow]:
        """Return the rows that have changed after a number, in the order of their changes."""
        rows = self._execute(
            "SELECT id, number, value FROM state_rows "
            "WHERE kind = ? AND number > ? ORDER BY number",
            (kind, number),
        )
        return [_row(each) for each in rows]

    def add_row(self, kind: str, row_id: str, value: bytes) -> bool:
        """Store a new row; return False if there is one with this id, which stays."""
        added = self._execute(
            "INSERT INTO state_rows VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (kind, row_id, self._next(), value),
        )
        return added.rowcount == 1

    def replace_row(self, kind: str, row: StateRow, value: bytes) -> bool:
        """Store another value; return False if the row is gone or has changed since."""
        replaced = self._execute(
            "UPDATE state_rows SET number = ?, value = ? WHERE kind = ? AND id = ? AND number = ?",
            (self._next(), value, kind, row.id, row.number),
        )
        return replaced.rowcount == 1

    def remove_row(self, kind: str, row_id: str) -> None:
        self._next()
        self._execute("DELETE FROM state_rows WHERE kind = ? AND id = ?", (kind, row_id))

    def _next(self) -> int:
        """Count a change: where transactions run side by side, one waits here for the other."""
        self._execute("UPDATE state_version SET number = number + 1")
        return self.version().number

    def count_rows(self, kind: str) -> int:
        counted = self._execute("SELECT count(*) FROM state_rows WHERE kind = ?", (kind,))
        return int(counted.fetchone()[0])

    # Holders

    def renew(self, holder: str) -> bool:  # noqa: ARG002 - for leases
        """Renew the lease of a holder; return False if another process may have taken it for dead.

        It has a new lease then.
        """
        return True  # a lock needs no renewal

    def fence(self, holder: str) -> bool:
        """Return whether a holder is dead; should it live yet, ``renew`` says so."""
        return not self.lives(holder)

    # Lines

    def append_line(self, log: str, line_id: str, line: bytes, *, keep_bytes: int) -> None:
        """Add a line to a log, unless it has one with this id; keep the log's last bytes."""
        self._next()  # of two at once, one waits here, and comes behind the other
        # The place of a line is where it ends, in bytes.
        self._execute(
            "INSERT INTO state_lines SELECT ?, coalesce(max(place), 0) + ?, ?, ? FROM state_lines "
            "WHERE log = ? ON CONFLICT DO NOTHING",
            (log, len(line), line_id, line, log),
        )
        self._execute(
            "DELETE FROM state_lines WHERE log = ? AND place <= "
            "(SELECT max(place) FROM state_lines WHERE log = ?) - ?",
            (log, log, keep_bytes),
        )

    def line(self, log: str, line_id: str) -> bytes | None:
        found = self._execute(
            "SELECT line FROM state_lines WHERE log = ? AND id = ?", (log, line_id)
        ).fetchone()
        return None if found is None else bytes(found[0])

    def last_lines(self, log: str, *, limit: int, before: str | None = None) -> list[bytes]:
        """Return lines, the latest first: those before the line with an id, which must be there."""
        rows = self._execute(
            "SELECT line FROM state_lines WHERE log = ? AND (? IS NULL OR place < "
            "(SELECT place FROM state_lines WHERE log = ? AND id = ?)) ORDER BY place DESC LIMIT ?",
            (log, before, log, before, limit),
        )
        return [bytes(line) for (line,) in rows]

    # Parts

    def put_part(self, log: str, place: int, data: bytes) -> None:
        """Add a part to a log that one process writes, at the next place; the version stays."""
        self._execute(
            "INSERT INTO state_parts VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (log, place, data)
        )

    def parts_after(self, log: str, place: int, until: int | None) -> list[tuple[int, bytes]]:
        """Return the parts behind a place, up to another one, each with its place."""
        rows = self._execute(
            "SELECT place, data FROM state_parts WHERE log = ? AND place > ? AND place <= ? "
            "ORDER BY place",
            (log, place, LAST if until is None else until),
        )
        return [(found, bytes(data)) for found, data in rows]

    def last_place(self, log: str) -> int:
        """Return the place of the last part, 0 without one."""
        last = self._execute("SELECT max(place) FROM state_parts WHERE log = ?", (log,))
        return int(last.fetchone()[0] or 0)

    def remove_parts(self, log: str, until: int | None = None) -> None:
        """Remove the parts up to a place, or all."""
        self._execute(
            "DELETE FROM state_parts WHERE log = ? AND place <= ?",
            (log, LAST if until is None else until),
        )


def _row(found: tuple[str, int, Any]) -> StateRow:
    row_id, number, value = found
    return StateRow(row_id, number, bytes(value))
