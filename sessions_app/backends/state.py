"""The state of processes in PostgreSQL, which those of several machines share."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import django
from django.apps import apps
from django.db import connections
from django.db.transaction import atomic

from mochi_project import use_own_settings
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import StorageError
from mochi_server.state import State, Statements
from mochi_server.state.statements import Cursor, Values

if not apps.ready:  # a program that uses the library without its face
    use_own_settings()
    django.setup(set_prefix=False)

from .connections import DatabaseThreads

T = TypeVar("T")

CONNECTIONS: Final = 4

LEASE_SECONDS: Final = 10.0

_DIALECT: Final = (("?", "%s"), (" BLOB", " BYTEA"), (" WITHOUT ROWID", ""))
"""What the library's statements say differently."""

_ONE_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_HOLDERS: Final = """
CREATE TABLE IF NOT EXISTS state_holders (id TEXT PRIMARY KEY, until TIMESTAMPTZ NOT NULL)
"""
_RENEW: Final = """
UPDATE state_holders SET until = clock_timestamp() + ? * interval '1 millisecond' WHERE id = ?
"""
_HOLD: Final = """
INSERT INTO state_holders VALUES (?, clock_timestamp() + ? * interval '1 millisecond')
"""


class LeasedStatements(Statements):
    """What can be done within a transaction, where holders have leases by the database's clock."""

    def __init__(self, alias: str, lease_seconds: float | None = LEASE_SECONDS) -> None:
        super().__init__(partial(_execute, alias), self._lives)
        self._milliseconds = int((lease_seconds or 0) * 1000)

    def create(self) -> None:
        super().create()
        self._execute(_HOLDERS)

    def _lives(self, holder: str) -> bool:
        found = self._execute(
            "SELECT id FROM state_holders WHERE id = ? AND until > clock_timestamp()", (holder,)
        )
        return found.fetchone() is not None

    def renew(self, holder: str) -> bool:
        if self._execute(_RENEW, (self._milliseconds, holder)).rowcount == 1:
            return True
        self._execute(_HOLD, (holder, self._milliseconds))
        return False

    def fence(self, holder: str) -> bool:
        # Who renews at this very moment waits for this, or this for him.
        self._execute(
            "DELETE FROM state_holders WHERE id = ? AND until <= clock_timestamp()", (holder,)
        )
        left = self._execute("SELECT id FROM state_holders WHERE id = ?", (holder,))
        return left.fetchone() is None


class DatabaseState(State):
    """Rows and lines in four tables of one of Django's databases, which must be PostgreSQL."""

    look_seconds = 0.1

    def __init__(
        self, *, alias: str = "default", migrate: bool = True, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        """Connect when it is used.

        Args:
            alias: The database, as Django's ``DATABASES`` names it.
            migrate: Whether to make and change the tables if that is needed.
            lease_seconds: Time after which what a process held that has died is free.
        """
        name = "The database of confirmations and runs"
        self._threads = DatabaseThreads(alias, migrate=migrate, most=CONNECTIONS, name=name)
        self._alias = alias
        self.lease_seconds = lease_seconds
        self._holder = ""

    async def read(self, work: Callable[[Statements], T], *, is_small: bool = False) -> T:  # noqa: ARG002 - all waits
        return await self._threads.run(partial(self._transaction, work, is_snapshot=True))

    def write_at_once(self, work: Callable[[Statements], T]) -> None:  # noqa: ARG002 - all waits
        return None

    async def write(self, work: Callable[[Statements], T]) -> T:
        return await run_to_completion(self._threads.run(partial(self._transaction, work)))

    def _transaction(self, work: Callable[[Statements], T], *, is_snapshot: bool = False) -> T:
        with atomic(using=self._alias):
            if is_snapshot:
                _execute(self._alias, _ONE_SNAPSHOT)
            return work(LeasedStatements(self._alias, self.lease_seconds))

    def hold(self) -> str:
        self._holder = self._holder or secrets.token_hex(8)
        return self._holder

    async def release(self) -> None:
        holder, self._holder = self._holder, ""
        if holder:
            with suppress(StorageError):  # the lease is over soon
                await self._remove_holders("id = ?", holder)

    async def prune(self) -> None:
        await self._remove_holders("until < now() - interval '1 hour'")

    async def _remove_holders(self, condition: str, *values: str) -> None:
        statement = f"DELETE FROM state_holders WHERE {condition}"  # noqa: S608 - ours
        await self._threads.run(partial(_execute, self._alias, statement, values))

    async def aclose(self) -> None:
        await self._threads.aclose()


def _execute(alias: str, statement: str, values: Values = ()) -> Cursor:
    """Execute a statement of the library in one of Django's databases."""
    cursor = connections[alias].cursor()
    for theirs, ours in _DIALECT:
        statement = statement.replace(theirs, ours)
    cursor.execute(statement, values or None)
    return cursor
