"""Sessions in a table, in any database that Django has a backend for.

One row has everything of a session: content, version and leases, so that one statement can check
the last claim and write. Leases are over by the clock of the database.

A statement may be executed twice: it is sent again when no answer has come. Each write therefore
chooses its version, and each lease its token, by which a repetition knows that it has been done.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, Final

import django
from django.apps import apps
from django.db.models import BinaryField, Q, QuerySet
from django.db.models.functions import Length, Now, Substr
from django.db.transaction import atomic

from mochi_project import use_own_settings
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import MochiError, SessionExists, SessionNotFound
from mochi_server.sessions.storage.base import Entry, SessionChanged, check_session_id
from mochi_server.sessions.storage.leased import (
    LEASE_SECONDS,
    ClaimLapsed,
    Expected,
    Lease,
    LeasedStorage,
    claim_lost,
)

if not apps.ready:  # a program that uses the library without its face
    use_own_settings()
    django.setup(set_prefix=False)

from sessions_app.models import SessionChange, StoredSession

from .connections import DatabaseThreads

SLOTS: Final = 16
"""Rows that tell of changes, for each collection: so many sessions can be written at a time."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class DatabaseStorage(LeasedStorage):
    """Sessions of one collection in one of Django's databases."""

    def __init__(
        self,
        *,
        name: str = "sessions",
        alias: str = "default",
        migrate: bool = True,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Connect when it is used.

        Args:
            name: The collection.
            alias: The database, as Django's ``DATABASES`` names it.
            migrate: Whether to make and change the tables if that is needed.
            lease_seconds: Time after which the claims of a process that has died are free.
        """
        super().__init__(name, lease_seconds)
        self._threads = DatabaseThreads(alias, migrate=migrate)
        self._alias = alias

    def _rows(self, **conditions: object) -> QuerySet[StoredSession]:
        rows = StoredSession.objects.using(self._alias).filter(collection=self.name)
        selected: QuerySet[StoredSession] = rows.filter(**conditions)
        return selected

    @property
    def _stored(self) -> QuerySet[StoredSession]:
        return self._rows(version__isnull=False)

    def _row(self, session_id: str) -> QuerySet[StoredSession]:
        return self._rows(session_id=session_id)

    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        rows = self._stored.filter(session_id=check_session_id(session_id))
        found = await self._threads.run(rows.values_list("content", "version").first)
        if found is None:
            raise SessionNotFound(session_id=session_id)
        content, version = found
        return bytes(content), (version,)

    async def version(self, session_id: str) -> tuple[int, ...]:
        rows = self._stored.filter(session_id=check_session_id(session_id))
        version = await self._threads.run(rows.values_list("version", flat=True).first)
        if version is None:
            raise SessionNotFound(session_id=session_id)
        return (version,)

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        found = await self._threads.run(partial(self._begins, session_ids, size))
        return [found.get(each, SessionNotFound(session_id=each)) for each in session_ids]

    def _begins(self, session_ids: Sequence[str], size: int) -> dict[str, bytes | MochiError]:
        head = Substr("content", 1, size, output_field=BinaryField())
        ids = [check_session_id(each) for each in session_ids]
        rows = self._stored.filter(session_id__in=ids).values_list("session_id", head)
        return {session_id: bytes(content) for session_id, content in rows}

    async def _write(
        self, session_id: str, parts: Iterable[bytes], expected: Expected, lock: str = ""
    ) -> tuple[int, ...]:
        content, version = b"".join(parts), secrets.randbits(63)
        work = self._write_row
        claim = self._claims.get(check_session_id(session_id), "")
        leases: dict[Lease, str] = {"claim": claim, "lock": lock}
        await self._threads.run(partial(work, session_id, content, version, expected, leases))
        return (version,)

    def _write_row(
        self,
        session_id: str,
        content: bytes,
        version: int,
        expected: Expected,
        leases: dict[Lease, str],
    ) -> None:
        row, claim = self._row(session_id), leases["claim"]
        unlocked = Q(version=expected) & (_is_over("lock") | Q(lock=leases["lock"]))
        wanted = {"any": Q(), "new": Q(version=None)}.get(str(expected), unlocked)
        with atomic(using=self._alias):
            if not (claim or isinstance(expected, int)):  # a claim has made its row
                self._make_row(session_id)
            rows = row.filter(wanted & _is_claimed_by(claim))
            if rows.update(content=content, version=version, modified=Now()):
                self._tell_of_change(session_id, version)
                return
            found, last_claim = row.values_list("version", "claim").first() or (None, "")
        if found == version:
            return  # the answer to the first attempt was lost
        if found is not None and expected == "new":
            raise SessionExists(session_id=session_id)
        if isinstance(expected, int) and (found != expected or claim in {"", last_claim}):
            raise SessionChanged
        raise claim_lost(session_id)

    def _make_row(self, session_id: str) -> None:
        row = StoredSession(collection=self.name, session_id=session_id)
        StoredSession.objects.using(self._alias).bulk_create([row], ignore_conflicts=True)

    def _tell_of_change(self, session_id: str, version: int) -> None:
        slot = zlib.crc32(session_id.encode()) % SLOTS
        changes = SessionChange.objects.using(self._alias)
        if not changes.filter(collection=self.name, slot=slot).update(version=version):
            changes.update_or_create({"version": version}, collection=self.name, slot=slot)

    async def delete(self, session_id: str) -> None:
        await self.version(session_id)
        claim = self._claims.get(session_id, "")
        await self._threads.run(partial(self._delete, session_id, claim))

    def _delete(self, session_id: str, claim: str) -> None:
        """Delete a session; one that is gone was deleted by an attempt whose answer was lost.

        The row with the leases goes when they end.
        """
        rows = self._stored.filter(session_id=session_id)
        with atomic(using=self._alias):
            if rows.filter(_is_claimed_by(claim)).update(version=None, content=b""):
                self._tell_of_change(session_id, secrets.randbits(63))
            elif rows.exists():
                raise claim_lost(session_id)
        self._remove_if_unused(session_id)

    def _remove_if_unused(self, session_id: str) -> None:
        """Remove a row that has neither a session nor a lease."""
        unused = Q(version=None) & _is_over("lock") & _is_over("claim")
        self._row(session_id).filter(unused).delete()

    async def entries(self) -> list[Entry]:
        return await self._threads.run(self._entries)

    def _entries(self) -> list[Entry]:
        rows = self._stored.values_list("session_id", "version", "modified", Length("content"))
        microsecond = timedelta(microseconds=1)
        return [
            Entry(session_id, (version,), (modified - EPOCH) // microsecond, size=size)
            for session_id, version, modified, size in rows
        ]

    async def generation(self) -> object | None:
        changes = SessionChange.objects.using(self._alias).filter(collection=self.name)
        rows = changes.order_by("slot").values_list("slot", "version")
        return tuple(await self._threads.run(lambda: list(rows)))

    async def aclose(self) -> None:
        await super().aclose()
        await self._threads.aclose()

    async def _take(
        self, session_id: str, lease: Lease, token: str, seconds: float, *, may_lapse: bool
    ) -> tuple[int, ...] | None:
        length = timedelta(seconds=seconds)
        work = partial(self._take_lease, session_id, lease, token, length, may_lapse=may_lapse)
        return await run_to_completion(self._threads.run(work))

    def _take_lease(
        self, session_id: str, lease: Lease, token: str, length: timedelta, *, may_lapse: bool
    ) -> tuple[int, ...] | None:
        row = self._row(session_id)
        over = _is_over(lease) if may_lapse else Q(**{f"{lease}_until": None})
        free = row.filter(over | Q(**{lease: token}))
        values: dict[str, Any] = {lease: token, f"{lease}_until": Now() + length}
        if not free.update(**values):
            self._make_row(session_id)
            if not free.update(**values):
                if not may_lapse and row.filter(_is_over(lease)).exists():
                    raise ClaimLapsed
                return None
        version = row.values_list("version", flat=True).first()
        return () if version is None else (version,)

    async def _end(self, session_id: str, lease: Lease, token: str) -> None:
        await self._threads.run(partial(self._end_lease, session_id, lease, token))

    def _end_lease(self, session_id: str, lease: Lease, token: str) -> None:
        held = self._row(session_id).filter(**{lease: token})
        over = {f"{lease}_until": None}
        if not held.filter(version__isnull=False).update(**over):
            held.update(**over)
            self._remove_if_unused(session_id)

    async def _renew(self) -> Collection[str]:
        claims = dict(self._claims)
        kept = await self._threads.run(partial(self._renew_claims, claims))
        lost = claims.keys() - kept
        return [each for each in lost if self._claims.get(each) == claims[each]]

    def _renew_claims(self, claims: dict[str, str]) -> set[str]:
        """Renew leases, unless they were given back, and return the sessions that are ours."""
        rows = self._rows(session_id__in=claims, claim__in=claims.values())
        length = timedelta(seconds=self._lease_seconds)
        rows.filter(claim_until__isnull=False).update(claim_until=Now() + length)
        return set(rows.values_list("session_id", flat=True))


def _is_over(lease: Lease) -> Q:
    return Q(**{f"{lease}_until": None}) | Q(**{f"{lease}_until__lt": Now()})


def _is_claimed_by(claim: str) -> Q:
    """Select rows whose last claim is this one; all without one."""
    return Q(claim=claim) if claim else Q()
