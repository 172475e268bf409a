"""Questions and decisions in a Django cache, which several processes may share.

Everything here blocks and is meant for a thread. What is in the cache:

========================  ==========================================================
``question:{id}``         an open question; deleting it is the claim, which one wins
``answer:{id}``           the decision of who has claimed, until the asker goes on
``expired:{id}``          the session of a question that nobody answered in time
``open:{session}``        the longest time of the session's questions, and their ids
``asker:{channel}``       a process that asks and is alive
========================  ==========================================================
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.core.cache import BaseCache, caches

from mochi_server.chat.confirmations import Confirmation, ConfirmationDecision
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    MochiError,
    ToolConfirmationTimeout,
)

from .cache import MACHINE

PREFIX = "mochi:confirmation:"

SPARE_SECONDS = 60
"""How much longer than it is open a question stays in the cache, at most."""

EXPIRED_SECONDS = 600
"""How long a decision that comes too late is told that it is late."""

ALIVE_SECONDS = 15
"""Time after which a process that gives no sign of life counts as dead."""


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """An open question, as it is in the cache."""

    request: Confirmation
    channel: str
    """Of the process that asks."""
    seconds: float
    """How long it may be open in all; its asker ends it."""
    expires: float
    """When it is over, by the clock of the asker's machine that nobody sets."""
    machine: str = MACHINE
    """Whose clock that is."""

    @property
    def id(self) -> str:
        """The confirmation's id."""
        return self.request.confirmation_id

    @property
    def is_over(self) -> bool:
        """Whether its time is over, as far as this machine can know."""
        return self.machine == MACHINE and self.expires <= time.monotonic()

    @property
    def session_id(self) -> str:
        """The session whose stream shows it."""
        return self.request.session_id


@dataclass(frozen=True, slots=True)
class State:
    """What the cache has of the questions of a process."""

    answered: list[str]
    missing: list[str]
    """Neither open nor answered."""


class QuestionStore:
    """The questions in one cache. Every failure of the cache is a ConfirmationUnavailable."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._locks = [threading.Lock() for _ in range(16)]

    @property
    def _cache(self) -> BaseCache:
        return caches[self._alias]

    def _lock(self, session_id: str) -> threading.Lock:
        """For the list of a session: it is read and written. One process asks for a session."""
        return self._locks[hash(session_id) % len(self._locks)]

    def put(self, question: StoredQuestion) -> None:
        """Open a question, or open it again."""
        with _guarded():
            seconds = question.seconds + SPARE_SECONDS
            self._cache.set(_key("question", question.id), _as_dict(question), seconds)
            self.beat(question.channel)
            with self._lock(question.session_id):
                longest, ids = self._open(question.session_id)
                if question.id not in ids:
                    longest = max(longest, question.seconds)
                    self._set_open(question.session_id, longest, [*ids, question.id])

    def forget(self, question: StoredQuestion) -> None:
        """Take out everything about a question but that it has expired."""
        with _guarded():
            self._cache.delete_many([_key("question", question.id), _key("answer", question.id)])
            with self._lock(question.session_id):
                longest, ids = self._open(question.session_id)
                left = [each for each in ids if each != question.id]
                self._set_open(question.session_id, longest, left)

    def check(self) -> None:
        """See that the cache answers."""
        with _guarded():
            self._cache.get(f"{PREFIX}check")

    def beat(self, channel: str) -> None:
        """A sign of life of a process that asks."""
        with _guarded():
            self._cache.set(_key("asker", channel), "alive", ALIVE_SECONDS)

    def retire(self, channel: str, left: Iterable[StoredQuestion]) -> None:
        """Take out what is left of a process that asks nothing any more."""
        with _guarded():
            self._cache.delete(_key("asker", channel))
        for question in left:
            self.forget(question)

    def claim(self, session_id: str, confirmation_id: str) -> StoredQuestion:
        """Become the only one who decides this question.

        Raises:
            ConfirmationNotFound, ToolConfirmationTimeout: as ``ConfirmationBroker.decide``.
        """
        with _guarded():
            question = self._question(confirmation_id)
            if question is None:
                raise self._why_not(session_id, confirmation_id)
            if question.session_id != session_id:
                raise ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)
            if question.is_over:
                raise ToolConfirmationTimeout(confirmation_id=confirmation_id)
            if not self._is_alive(question) or not self._cache.delete(
                _key("question", confirmation_id)
            ):
                raise self._why_not(session_id, confirmation_id)
            return question

    def claim_and_answer(
        self, session_id: str, confirmation_id: str, decision: ConfirmationDecision
    ) -> StoredQuestion:
        """Decide a question of another process; where that fails, it is open again.

        Raises:
            ConfirmationNotFound, ToolConfirmationTimeout: as ``claim``.
        """
        question = self.claim(session_id, confirmation_id)
        try:
            with _guarded():
                value = (decision.approved, decision.reason, decision.arguments)
                seconds = question.seconds + SPARE_SECONDS
                self._cache.set(_key("answer", question.id), value, seconds)
        except ConfirmationUnavailable:
            self.put(question)
            raise
        return question

    def take_answer(self, confirmation_id: str) -> ConfirmationDecision | None:
        """The decision, if there is one that nobody takes back: only one gets it out."""
        key = _key("answer", confirmation_id)
        with _guarded():
            found = self._cache.get(key)
            if found is None or not self._cache.delete(key):
                return None
            approved, reason, arguments = found
            return ConfirmationDecision(approved=approved, reason=reason, arguments=arguments)

    def withdraw(self, question: StoredQuestion) -> bool:
        """Take back a decision that nobody will fetch; false when it was fetched before."""
        with _guarded():
            found: bool = self._cache.delete(_key("answer", question.id))
        self.forget(question)
        return found

    def expire(self, question: StoredQuestion) -> bool:
        """End a question that nobody answered; false when somebody has claimed it just now."""
        key = _key("expired", question.id)
        with _guarded():
            self._cache.set(key, question.session_id, EXPIRED_SECONDS)
            if self._cache.delete(_key("question", question.id)):
                return True
            self._cache.delete(key)
            return False

    def of_session(self, session_id: str) -> list[Confirmation]:
        """The open questions of a session whose askers are alive, in order of asking."""
        with _guarded():
            found = [self._question(each) for each in self._open(session_id)[1]]
            return [
                question.request
                for question in found
                if question is not None
                and question.session_id == session_id
                and not question.is_over
                and self._is_alive(question)
            ]

    def look(self, channel: str, ids: Iterable[str]) -> State:
        """Give a sign of life, and see what has become of a process's questions."""
        self.beat(channel)
        state = State([], [])
        with _guarded():
            for each in ids:
                if _key("question", each) in self._cache:
                    continue
                answered = _key("answer", each) in self._cache
                (state.answered if answered else state.missing).append(each)
        return state

    def _question(self, confirmation_id: str) -> StoredQuestion | None:
        found = self._cache.get(_key("question", confirmation_id))
        if found is None:
            return None
        return StoredQuestion(**{**found, "request": Confirmation(**found["request"])})

    def _is_alive(self, question: StoredQuestion) -> bool:
        return _key("asker", question.channel) in self._cache

    def _why_not(self, session_id: str, confirmation_id: str) -> MochiError:
        if self._cache.get(_key("expired", confirmation_id)) == session_id:
            return ToolConfirmationTimeout(confirmation_id=confirmation_id)
        return ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)

    def _open(self, session_id: str) -> tuple[float, list[str]]:
        found: tuple[float, list[str]] | None = self._cache.get(_key("open", session_id))
        return found if found is not None else (0.0, [])

    def _set_open(self, session_id: str, longest: float, ids: list[str]) -> None:
        key = _key("open", session_id)
        if ids:
            self._cache.set(key, (longest, ids), longest + SPARE_SECONDS)
        else:
            self._cache.delete(key)


def _key(kind: str, name: str) -> str:
    return f"{PREFIX}{kind}:{name}"


def _as_dict(question: StoredQuestion) -> dict[str, Any]:
    return {
        "request": question.request.payload(),
        "channel": question.channel,
        "seconds": question.seconds,
        "expires": question.expires,
        "machine": question.machine,
    }


@contextmanager
def _guarded() -> Iterator[None]:
    """What a cache says, as an error of ours."""
    try:
        yield
    except MochiError:
        raise
    except Exception as error:  # any cache may be configured, and each fails in its own words
        raise ConfirmationUnavailable(reason=f"{type(error).__name__}: {error}") from error
