"""What processes want of each other's runs: stop this one, and somebody here reads that one.

Both are rows of the state; signals say that there are others now.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager, suppress
from typing import Final

import anyio

from ...core.aio import BackgroundTasks
from ...errors import StorageError
from ...state import Signals, State, Statements, StateRow, Subscription, Version

RUNS: Final = "runs"
"""Topic of the signals."""

STOPS: Final = "stops"
"""Kind of the rows of requests to stop, by the ids of runs and requests, with a space between."""
READERS: Final = "readers"
"""Kind of the rows of readers, by the ids of runs and readers, likewise."""

LEASE_SECONDS = 10.0
"""Seconds without a renewal after which a reader's process counts as dead."""

ABANDONED_SECONDS = 60.0
"""Age from which a row was left by a crash."""

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

Leave = Callable[[], Awaitable[None]]


class RunRequests:
    """The requests that this process makes, and those that it looks for.

    While the state cannot be reached nothing is stopped by others, and their readers count for as
    long as their leases could last. How old a row is each process finds out by itself, from when it
    has first seen it, since clocks of machines differ.
    """

    def __init__(self, state: State, signals: Signals) -> None:
        self._state = state
        self._signals = signals
        self._readers: set[str] = set()
        """Rows of the readers here."""
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}
        """The rows of all processes by kind and id: number of the last change, and since when it
        has been that."""
        self._version: Version | None = None
        self._tasks = BackgroundTasks()
        self._renewer: asyncio.Task[None] | None = None

    def subscribe(self) -> AbstractContextManager[Subscription]:
        """Receive a signal when there may be other requests, or a run has ended as requested."""
        return self._signals.subscribe(RUNS)

    def send(self) -> None:
        """Tell other processes to look."""
        self._signals.send(RUNS)

    async def request_stop(self, run_id: str) -> Leave:
        """Ask whoever executes the run to stop it, until what is returned is called.

        What cannot be the id of a run is passed over.

        Raises:
            StorageError: the state cannot be written.
        """
        rows = []
        if _RUN_ID.fullmatch(run_id) is not None:
            row_id = _new_row_id(run_id)
            await self._state.write(lambda state: state.add_row(STOPS, row_id, b""))
            self.send()
            rows.append((STOPS, row_id))

        async def withdraw() -> None:
            await self._remove(rows)

        return withdraw

    async def stop_requests(self) -> Collection[str]:
        """Return the runs that somebody wants to stop."""
        await self._look()
        return {row_id.partition(" ")[0] for kind, row_id in self._seen if kind == STOPS}

    async def add_reader(self, run_id: str) -> Leave:
        """Say that this process reads a run of another one, until what is returned is called."""
        row_id = _new_row_id(run_id)
        self._readers.add(row_id)
        await self._renew()
        if self._renewer is None or self._renewer.done():
            self._renewer = self._tasks.spawn(self._keep_renewing(), name="readers of runs")

        async def leave() -> None:
            if row_id in self._readers:
                self._readers.discard(row_id)
                await self._remove([(READERS, row_id)])
                self.send()

        return leave

    async def has_readers(self, run_id: str) -> bool:
        """Return whether another process reads a run of this one."""
        await self._look()
        begin, after = f"{run_id} ", anyio.current_time() - LEASE_SECONDS
        return any(
            kind == READERS and row_id.startswith(begin) and since > after
            for (kind, row_id), (_, since) in self._seen.items()
        )

    async def prune(self) -> None:
        """Remove what crashes have left."""
        await self._look()
        before = anyio.current_time() - ABANDONED_SECONDS
        old = [row for row, (_, since) in self._seen.items() if since < before]
        if old:
            await self._remove(old)

    async def aclose(self) -> None:
        """Renew nothing any more."""
        self._tasks.cancel()
        await self._tasks.drain(LEASE_SECONDS)

    async def _look(self) -> None:
        with suppress(StorageError):  # what was seen before counts
            if await self._state.version() != self._version:
                self._version, rows = await self._state.read(_all)
                now = anyio.current_time()
                before, self._seen = self._seen, {}
                for kind, row in rows:
                    number, since = before.get((kind, row.id), (row.number, now))
                    self._seen[kind, row.id] = row.number, since if number == row.number else now

    async def _keep_renewing(self) -> None:
        while self._readers:
            await anyio.sleep(LEASE_SECONDS / 3)
            await self._renew()

    async def _renew(self) -> None:
        readers = [*self._readers]

        def renew(state: Statements) -> None:
            for row_id in readers:
                row = state.row(READERS, row_id)
                if row is None:
                    state.add_row(READERS, row_id, b"")
                else:
                    state.replace_row(READERS, row, b"")

        with suppress(StorageError):  # tried again when readers are renewed
            await self._state.write(renew)

    async def _remove(self, rows: Collection[tuple[str, str]]) -> None:
        def remove(state: Statements) -> None:
            for kind, row_id in rows:
                state.remove_row(kind, row_id)

        with suppress(StorageError):  # it is too old soon
            await self._state.write(remove)


def _new_row_id(run_id: str) -> str:
    """Return the id of a new row: several processes may want the same of a run."""
    return f"{run_id} {secrets.token_hex(8)}"


def _all(state: Statements) -> tuple[Version, list[tuple[str, StateRow]]]:
    rows = [(kind, row) for kind in (STOPS, READERS) for row in state.rows_since(kind, 0)]
    return state.version(), rows
