"""A base of storages whose locks and claims are leases, which end some time after their process.

A process renews its claims. If it has lost one, it cannot write the session any more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Literal

import anyio

from ...core.aio import BackgroundTasks, KeyedLocks
from ...core.outages import OUTAGE_SECONDS
from ...errors import SessionBusy, SessionExists, StorageError, StorageUnavailable
from .base import SessionChanged, SessionLock, SessionStorage, check_session_id

logger = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
"""Time after which others may take what a process holds of which the storage does not hear."""

AGAIN_SECONDS = 0.2
"""Pause before claims that could not be renewed are tried again."""

LOCK_SECONDS = 10.0
"""Longest time of an edit; a later write of it is refused if the session has changed."""

LOST = "another process has taken it over, or the storage has forgotten the claim"

Lease = Literal["lock", "claim"]

Expected = int | Literal["any", "new"]
"""What a write expects to be there: a version, anything or nothing."""


class ClaimLapsed(Exception):
    """The last claim was not given back, but its lease is over: its process has died or is slow."""


class LeasedStorage(SessionStorage):
    """Sessions of one collection, at a server that several processes use."""

    changes_in_place = False

    def __init__(self, name: str, lease_seconds: float) -> None:
        self.name = name
        """The collection."""
        self._lease_seconds = lease_seconds
        self._waiting = KeyedLocks()
        self._claims: dict[str, str] = {}
        """Tokens of the claims of this process."""
        self._tasks = BackgroundTasks()
        self._renewer: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    # Subclasses must implement these too. They raise StorageError if the server cannot be used.

    @abstractmethod
    async def _take(
        self, session_id: str, lease: Lease, token: str, seconds: float, *, may_lapse: bool
    ) -> tuple[int, ...] | None:
        """Take a lease, and return the version, empty if nothing is stored.

        None: another one has it.

        Raises:
            ClaimLapsed: it was not given back; only unless ``may_lapse``.
        """

    @abstractmethod
    async def _end(self, session_id: str, lease: Lease, token: str) -> None:
        """End a lease, unless another one has it."""

    @abstractmethod
    async def _renew(self) -> Collection[str]:
        """Renew the claims of this process, and return the ids of those that it has lost."""

    @abstractmethod
    async def _write(
        self, session_id: str, parts: Iterable[bytes], expected: Expected, lock: str = ""
    ) -> tuple[int, ...]:
        """Write a session, with the token of its lock if it was locked.

        Raises:
            SessionExists: there is one, and none was expected.
            SessionChanged: it has another version, or another one has locked it.
        """

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        return await self._write(session_id, parts, "any")

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        return await self._write(session_id, parts, "new")

    async def replace(
        self, session_id: str, version: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        return await self._write(session_id, parts, version[0])

    async def write_locked(
        self, session_id: str, version: tuple[int, ...] | None, parts: Iterable[bytes], token: str
    ) -> tuple[int, ...]:
        """Write a session that was locked with a token; None: it must be new.

        Raises:
            SessionChanged: the lease was over, and another has written it.
        """
        try:
            return await self._write(session_id, parts, version[0] if version else "new", token)
        except SessionExists:
            raise SessionChanged from None

    @asynccontextmanager
    async def lock(self, session_id: str) -> AsyncIterator[SessionLock]:
        async with self._waiting.holding(check_session_id(session_id)):
            token, pause = secrets.token_hex(8), 0.002
            while (version := await self._request(session_id, "lock", token)) is None:
                await anyio.sleep(pause)
                pause = min(pause * 1.5, 0.05)
            try:
                yield LeasedSessionLock(self, session_id, version or None, token)
            finally:
                await self._release(session_id, "lock", token)

    @asynccontextmanager
    async def claim(self, session_id: str) -> AsyncIterator[tuple[int, ...] | None]:
        token = secrets.token_hex(8)
        if check_session_id(session_id) in self._claims:  # its lease may be over: its turn is not
            raise SessionBusy(session_id=session_id)
        version = await self._request_claim(session_id, token)
        if version is None:
            raise SessionBusy(session_id=session_id)
        self._claims[session_id] = token
        if self._renewer is None or self._renewer.done():
            self._renewer = self._tasks.spawn(self._keep_claims(), name=f"claims of {self.name}")
        try:
            yield version or None
        finally:
            if self._claims.get(session_id) == token:
                del self._claims[session_id]
            await self._release(session_id, "claim", token)

    async def _request_claim(self, session_id: str, token: str) -> tuple[int, ...] | None:
        """Take the claim, and one that was not given back only if its turn does not go on."""
        if self.check_lapsed is not None:
            try:
                return await self._request(session_id, "claim", token, may_lapse=False)
            except ClaimLapsed:
                await self.check_lapsed(session_id)
        return await self._request(session_id, "claim", token)

    async def _request(
        self, session_id: str, lease: Lease, token: str, *, may_lapse: bool = True
    ) -> tuple[int, ...] | None:
        """Take a lease if it is free; a cancellation in between gives it back."""
        seconds = LOCK_SECONDS if lease == "lock" else self._lease_seconds
        try:
            return await self._take(session_id, lease, token, seconds, may_lapse=may_lapse)
        except asyncio.CancelledError:
            await self._release(session_id, lease, token)
            raise

    async def _release(self, session_id: str, lease: Lease, token: str) -> None:
        """Give a lease back; it ends by itself where the server is away or does not answer."""
        with suppress(StorageError), anyio.move_on_after(OUTAGE_SECONDS, shield=True):
            await self._end(session_id, lease, token)

    async def _keep_claims(self) -> None:
        """Renew the claims as long as there are some, and tell once of each that is lost.

        While the server is away it is tried again and again: when it is back, a claim whose lease
        is over belongs to who asks first, and its turn should come before the next message.
        """
        lost: set[str] = set()
        seconds = self._lease_seconds / 3
        while self._claims:
            await anyio.sleep(seconds)
            try:
                for session_id in await self._renew():
                    token = self._claims.get(session_id)
                    if token is not None and token not in lost:
                        lost.add(token)
                        logger.warning("The claim of session %s is lost: %s", session_id, LOST)
            except StorageError:  # who uses the server logs it
                seconds = AGAIN_SECONDS
            else:
                seconds = self._lease_seconds / 3

    async def aclose(self) -> None:
        await self._tasks.drain(0)


class LeasedSessionLock(SessionLock):
    """Writes if nobody else has written since it was locked, which outlasts the lease."""

    def __init__(
        self,
        storage: LeasedStorage,
        session_id: str,
        version: tuple[int, ...] | None,
        token: str,
    ) -> None:
        super().__init__(storage, session_id, version)
        self._leased, self._token = storage, token

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        return await self._leased.write_locked(self.session_id, self.version, parts, self._token)


def claim_lost(session_id: str) -> StorageUnavailable:
    """Return the error of a process that has lost its claim."""
    return StorageUnavailable(session_id=session_id, reason=LOST)
