"""Makes the summaries of old messages: in the background before they are needed, or at once.

docs/explanation/context-window.md says when. In the background the rules of other summaries hold:
chats go first, and no model is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from ...core.aio import KeyedLocks, in_thread, in_thread_if
from ...errors import EmptyHistory, MochiError, SessionNotFound, SummaryModelRequired
from ...providers.registry import ProviderRegistry
from ...sessions import ChatSession, SessionManager
from ...sessions.messages import MANY_MESSAGES
from ...sessions.types import HistorySummary
from ..summaries.background import BackgroundWriting
from ..summaries.schedule import SummaryScheduler
from ..summaries.writer import ModelNotLoaded
from ..summary_model import SummaryModelManager
from .covered import SentHistories, beginning_of, count_covered, covered_part
from .text import HistoryRoom, end_of_old_turns, end_without_open_calls, start_of_last_turn
from .writer import CompactionWriter

logger = logging.getLogger(__name__)

MAX_PARTS = 24
"""Parts that are read after one turn; the next turn goes on."""


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


class CompactionService(BackgroundWriting):
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
        super().__init__(scheduler, providers, interval)
        self.enabled = enabled
        """Whether histories are compacted where neither a session nor a preset says."""
        self._writer = writer
        self._models = models
        self._most_tokens = most_tokens
        """Of history in a request; None for what the window holds."""
        self._sent = SentHistories()
        self._writing = KeyedLocks()
        """Who asks for a summary that somebody waits for already gets the same one."""

    def summary_of_sent(self, session: ChatSession) -> HistorySummary | None:
        """Return the summary that covers most of a history that a client has sent whole."""
        covered = self._sent.covered_part(session)
        return None if covered is None else covered.summary

    # In the background

    def schedule(self, history: FullHistory) -> None:
        """Make a summary as soon as the model has nothing else to do."""
        key = history.session_id if history.sent is None else beginning_of(history.sent)
        self._begin(key, partial(self._job, history), name=f"compaction of {key}")

    async def _job(self, history: FullHistory) -> None:
        """Make a summary; log failures, which no conversation notices."""
        try:
            await self._write_when_quiet(
                None, partial(self._model_for, history), partial(self._write, history)
            )
        except (ModelNotLoaded, SessionNotFound):
            return
        except MochiError as error:
            logger.warning(
                "The history of session %s was not compacted: %s", history.session_id, error.message
            )

    async def _model_for(self, history: FullHistory) -> str:
        if self._models.can_summarize(history.model):
            return history.model
        session = history.sent or await history.sessions.get(history.session_id)
        return await self._models.choose(session.metadata) or history.model

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
        self._cancel(session_id)
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
        with self._request():
            async with self._writing.holding(key):
                self._scheduler.preempt(self._providers.memory_key(model))
                return await work()

    async def _write_sent(self, session: ChatSession, model: str) -> HistorySummary:
        room = await self._writer.room(session, model, self._most_tokens)
        covered = await in_thread(self._sent.covered_part, session)
        while True:
            longer = await self._writer.extend(
                session, covered, model, room, end_of=end_without_open_calls, at_once=True
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
                at_once=True,
            )
            if longer is not None:
                await _store(sessions, session_id, longer.summary)
                continue
            if covered is None:
                raise EmptyHistory(f"Session {session_id!r} has nothing before its last turn.")
            summary = covered.summary.model_copy(update={"requested": True})
            if await _store(sessions, session_id, summary):
                return summary


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
