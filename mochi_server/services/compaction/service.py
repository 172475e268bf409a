"""Makes the summaries of old messages: in the background before they are needed, or at once.

docs/explanation/context-window.md says when. In the background the rules of other summaries hold:
chats go first, and no model is loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anyio

from ...core.aio import BackgroundTasks, KeyedLocks, in_thread, in_thread_if
from ...errors import EmptyHistory, MochiError, SessionNotFound, ShuttingDown, SummaryModelRequired
from ...providers.registry import ProviderRegistry
from ...sessions import ChatSession, SessionManager
from ...sessions.session import MANY_MESSAGES
from ...sessions.types import HistorySummary
from ..summaries.schedule import SummaryScheduler
from ..summaries.writer import Loading, ModelNotLoaded
from ..summary_model import SummaryModelManager
from .covered import SentHistories, beginning_of, count_covered, covered_part
from .text import HistoryRoom, end_of_old_turns, end_without_open_calls, start_of_last_turn
from .writer import CompactionWriter

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 0.25
"""Shortest wait after a chat went first."""
PATIENCE_PAUSES = 20
"""Longest wait for a pause in the turns, as a multiple of that; each next one is twice as long."""
LONGER_QUIET = 20
"""Multiple of the quiet time for a server that goes on reading cancelled prompts."""
MAX_PARTS = 24
"""Parts that are read after one turn; the next turn goes on."""
CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FullHistory:
    """A history for which a summary is made in the background."""

    session_id: str
    model: str
    """Full name of the model of its last request."""
    room: HistoryRoom
    sessions: SessionManager
    sent: ChatSession | None = None
    """The history itself, where a client has sent it whole and no session is kept."""


class CompactionService:
    """Makes the summaries of the histories of sessions, and finds those that hold."""

    def __init__(
        self,
        *,
        writer: CompactionWriter,
        providers: ProviderRegistry,
        models: SummaryModelManager,
        scheduler: SummaryScheduler,
        interval: float,
        enabled: bool = True,
        most_tokens: int | None = None,
    ) -> None:
        self.enabled = enabled
        """Whether histories are compacted where neither a session nor a preset says."""
        self._writer = writer
        self._providers = providers
        self._models = models
        self._scheduler = scheduler
        self._interval = interval
        """Seconds between two attempts."""
        self._most_tokens = most_tokens
        """Of history in a request; None for what the window holds."""
        self._sent = SentHistories()
        self._tasks = BackgroundTasks()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._requested: set[anyio.CancelScope] = set()
        self._writing = KeyedLocks()
        """Who asks for a summary that somebody waits for already gets the same one."""
        self._closed = False

    @property
    def pending(self) -> int:
        """Number of histories for which a summary is being made in the background."""
        return len(self._jobs)

    def summary_of_sent(self, session: ChatSession) -> HistorySummary | None:
        """Return the summary that covers most of a history that a client has sent whole."""
        covered = self._sent.covered_part(session)
        return None if covered is None else covered.summary

    # In the background

    def schedule(self, history: FullHistory) -> None:
        """Make a summary as soon as the model has nothing else to do."""
        if self._closed:
            return
        key = history.session_id if history.sent is None else beginning_of(history.sent)
        if (job := self._jobs.get(key)) is not None:
            job.cancel()
        job = self._tasks.spawn(self._job(history), name=f"compaction of {key}")
        self._jobs[key] = job
        job.add_done_callback(lambda job: self._forget(key, job))

    def _forget(self, key: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]

    async def _job(self, history: FullHistory) -> None:
        """Make a summary; log failures, which no conversation notices."""
        try:
            await self._make(history)
        except (ModelNotLoaded, SessionNotFound):
            return
        except MochiError as error:
            logger.warning(
                "The history of session %s was not compacted: %s", history.session_id, error.message
            )

    async def _make(self, history: FullHistory) -> None:
        """Make a summary; begin again whenever a chat goes first."""
        model = history.model
        if not self._models.can_summarize(model):
            session = history.sent or await history.sessions.get(history.session_id)
            model = await self._models.choose(session.metadata) or model
        provider, _ = self._providers.resolve(model)
        slow = await provider.reads_cancelled_prompts()
        quiet = LONGER_QUIET * self._interval if slow else 0.0
        pause = max(quiet, self._interval, AGAIN_SECONDS)
        patience = PATIENCE_PAUSES * pause
        memory = self._providers.memory_key(model)
        while True:
            async with self._scheduler.slot(memory, patience, quiet) as idle:

                async def write() -> None:
                    await self._write(history, model)

                if await self._scheduler.run_exclusively(None, memory, write):
                    return
            if not idle:
                patience *= 2
            await anyio.sleep(pause)

    async def _write(self, history: FullHistory, model: str) -> None:
        find = covered_part if history.sent is None else self._sent.covered_part
        for _ in range(MAX_PARTS):
            session = history.sent or await history.sessions.get(history.session_id)
            covered = await in_thread(find, session)
            longer = await self._writer.extend(
                session,
                covered,
                model,
                history.room,
                end_of=partial(end_of_old_turns, room=history.room),
                preemptible=True,
            )
            if longer is None:
                return
            self._sent.put(longer.summary, session.metadata.owner)
            if history.sent is None:
                await _store(history.sessions, history.session_id, longer.summary)

    # On request

    async def compact(self, sessions: SessionManager, session_id: str) -> HistorySummary:
        """Make a summary of all but the last turn now, which the next request has.

        Raises:
            EmptyHistory: there is nothing before the last turn.
            SummaryModelRequired: the session has no model that can be used.
            MochiError: the session cannot be read, or the model gave no summary.
        """
        session = await sessions.get(session_id)
        metadata = session.metadata
        model = await self._models.choose(metadata) or await self._models.of_chat(metadata)
        if model is None:
            raise SummaryModelRequired(model=metadata.model)
        if (job := self._jobs.pop(session_id, None)) is not None:
            job.cancel()
        work = partial(self._write_now, sessions, session_id, model)
        return await self._at_once(session_id, model, work)

    async def compact_sent(self, session: ChatSession, model: str) -> HistorySummary:
        """Make a summary of a whole history that a client has sent; no session has it.

        A last reply whose calls wait for results stays out of it.

        Raises:
            EmptyHistory: it has no other messages.
            MochiError: the model gave no summary.
        """
        work = partial(self._write_sent, session, model)
        return await self._at_once(beginning_of(session), model, work)

    async def _at_once(
        self, key: str, model: str, work: Callable[[], Awaitable[HistorySummary]]
    ) -> HistorySummary:
        """Do what somebody waits for; summaries in the background wait."""
        if self._closed:
            raise ShuttingDown
        scope = anyio.CancelScope()
        self._requested.add(scope)
        try:
            with scope:
                async with self._writing.holding(key):
                    self._scheduler.preempt(self._providers.memory_key(model))
                    return await work()
        finally:
            self._requested.discard(scope)
        raise ShuttingDown

    async def _write_sent(self, session: ChatSession, model: str) -> HistorySummary:
        room = await self._writer.room(session, model, self._most_tokens)
        covered = await in_thread(self._sent.covered_part, session)
        while True:
            longer = await self._writer.extend(
                session, covered, model, room, end_of=end_without_open_calls, loading=Loading.ALWAYS
            )
            if longer is None:
                break
            covered = longer
            self._sent.put(covered.summary, session.metadata.owner)
        if covered is None:
            raise EmptyHistory("There is no message to compact.")
        return covered.summary

    async def _write_now(
        self, sessions: SessionManager, session_id: str, model: str
    ) -> HistorySummary:
        while True:
            session = await sessions.get(session_id)
            covered = await in_thread(covered_part, session)
            room = await self._writer.room(session, model, self._most_tokens)
            longer = await self._writer.extend(
                session,
                covered,
                model,
                room,
                end_of=start_of_last_turn,
                requested=True,
                loading=Loading.ALWAYS,
            )
            if longer is not None:
                await _store(sessions, session_id, longer.summary)
                continue
            if covered is None:
                raise EmptyHistory(f"Session {session_id!r} has nothing before its last turn.")
            summary = covered.summary.model_copy(update={"requested": True})
            if await _store(sessions, session_id, summary):
                return summary

    # End

    def stop(self) -> None:
        """Stop all that is under way; nothing new is begun."""
        self._closed = True
        for job in [*self._jobs.values()]:
            job.cancel()
        for scope in self._requested:
            scope.cancel()

    async def aclose(self) -> None:
        self.stop()
        await self._tasks.drain(CLOSE_SECONDS)


async def _store(sessions: SessionManager, session_id: str, summary: HistorySummary) -> bool:
    """Store a summary if the session still has what it is of, and return whether it has."""
    async with sessions.edit(session_id) as session:
        is_long = len(session.messages) > MANY_MESSAGES
        if not await in_thread_if(is_long, count_covered, session, summary.covers):
            return False
        session.metadata.history_summary = summary
        if summary.requested:
            session.metadata.compaction = True
    return True
