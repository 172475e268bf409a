"""Confirmations and decisions in a Django cache, which several processes may share.

Everything here blocks and is meant for a thread. What is in the cache:

========================  ==================================================================
``pending:{id}``          a confirmation; who deletes it has claimed it, and alone decides
``decision:{id}``         the decision of who has claimed it, until its process takes it
``expired:{id}``          the session of a confirmation that nobody decided in time
``session:{session}``     the longest time of the session's confirmations, and their ids
``process:{channel}``     a process that waits for decisions and is alive
========================  ==================================================================
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.core.cache import BaseCache, caches

from mochi_server.chat.confirmations import ConfirmationDecision, ConfirmationRequest
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    MochiError,
    ToolConfirmationTimeout,
)

from .cache import MACHINE

PREFIX = "mochi:confirmation:"

SPARE_SECONDS = 60
"""Longest time that a confirmation stays in the cache after its end."""

EXPIRED_SECONDS = 600
"""How long a decision that comes too late is told that it is late."""

ALIVE_SECONDS = 15
"""Time after which a process that gives no sign of life counts as dead."""


@dataclass(frozen=True, slots=True)
class StoredConfirmation:
    """A confirmation as it is in the cache."""

    request: ConfirmationRequest
    channel: str
    """Channel of the process that waits."""
    seconds: float
    """How long it can be decided; the process that waits ends it."""
    expires: float
    """When it ends, by the monotonic clock of the machine that waits."""
    machine: str = MACHINE
    """The machine whose clock that is."""

    @property
    def id(self) -> str:
        return self.request.confirmation_id

    @property
    def is_over(self) -> bool:
        """Whether its time is over, as far as this machine can know."""
        return self.machine == MACHINE and self.expires <= time.monotonic()

    @property
    def session_id(self) -> str:
        return self.request.session_id


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """What has become of the confirmations of a process; ids."""

    decided: list[str]
    missing: list[str]
    """Neither pending nor decided."""


class ConfirmationStore:
    """The confirmations in one cache. Every failure of the cache is a ConfirmationUnavailable."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._locks = [threading.Lock() for _ in range(16)]

    @property
    def _cache(self) -> BaseCache:
        return caches[self._alias]

    def _lock(self, session_id: str) -> threading.Lock:
        return self._locks[hash(session_id) % len(self._locks)]

    def put(self, confirmation: StoredConfirmation) -> None:
        with _guarded():
            seconds = confirmation.seconds + SPARE_SECONDS
            self._cache.set(_key("pending", confirmation.id), _as_dict(confirmation), seconds)
            self.keep_alive(confirmation.channel)
            with self._lock(confirmation.session_id):
                longest, ids = self._list(confirmation.session_id)
                if confirmation.id not in ids:
                    longest = max(longest, confirmation.seconds)
                    self._set_list(confirmation.session_id, longest, [*ids, confirmation.id])

    def remove(self, confirmation: StoredConfirmation) -> None:
        """Remove everything about a confirmation but that it has expired."""
        with _guarded():
            keys = [_key("pending", confirmation.id), _key("decision", confirmation.id)]
            self._cache.delete_many(keys)
            with self._lock(confirmation.session_id):
                longest, ids = self._list(confirmation.session_id)
                others = [other for other in ids if other != confirmation.id]
                self._set_list(confirmation.session_id, longest, others)

    def check(self) -> None:
        with _guarded():
            self._cache.get(f"{PREFIX}check")

    def keep_alive(self, channel: str) -> None:
        """Give a sign of life of the process that has this channel."""
        with _guarded():
            self._cache.set(_key("process", channel), "alive", ALIVE_SECONDS)

    def retire(self, channel: str, remains: Iterable[StoredConfirmation]) -> None:
        """Remove what is left of a process that waits for no decision any more."""
        with _guarded():
            self._cache.delete(_key("process", channel))
        for confirmation in remains:
            self.remove(confirmation)

    def claim(self, session_id: str, confirmation_id: str) -> StoredConfirmation:
        """Become the only one who decides this confirmation."""
        with _guarded():
            confirmation = self._read(confirmation_id)
            if confirmation is None:
                raise self._refusal(session_id, confirmation_id)
            if confirmation.session_id != session_id:
                raise ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)
            if confirmation.is_over:
                raise ToolConfirmationTimeout(confirmation_id=confirmation_id)
            if not self._is_alive(confirmation) or not self._cache.delete(
                _key("pending", confirmation_id)
            ):
                raise self._refusal(session_id, confirmation_id)
            return confirmation

    def claim_and_decide(
        self, session_id: str, confirmation_id: str, decision: ConfirmationDecision
    ) -> StoredConfirmation:
        """Decide a confirmation of another process; where that fails, it is pending again."""
        confirmation = self.claim(session_id, confirmation_id)
        try:
            with _guarded():
                value = (decision.approved, decision.reason, decision.arguments)
                seconds = confirmation.seconds + SPARE_SECONDS
                self._cache.set(_key("decision", confirmation.id), value, seconds)
        except ConfirmationUnavailable:
            self.put(confirmation)
            raise
        return confirmation

    def take_decision(self, confirmation_id: str) -> ConfirmationDecision | None:
        """Take the decision out of the cache, if there is one that was not withdrawn."""
        key = _key("decision", confirmation_id)
        with _guarded():
            value = self._cache.get(key)
            if value is None or not self._cache.delete(key):
                return None
            approved, reason, arguments = value
            return ConfirmationDecision(approved=approved, reason=reason, arguments=arguments)

    def withdraw(self, confirmation: StoredConfirmation) -> bool:
        """Take back a decision that nobody will fetch; false when it was fetched before."""
        with _guarded():
            withdrawn: bool = self._cache.delete(_key("decision", confirmation.id))
        self.remove(confirmation)
        return withdrawn

    def expire(self, confirmation: StoredConfirmation) -> bool:
        """End a confirmation that nobody has decided; false when it was claimed just before."""
        key = _key("expired", confirmation.id)
        with _guarded():
            self._cache.set(key, confirmation.session_id, EXPIRED_SECONDS)
            if self._cache.delete(_key("pending", confirmation.id)):
                return True
            self._cache.delete(key)
            return False

    def of_session(self, session_id: str) -> list[ConfirmationRequest]:
        with _guarded():
            confirmations = map(self._read, self._list(session_id)[1])
            return [
                confirmation.request
                for confirmation in confirmations
                if confirmation is not None
                and confirmation.session_id == session_id
                and not confirmation.is_over
                and self._is_alive(confirmation)
            ]

    def changes(self, channel: str, ids: Iterable[str]) -> StoreChanges:
        """Give a sign of life, and return which confirmations of a process have changed."""
        self.keep_alive(channel)
        changes = StoreChanges([], [])
        with _guarded():
            for confirmation_id in ids:
                if _key("pending", confirmation_id) not in self._cache:
                    is_decided = _key("decision", confirmation_id) in self._cache
                    (changes.decided if is_decided else changes.missing).append(confirmation_id)
        return changes

    def _read(self, confirmation_id: str) -> StoredConfirmation | None:
        fields = self._cache.get(_key("pending", confirmation_id))
        if fields is None:
            return None
        return StoredConfirmation(**{**fields, "request": ConfirmationRequest(**fields["request"])})

    def _is_alive(self, confirmation: StoredConfirmation) -> bool:
        return _key("process", confirmation.channel) in self._cache

    def _refusal(self, session_id: str, confirmation_id: str) -> MochiError:
        if self._cache.get(_key("expired", confirmation_id)) == session_id:
            return ToolConfirmationTimeout(confirmation_id=confirmation_id)
        return ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)

    def _list(self, session_id: str) -> tuple[float, list[str]]:
        value: tuple[float, list[str]] | None = self._cache.get(_key("session", session_id))
        return value if value is not None else (0.0, [])

    def _set_list(self, session_id: str, longest: float, ids: list[str]) -> None:
        key = _key("session", session_id)
        if ids:
            self._cache.set(key, (longest, ids), longest + SPARE_SECONDS)
        else:
            self._cache.delete(key)


def _key(kind: str, name: str) -> str:
    return f"{PREFIX}{kind}:{name}"


def _as_dict(confirmation: StoredConfirmation) -> dict[str, Any]:
    return {
        "request": confirmation.request.payload(),
        "channel": confirmation.channel,
        "seconds": confirmation.seconds,
        "expires": confirmation.expires,
        "machine": confirmation.machine,
    }


@contextmanager
def _guarded() -> Iterator[None]:
    try:
        yield
    except MochiError:
        raise
    except Exception as error:  # any cache may be configured, and each fails in its own words
        raise ConfirmationUnavailable(reason=f"{type(error).__name__}: {error}") from error
