"""Summarises conversations in the background, while nobody waits for the model.

docs/explanation/summaries.md says when and by which model. A chat notices nothing of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial

import anyio

from ..core.aio import in_thread
from ..core.progress import Advance
from ..errors import MochiError, ProviderBusy, ProviderUnreachable, SessionNotFound, StorageError
from ..providers.registry import NobodyHasModel
from ..sessions import ChatSession, SessionManager
from ..sessions.types import ConversationSummary
from ..sessions.versions import is_before
from .summaries.background import BackgroundWriting
from .summaries.schedule import SummaryScheduler
from .summaries.text import count_covered, is_finished, is_long_enough, utterances
from .summaries.writer import Loading, ModelNotLoaded, SummaryWriter

logger = logging.getLogger(__name__)

WAIT_SECONDS = 5.0
"""Seconds that a requested summary waits for another one of the same session."""
MAX_AT_START = 100
"""Most interrupted summaries that are written after a start; the next start does the rest."""
PASSING = (ProviderUnreachable, ProviderBusy, NobodyHasModel)
"""Failures after which the next start may fare better."""


class SummaryOutcome(str, Enum):
    """The outcome of summarising a session."""

    WRITTEN = "written"
    NOT_NEEDED = "not_needed"
    """Nothing is new, or the conversation has not come to an end."""
    NO_MODEL = "no_model"


class SummarizationService(BackgroundWriting):
    """Summarises sessions after their turns, after a quiet time, one at a time for each server."""

    def __init__(
        self,
        *,
        writer: SummaryWriter,
        scheduler: SummaryScheduler,
        enabled: bool = True,
        interval: float = 3.0,
    ) -> None:
        super().__init__(scheduler, writer.providers, interval)
        self.models = writer.models
        self._sessions = writer.sessions
        self._writer = writer
        self._last_read = writer.last_read
        self._windows = writer.windows
        self._enabled = enabled
        self._not_loaded: dict[str, str] = {}
        """Sessions whose summary waits until a chat has used its model, and those models."""
        self._used: set[str] = set()
        """Models of chats and summaries since the start: none of them is loaded again."""
        self._catching_up: asyncio.Task[None] | None = None

    # Called by chats

    @contextmanager
    def turn(self, session_id: str, model: str, *, is_kept: bool = True) -> Iterator[None]:
        """Preempt summaries while a turn runs, and schedule one of a session that is kept."""
        self._drop(session_id)
        try:
            with self._scheduler.turn(session_id, self._providers.memory_key(model)):
                yield
        finally:
            if is_kept:
                self.schedule(session_id)
            self._used.add(model)
            self._resume(model)

    def preempt(self, model: str, session_id: str) -> None:
        """End a background summary on the model's server, to go on after the chat's request."""
        self._scheduler.preempt(self._providers.memory_key(model))
        if self._providers.resolve(model)[0].capabilities.context_size:
            self._last_read.note(self._windows.weights_key(model), session_id)

    # In the background

    def schedule(self, session_id: str, loading: Loading = Loading.NEVER) -> None:
        """Summarise the session after a quiet time, if there is anything new then."""
        if not self._enabled:
            return
        self._enqueue(session_id)
        self._not_loaded.pop(session_id, None)
        job = partial(self._job, session_id, loading)
        self._begin(session_id, job, name=f"summary of {session_id}")

    def _drop(self, session_id: str) -> bool:
        self._not_loaded.pop(session_id, None)
        return self._cancel(session_id)

    def _enqueue(self, session_id: str) -> None:
        try:
            self._scheduler.enqueue(session_id)
        except StorageError as error:
            logger.warning("Session %s is not marked for a summary: %s", session_id, error.message)

    def _resume(self, model: str) -> None:
        """Summarise the sessions that wait until this model, which a chat has used, is loaded."""
        waiting = [each for each, name in self._not_loaded.items() if self._are_same(name, model)]
        for session_id in waiting:
            del self._not_loaded[session_id]
        if waiting and not self._closed:
            self._tasks.spawn(self._one_by_one(waiting), name=f"summaries by {model}")

    async def _one_by_one(
        self, session_ids: Iterable[str], loading: Loading = Loading.NEVER
    ) -> None:
        for session_id in session_ids:
            if session_id not in self._jobs:
                self.schedule(session_id, loading)
            if (job := self._jobs.get(session_id)) is not None:
                await asyncio.wait({job})

    async def _job(self, session_id: str, loading: Loading) -> None:
        """Summarise a session after a quiet time; log failures, which no conversation notices."""
        try:
            await anyio.sleep(self._interval)
            await self.bring_up_to_date(session_id, loading=loading)
        except ModelNotLoaded as reason:
            self._not_loaded[session_id] = reason.model
        except PASSING as error:
            logger.warning("Session %s is not summarised now: %s", session_id, error.message)
        except MochiError as error:
            self._scheduler.dequeue(session_id)
            if not isinstance(error, SessionNotFound):
                logger.warning("Session %s was not summarised: %s", session_id, error.message)

    async def bring_up_to_date(
        self, session_id: str, *, anew: bool = False, loading: Loading = Loading.ALWAYS
    ) -> SummaryOutcome:
        """Summarise what is new in the session; begin again whenever a chat preempts it.

        Raises:
            ModelNotLoaded: the model must not be loaded now.
            MochiError: the session cannot be read, or the model gave no summary.
        """
        reason = SummaryOutcome.NO_MODEL

        async def choose() -> str | None:
            nonlocal reason
            session = await self._sessions.get(session_id)
            if not is_finished(session) or not (anew or await in_thread(has_news, session)):
                reason = SummaryOutcome.NOT_NEEDED
                return None
            return await self.models.choose(session.metadata)

        write = partial(self._write, session_id, anew=anew, loading=loading)
        if await self._write_when_quiet(session_id, choose, write):
            return SummaryOutcome.WRITTEN
        self._scheduler.dequeue(session_id)
        return reason

    async def _write(self, session_id: str, model: str, *, anew: bool, loading: Loading) -> None:
        if loading is Loading.IF_NONE_LOADED and any(self._are_same(model, n) for n in self._used):
            loading = Loading.NEVER
        self._used.add(model)
        await self._writer.write(session_id, model, anew=anew, loading=loading, preemptible=True)

    def _are_same(self, model: str, other: str) -> bool:
        return self._windows.weights_key(model) == self._windows.weights_key(other)

    # On request

    async def summarize(self, session_id: str, model: str | None = None) -> ConversationSummary:
        """Bring the summary up to date now, or write it anew if nothing is new; return it.

        Raises:
            EmptyHistory: the conversation is empty.
            SummaryModelRequired: no model can write summaries, or the named one cannot.
            SessionBusy: another request for this summary is running.
            MochiError: the session cannot be read, or the model gave no summary.
        """
        with self._request():
            session = await self._sessions.get(session_id)
            chosen = await self.models.require(session.metadata, model)
            anew = not await in_thread(has_news, session)
            dropped = self._drop(session_id)
            try:
                self._scheduler.preempt(self._providers.memory_key(chosen))
                async with self._scheduler.session(session_id, WAIT_SECONDS):
                    return await self._writer.write(session_id, chosen, anew=anew)
            finally:
                if dropped:
                    self.schedule(session_id)

    # Start and end

    def catch_up(self) -> None:
        if self._enabled and not self._closed:
            self._catching_up = self._tasks.spawn(self._catch_up(), name="interrupted summaries")

    async def _catch_up(self) -> None:
        await anyio.sleep(self._interval)  # the server answers its first requests meanwhile
        queued = await in_thread(self._scheduler.queued)
        await self._one_by_one(queued[:MAX_AT_START], Loading.IF_NONE_LOADED)

    def stop(self) -> None:
        """Stop all summaries; unfinished ones stay queued for the next start."""
        super().stop()
        if self._catching_up is not None:
            self._catching_up.cancel()


def has_news(session: ChatSession) -> bool:
    entries = utterances(session)
    return is_long_enough(entries) and count_covered(session.metadata.summary, entries) < len(
        entries
    )


def is_behind(session: ChatSession) -> bool:
    """Return whether there is no summary, or one of this server that is behind.

    It is not known how far a summary of another program went: it is kept until the session goes on.
    """
    summary = session.metadata.summary
    if summary is not None and summary.optional("covers") is None:
        return False
    return has_news(session)


# Many sessions, for the operator's command


@dataclass(slots=True, kw_only=True)
class SummaryTask:
    """A session to summarise, and what came of it."""

    session_id: str
    model: str | None = None
    """Full name of the model that would write; None when no model of the session can."""
    outcome: SummaryOutcome | None = None
    reason: str | None = None
    """Why the session cannot be read or summarised."""


async def find_tasks(
    sessions: SessionManager,
    summaries: SummarizationService,
    *,
    session_ids: Sequence[str] | None = None,
    before: datetime | None = None,
    anew: bool = False,
    advance: Advance,
) -> list[SummaryTask]:
    """Return the sessions that have something to summarise, the one changed last first.

    Raises:
        StorageError: the folder cannot be listed.
    """
    if session_ids is None:
        lines = (await sessions.list()).entries
        ids = [
            str(line["session_id"])
            for line in lines
            if before is None or is_before(line["updated_at"], before)
        ]
    else:
        ids = [*dict.fromkeys(session_ids)]
    tasks = []
    for number, session_id in enumerate(ids, start=1):
        task = SummaryTask(session_id=session_id)
        try:
            session = await sessions.get(session_id)
            if is_finished(session) and (anew or await in_thread(is_behind, session)):
                task.model = await summaries.models.choose(session.metadata)
                tasks.append(task)
        except MochiError as error:
            if session_ids is not None or not isinstance(error, SessionNotFound):  # gone meanwhile
                task.reason = error.message
                tasks.append(task)
        advance(number, len(ids))
    return tasks


async def summarize_all(
    summaries: SummarizationService,
    tasks: Sequence[SummaryTask],
    *,
    anew: bool,
    advance: Advance,
) -> None:
    """Summarise sessions one by one; chats go first, and a failure stops no other session."""
    for number, task in enumerate(tasks, start=1):
        if task.reason is None:
            try:
                task.outcome = await summaries.bring_up_to_date(task.session_id, anew=anew)
            except MochiError as error:
                task.reason = error.message
        advance(number, len(tasks))
