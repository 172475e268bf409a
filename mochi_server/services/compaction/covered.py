"""Finds the messages that a summary covers: by a digest, so one of other messages never counts."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from threading import Lock

import orjson
from pydantic import JsonValue

from ...core.aio import yield_to_loop
from ...providers.common.tools import stored_calls
from ...sessions import ChatSession
from ...sessions.attachments import attachments_of
from ...sessions.codec import id_of, is_user
from ...sessions.types import HistorySummary
from ..history import system_of

KEPT_SECONDS = 3600
"""How long the summary of a history that a client sends whole is kept after its last use."""
MOST_KEPT = 1_000
"""Summaries of such histories that are kept."""
_YIELD_EVERY = 100


@dataclass(frozen=True, slots=True)
class CoveredHistory:
    """A summary, and how much of a history it covers."""

    summary: HistorySummary
    count: int
    """Messages after the system prompt, from the first."""


def history_of(session: ChatSession) -> Iterator[JsonValue]:
    """Yield the messages after the system prompt, the first one first."""
    messages = session.forward()
    if system_of(session) is not None:
        next(messages)
    return messages


def digests(messages: Iterable[JsonValue]) -> Iterator[tuple[int, str]]:
    """Yield where a turn ends: after how many messages, and the digest of what was said so far.

    Elsewhere no summary ends: what follows it would lack its question, or a result its call. Times,
    and ids of messages and calls, do not count: those of clients have none that stay.
    """
    running = hashlib.blake2b(digest_size=16)
    number = 0
    for message in messages:
        if number and is_user(message):
            yield number, running.copy().hexdigest()
        running.update(orjson.dumps(_said(message)))
        number += 1
        if number % _YIELD_EVERY == 0:
            yield_to_loop()
    if number:
        yield number, running.hexdigest()


def _said(message: JsonValue) -> JsonValue:
    if not isinstance(message, dict):
        return message
    calls = [call.get("function") for call in stored_calls(message)]
    attachments = [each["attachment_id"] for each in attachments_of(message)]
    return [message.get("role"), message.get("content"), calls, attachments]


def count_covered(session: ChatSession, covers: str) -> int:
    """Count the messages that a digest is of; 0 if the session does not begin with them."""
    ends = digests(history_of(session))
    return next((count for count, digest in ends if digest == covers), 0)


def covered_part(session: ChatSession) -> CoveredHistory | None:
    """Return the session's summary, if it covers what its messages say now."""
    summary = session.metadata.history_summary
    count = 0 if summary is None else count_covered(session, summary.covers)
    return CoveredHistory(summary, count) if summary is not None and count else None


def beginning_of(session: ChatSession) -> str:
    """Return the digests of a first question and what came next, by which a sent history is known.

    A client sends the same history longer and longer, each time in a session of its own.
    """
    ends = digests(islice(history_of(session), 2))
    return " ".join([str(session.metadata.owner), *(digest for _, digest in ends)])


class SentHistories:
    """Summaries of histories that clients send whole, by the digest of what they sent.

    Each owner has its own ones: a summary would tell another one that somebody had sent the same.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()  # long histories are looked for in threads
        self._summaries: OrderedDict[tuple[str | None, str], tuple[float, HistorySummary]]
        self._summaries = OrderedDict()
        """By owner and digest; those used last are at the end, each with when it expires."""

    def put(self, summary: HistorySummary, owner: str | None) -> None:
        key = owner, summary.covers
        with self._lock:
            self._summaries[key] = self._clock() + KEPT_SECONDS, summary
            self._summaries.move_to_end(key)
            self._drop_old()

    def _drop_old(self) -> None:
        while self._summaries:
            expires, _ = next(iter(self._summaries.values()))
            if expires > self._clock() and len(self._summaries) <= MOST_KEPT:
                return
            self._summaries.popitem(last=False)

    def covered_part(self, session: ChatSession) -> CoveredHistory | None:
        """Return the summary that covers most of a history, which names the last message of it."""
        owner = session.metadata.owner
        with self._lock:
            self._drop_old()
            known = {key[1]: each for key, (_, each) in self._summaries.items() if key[0] == owner}
        found = None
        for count, digest in digests(history_of(session)) if known else ():
            if digest in known:
                found = CoveredHistory(known[digest], count)
        if found is None:
            return None
        self.put(found.summary, owner)
        last = next(islice(history_of(session), found.count - 1, None))
        own = found.summary.model_copy(update={"through_message_id": id_of(last)})
        return CoveredHistory(own, found.count)
