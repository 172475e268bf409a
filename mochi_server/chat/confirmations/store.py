"""Where confirmations are kept until they are decided and acted on.

A confirmation is *pending*, then *decided* (by a person, or because its time is over), then
*consumed*: whoever asked has acted on the decision, and only the history knows it. The first
decision counts, also between processes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Final, Literal

import anyio

from ...core.aio import BackgroundTasks
from ...core.caller import SERVER, Caller
from ...core.clock import SYSTEM_CLOCK, Clock, timestamp
from ...errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    JSONObject,
    StorageError,
    ToolConfirmationTimeout,
)
from ...state.signals import LOST_SECONDS, Signals, Subscription
from .confirmation import (
    EXPIRED,
    LOST,
    RUN_ENDED,
    Confirmation,
    ConfirmationChange,
    ConfirmationDecision,
    ConfirmationRecord,
    StoredConfirmation,
    not_found,
    shortened,
)

logger = logging.getLogger(__name__)

CONFIRMATIONS: Final = "confirmations"
"""Topic of the signals."""

RETRY_SECONDS = 0.25
"""Pause before the store is tried again that could not be reached."""

MOST_OVERDUE: Final = 2_000
"""Changes that wait for a store that cannot be reached; each has a call's record, or its run."""

Change = Callable[[], Awaitable[None]]


class ConfirmationStore(ABC):
    """Keeps confirmations and decisions, and tells of them; used in one event loop.

    Every method raises ConfirmationUnavailable when the store cannot be reached.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, signals: Signals | None = None) -> None:
        """Watch nothing yet.

        Args:
            clock: The clock by which they are due.
            signals: Tell of changes, also those of other processes; None: only those of this store.
        """
        self.clock = clock
        self._signals = signals or Signals()
        self._stored: dict[str, StoredConfirmation] = {}
        """What is not consumed, as far as this process knows; subclasses keep it up to date."""
        self._deadlines: dict[str, float] = {}
        """When each of them is due, by the monotonic clock: the time of day, by which processes
        tell each other, may jump."""
        self._first_due = math.inf
        """No confirmation is due before."""
        self._watchers: set[asyncio.Queue[ConfirmationChange]] = set()
        self._tasks = BackgroundTasks()
        self._poller: asyncio.Task[None] | None = None
        self._changed: Subscription | None = None
        """Wakes the poller."""
        self._overdue: deque[Change] = deque()
        """What could not be changed, in order."""
        self._catching_up: asyncio.Task[None] | None = None

    # What a store must do

    @abstractmethod
    async def _add(self, confirmation: Confirmation) -> None:
        """Store it; one that is there stays."""

    @abstractmethod
    async def find(self, confirmation_id: str) -> StoredConfirmation | None:
        """Return what is stored now, whoever stored it; None if it is unknown or consumed."""

    @abstractmethod
    async def _settle(self, confirmation: Confirmation, decision: ConfirmationDecision) -> bool:
        """Store the decision if there is none; return False if there is one or it is consumed."""

    @abstractmethod
    async def _remove(self, confirmation_id: str) -> None:
        """Forget it and its decision."""

    @abstractmethod
    async def _refresh(self) -> None:
        """Bring ``_stored`` up to date, by ``_learn`` and ``_forget``."""

    @abstractmethod
    async def _append(self, record: ConfirmationRecord) -> None:
        """Add an entry to the history."""

    @abstractmethod
    async def history(
        self, *, limit: int = 100, before: str | None = None, caller: Caller = SERVER
    ) -> list[ConfirmationRecord]:
        """Return entries of the history, the latest first.

        Args:
            limit: Most entries.
            before: Id of the confirmation behind which to go on: the last one of the page before.
            caller: Whoever reads them: only what this one sees.
        """

    @abstractmethod
    async def _record_of(self, confirmation_id: str) -> ConfirmationRecord | None:
        """Return the entry of a confirmation in the history."""

    # What all do alike

    async def put(self, confirmation: Confirmation) -> None:
        """Store a confirmation, before it is announced; one that is there stays."""
        deadline = self._deadline_of(confirmation)  # now: the time of day may jump at any time
        await self._add(confirmation)
        self._deadlines[confirmation.confirmation_id] = deadline
        self._signals.send(CONFIRMATIONS)

    async def decide(
        self,
        confirmation_id: str,
        decision: ConfirmationDecision,
        *,
        session_id: str | None = None,
    ) -> Confirmation:
        """Store the decision, and return what was decided; the first decision counts.

        Args:
            confirmation_id: What is decided.
            decision: The decision; ``decided_at`` is set if it is not.
            session_id: The session whose confirmation it must be; None: any.

        Raises:
            ConfirmationNotFound: unknown, of another session, or decided already.
            ToolConfirmationTimeout: it has expired.
        """
        stored = await self._known(confirmation_id, session_id)
        confirmation = stored.confirmation
        if session_id not in (None, confirmation.session_id):
            raise not_found(confirmation_id, session_id)
        if stored.decision is None:
            is_due = self.is_due(confirmation)
            won = await self._decide_once(confirmation, EXPIRED if is_due else decision)
            if won and not is_due:
                return confirmation
            stored = await self._known(confirmation_id)
        if stored.decision is not None and stored.decision.is_expired:
            raise ToolConfirmationTimeout(confirmation_id=confirmation_id)
        raise not_found(confirmation_id, session_id)

    async def decision(self, confirmation_id: str) -> ConfirmationDecision | None:
        """Return the decision; None while it is pending.

        Raises:
            ConfirmationNotFound: nothing is known of it, not even in the history.
        """
        return (await self._known(confirmation_id)).decision

    async def consume(self, confirmation_id: str, *, ran: JSONObject | None = None) -> None:
        """Move a decided confirmation to the history, once the decision was acted on.

        ``ran``: arguments with which the tool ran; None if it did not run.

        Raises:
            ConfirmationNotFound: it is unknown, consumed, or not decided.
        """
        stored = await self.find(confirmation_id)
        if stored is None or stored.decision is None:
            raise not_found(confirmation_id)
        await self.record(stored.confirmation, stored.decision, ran=ran)
        await self._remove(confirmation_id)
        self._deadlines.pop(confirmation_id, None)
        self._signals.send(CONFIRMATIONS)

    async def record(
        self,
        confirmation: Confirmation,
        decision: ConfirmationDecision,
        *,
        ran: JSONObject | None = None,
    ) -> None:
        """Add a call to the history."""
        now = timestamp(self.clock())
        record = ConfirmationRecord(
            confirmation=confirmation.shortened(),
            decision=replace(decision, decided_at=decision.decided_at or now),
            ran=None if ran is None else shortened(ran),
            recorded_at=now,
        )
        await self._append(record)

    async def pending(
        self,
        *,
        session_id: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        older_than: timedelta | None = None,
    ) -> list[Confirmation]:
        """Return what waits for a decision, the oldest first; None: of all."""
        await self._refresh()
        latest = None if older_than is None else timestamp(self.clock() - older_than)
        pending = [
            confirmation
            for confirmation in self._undecided()
            if not self.is_due(confirmation)
            and (session_id is None or confirmation.session_id == session_id)
            and (agent is None or confirmation.agent_name == agent)
            and (tool is None or confirmation.tool_name == tool)
            and (latest is None or confirmation.asked_at < latest)
        ]
        return sorted(pending, key=attrgetter("asked_at", "queue_position", "confirmation_id"))

    async def of_run(self, run_id: str) -> list[StoredConfirmation]:
        """Return a run's confirmations, pending and decided, that are not consumed."""
        await self._refresh()
        stored = [each for each in self._stored.values() if each.confirmation.run_id == run_id]
        return sorted(stored, key=lambda each: each.confirmation.asked_at)

    async def decided_runs(self) -> set[str]:
        """Return the ids of the runs with decisions that can be acted on now.

        The calls of one conversation run when all are decided.
        """
        await self.expire_due()
        undecided = {each.conversation for each in self._undecided()}
        decided = [each.confirmation for each in self._stored.values() if each.decision]
        return {each.run_id for each in decided if each.conversation not in undecided}

    async def stored(self) -> list[StoredConfirmation]:
        """Return what is not consumed, after what is due has expired."""
        await self.expire_due()
        return [*self._stored.values()]

    async def end_run(self, run_id: str) -> None:
        """Deny what is pending of a run that has ended, and consume all that it has left."""
        for stored in await self.of_run(run_id):
            await self.end(stored.confirmation.confirmation_id, RUN_ENDED)

    async def end(
        self,
        confirmation_id: str,
        decision: ConfirmationDecision,
        *,
        ran: JSONObject | None = None,
    ) -> None:
        """Decide it if nobody has, and consume it; see ``consume`` for ``ran``."""
        with suppress(ConfirmationNotFound, ToolConfirmationTimeout):
            await self.decide(confirmation_id, decision)
        with suppress(ConfirmationNotFound):
            await self.consume(confirmation_id, ran=ran)

    async def eventually(self, change: Change) -> None:
        """Make a change now, or as soon as the store can be reached, while this process lives.

        It may be begun several times. What somebody has removed meanwhile stays removed.
        """
        if not self._overdue and await self._is_made(change):
            return
        if len(self._overdue) >= MOST_OVERDUE:
            logger.warning("A decision is not in the history: too many wait for their store.")
            return
        self._overdue.append(change)
        if self._catching_up is None:
            self._catching_up = self._tasks.spawn(self._catch_up(), name="overdue confirmations")

    async def _is_made(self, change: Change) -> bool:
        try:
            await change()
        except ConfirmationNotFound:
            pass  # it could not be stored, or somebody has removed it
        except StorageError as error:
            if not self._overdue:
                logger.warning("What was decided is noted later: %s", error.message)
            return False
        return True

    async def _catch_up(self) -> None:
        try:
            left = await self._make_overdue()
            while left:
                await anyio.sleep(RETRY_SECONDS)
                left = await self._make_overdue()
        finally:
            self._catching_up = None

    async def _make_overdue(self) -> int:
        """Make what was not possible before, and return how much still is not."""
        while self._overdue:
            try:
                if not await self._is_made(self._overdue[0]):
                    break
            except Exception:  # what waits behind it is made all the same
                logger.exception("What was decided cannot be noted")
            self._overdue.popleft()
        return len(self._overdue)

    def is_due(self, confirmation: Confirmation) -> bool:
        """Return whether nobody can decide it any more."""
        return self._deadline_of(confirmation) <= self.clock.monotonic()

    def _deadline_of(self, confirmation: Confirmation) -> float:
        deadline = self._deadlines.get(confirmation.confirmation_id)
        if deadline is None:
            deadline = self.clock.monotonic() + confirmation.seconds_left(self.clock())
        return deadline

    async def expire_due(self) -> list[Confirmation]:
        """Expire what is due and return it.

        While somebody watches, the store does this by itself.
        """
        await self._refresh()
        now = self.clock.monotonic()
        if now < self._first_due:
            return []
        expired = []
        for each in [each for each in self._undecided() if self._deadline_of(each) <= now]:
            if await self._decide_once(each, EXPIRED):
                expired.append(each)
            await self._refresh()  # there may be thousands, and decisions meanwhile
        deadlines = map(self._deadline_of, self._undecided())
        self._first_due = min((each for each in deadlines if each > now), default=math.inf)
        return expired

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[ConfirmationChange]]:
        """Give an iterator of what happens from now on, in every process; it never ends."""
        await self._refresh()
        queue: asyncio.Queue[ConfirmationChange] = asyncio.Queue()

        async def read() -> AsyncGenerator[ConfirmationChange, None]:
            while True:
                yield await queue.get()

        self._watchers.add(queue)
        if self._poller is None:
            self._poller = self._tasks.spawn(self._poll(), name="confirmations")
        try:
            async with aclosing(read()) as changes:
                yield changes
        finally:
            self._watchers.discard(queue)
            if self._changed is not None:
                self._changed.wake()

    async def wait(self, confirmation_id: str) -> ConfirmationDecision:
        """Wait for the decision, which may be that the time is over.

        Raises:
            ConfirmationNotFound: nothing is known of it.
        """
        async with self.watch() as changes:
            decision = await self.decision(confirmation_id)
            while decision is None:
                change = await anext(changes)
                if change.confirmation.confirmation_id == confirmation_id:
                    decision = change.decision
            return decision

    async def aclose(self) -> None:
        """Release what the store holds; may be called again."""
        for task in (self._poller, self._catching_up):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if count := await self._make_overdue():
            logger.warning("%d decisions are not in the history: nothing can be written.", count)

    async def _known(
        self, confirmation_id: str, session_id: str | None = None
    ) -> StoredConfirmation:
        if (stored := await self.find(confirmation_id)) is not None:
            return stored
        if (record := await self._record_of(confirmation_id)) is None:
            raise not_found(confirmation_id, session_id)
        return StoredConfirmation(record.confirmation, record.decision)

    async def _decide_once(
        self, confirmation: Confirmation, decision: ConfirmationDecision
    ) -> bool:
        decided_at = decision.decided_at or timestamp(self.clock())
        won = await self._settle(confirmation, replace(decision, decided_at=decided_at))
        self._signals.send(CONFIRMATIONS)
        return won

    def _undecided(self) -> list[Confirmation]:
        return [each.confirmation for each in self._stored.values() if each.decision is None]

    def _learn(self, stored: StoredConfirmation) -> None:
        """Take note of a new confirmation, or of the decision on a known one."""
        confirmation, decision = stored.confirmation, stored.decision
        is_new = confirmation.confirmation_id not in self._stored
        self._stored[confirmation.confirmation_id] = stored
        if is_new:
            self._publish(ConfirmationChange("asked", confirmation))
            self._deadlines[confirmation.confirmation_id] = self._deadline_of(confirmation)
            self._first_due = min(self._first_due, self._deadline_of(confirmation))
        if decision is not None:
            kind: Literal["expired", "decided"] = "expired" if decision.is_expired else "decided"
            self._publish(ConfirmationChange(kind, confirmation, decision))

    def _forget(self, confirmation_id: str, decision: ConfirmationDecision | None) -> None:
        """Take note that a confirmation is not stored any more; the decision is what is known."""
        stored = self._stored[confirmation_id]
        if stored.decision is None:
            self._learn(replace(stored, decision=LOST if decision is None else decision))
        del self._stored[confirmation_id]
        self._deadlines.pop(confirmation_id, None)

    def _publish(self, change: ConfirmationChange) -> None:
        for queue in self._watchers:
            queue.put_nowait(change)

    async def _poll(self) -> None:
        try:
            with self._signals.subscribe(CONFIRMATIONS) as self._changed:
                is_available = True
                while self._watchers:
                    is_available = await self._look(was_available=is_available)
                    due = min(LOST_SECONDS, max(self._first_due - self.clock.monotonic(), 0.0))
                    await self._changed.wait(due if is_available else RETRY_SECONDS)
        finally:
            self._poller = self._changed = None

    async def _look(self, *, was_available: bool) -> bool:
        """Learn what has happened, and return whether that was possible."""
        try:
            await self.expire_due()
        except Exception as error:  # of a background task: those who wait count on it
            if was_available:
                expected = isinstance(error, ConfirmationUnavailable)
                logger.warning("%s Trying again.", error, exc_info=not expected)
            return False
        return True
