"""Work in one of Django's databases, in threads that have a connection each."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import anyio
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mochi_server.core.aio import in_daemon_thread
from mochi_server.core.outages import OutageRetry

from .migrating import apply_migrations, unapplied_migrations

T = TypeVar("T")

MAX_CONNECTIONS: Final = 8

ANSWER_SECONDS = 10.0
"""Longest wait for an answer, with the wait for a connection."""

CANCELLED_SECONDS = 2.0
"""Longest wait for the answer to work that was cancelled."""

BROKEN: Final = (OperationalError, InterfaceError)
"""Errors after which a connection is replaced by a new one."""

_PAUSE: Final = 0.2
"""Seconds between attempts to break a connection that is only being made."""


class DatabaseThreads:
    """At most so many connections, which stay open; a broken one is replaced by a new one.

    The first work brings the tables up to date, also the first after a failure: the database may
    have been restored since.
    """

    def __init__(
        self,
        alias: str,
        *,
        migrate: bool,
        most: int = MAX_CONNECTIONS,
        name: str = "The database of the sessions",
    ) -> None:
        """Connect when something is run.

        Args:
            alias: The database, as Django's ``DATABASES`` names it.
            migrate: Whether to make and change the tables if that is needed.
            most: Number of threads and connections.
            name: What the database is called in messages.
        """
        self._alias = alias
        self._migrate = migrate
        self._most = most
        self._executor: ThreadPoolExecutor | None = None
        self._connections: dict[int, BaseDatabaseWrapper] = {}
        """By the id of their thread."""
        self._preparing = threading.Lock()
        self._is_prepared = False
        self._outage = OutageRetry(
            name,
            (DatabaseError, InterfaceError, ImproperlyConfigured, TimeoutError),
            transient=BROKEN,
        )

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work in a thread; it may be done twice if an answer is lost.

        Raises:
            StorageError: the database cannot be used, or has no tables for it.
        """
        return await self._outage.run(partial(self._attempt, work))

    async def _attempt(self, work: Callable[[], T]) -> T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._most, "mochi-database")
        used: list[BaseDatabaseWrapper] = []
        job = self._executor.submit(self._do, work, used)
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                return await asyncio.wrap_future(job)
        except TimeoutError as error:
            _give_up(job, used, after=0)
            raise TimeoutError(f"it has not answered for {ANSWER_SECONDS:g} seconds") from error
        except asyncio.CancelledError:
            _give_up(job, used, after=CANCELLED_SECONDS)
            raise

    def _do(self, work: Callable[[], T], used: list[BaseDatabaseWrapper]) -> T:
        connection = self._connection()
        used.append(connection)
        try:
            # Not within the lock: each connects by itself.
            _connect(connection, is_sure=self._is_prepared)
            self._prepare(connection)
            return work()
        except (DatabaseError, InterfaceError) as error:
            self._is_prepared = False
            if isinstance(error, BROKEN):
                with suppress(DatabaseError):
                    connection.close()
            raise
        finally:
            used.clear()

    def _connection(self) -> BaseDatabaseWrapper:
        """Return the connection of this thread, which ``aclose`` may close from another one."""
        thread = threading.get_ident()
        if thread not in self._connections:
            connection = connections[self._alias]
            connection.inc_thread_sharing()
            self._connections[thread] = connection
        return self._connections[thread]

    def _prepare(self, connection: BaseDatabaseWrapper) -> None:
        """Make sure once that the tables are those of this version."""
        with self._preparing:
            if self._is_prepared:
                return
            if self._migrate:
                apply_migrations(connection)
            elif missing := unapplied_migrations(connection):
                raise DatabaseError(f"its tables are not up to date: {', '.join(missing)}")
            self._is_prepared = True

    async def aclose(self) -> None:
        """Close the connections; the next use opens new ones."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await in_daemon_thread(self._close, executor)

    def _close(self, executor: ThreadPoolExecutor) -> None:
        executor.shutdown()
        while self._connections:
            _, connection = self._connections.popitem()
            with suppress(DatabaseError):
                connection.close()


def _connect(connection: BaseDatabaseWrapper, *, is_sure: bool) -> None:
    """Connect, unless it is connected; a process that stands still locks nothing for long.

    It is not sure to be connected after another connection has failed.
    """
    if connection.connection is not None:
        if is_sure or connection.is_usable():
            return
        connection.close()
    connection.ensure_connection()
    if connection.vendor == "postgresql":  # not among the options, which poolers refuse
        with connection.cursor() as cursor:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{ANSWER_SECONDS:g}s'")


def _give_up(job: Future[Any], used: list[BaseDatabaseWrapper], *, after: float) -> None:
    """Let the thread of the job get an error, if it has no answer after so many seconds.

    Else it would wait for as long as the database takes, and the end of the process for it.
    ``used`` has the connection while the job runs; one that is only being made has no socket yet.
    """

    def break_until_done() -> None:
        seconds = after
        while not wait([job], timeout=seconds).done:
            for connection in [*used]:
                _break(connection)
            seconds = _PAUSE

    if not job.done():
        threading.Thread(target=break_until_done, name="mochi-database-break", daemon=True).start()


def _break(connection: BaseDatabaseWrapper) -> None:
    get_descriptor = getattr(connection.connection, "fileno", None)
    with suppress(Exception):  # the connection is being closed just now
        if get_descriptor is not None:
            with socket.socket(fileno=os.dup(get_descriptor())) as copy:
                copy.shutdown(socket.SHUT_RDWR)
