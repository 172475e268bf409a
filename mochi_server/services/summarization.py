"""Summaries of conversations, written in the background while nobody waits for the model.

docs/explanation/summaries.md says when, by which model, and what a chat notices of it: nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial

import anyio

from ..aio import BackgroundTasks, in_thread
from ..errors import (
    MochiError,
    ProviderBusy,
    ProviderUnreachable,
    SessionNotFound,
    ShuttingDown,
    StorageError,
)
from ..sessions import ChatSession, SessionManager
from ..sessions.types import ConversationSummary
from .summary_lanes import Lanes
from .summary_model import SummaryModelManager
from .summary_text import covered, is_finished, said
from .summary_writer import SummaryWriter

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 0.25
"""Shortest wait after a summary had to give way."""
PATIENCE_INTERVALS = 20
"""So many times the quiet time a summary waits for a model that always has a turn; then it begins
beside the turn, and waits twice as long when a chat has ended it."""
WAIT_SECONDS = 5.0
"""How long a person's wish waits for a summary of the same session that is being written."""
CLOSE_SECONDS = 5.0
"""Longest wait for the end of what was stopped."""
MOST_AT_START = 100
"""Interrupted summaries that a start catches up; the rest is for the next one."""
PASSING = (ProviderUnreachable, ProviderBusy)
"""Failures after which the next start may fare better."""


class Outcome(str, Enum):
    """What became of a session that was to be summarised."""

    WRITTEN = "written"
    NOT_NEEDED = "not_needed"
    """There is nothing new, or the conversation has not come to an end."""
    NO_MODEL = "no_model"


class SummarizationService:
    """Summarises sessions after their turns, after a quiet time, one at a time for each model."""

    def __init__(
        self,
        *,
        sessions: SessionManager,
        writer: SummaryWriter,
        models: SummaryModelManager,
        lanes: Lanes,
        enabled: bool = True,
        interval: float = 3.0,
    ) -> None:
        """Begin with nothing to do.

        Args:
            sessions: Where they are.
            writer: Asks the models.
            models: Chooses them.
            lanes: Who may use a model, and what is to be done.
            enabled: Whether anything is done in the background.
            interval: Seconds of quiet before a summary.
        """
        self.models = models
        self._sessions = sessions
        self._writer = writer
        self._lanes = lanes
        self._enabled = enabled
        self._interval = interval
        self._tasks = BackgroundTasks()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._wishes: set[anyio.CancelScope] = set()
        self._catching_up: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pending(self) -> int:
        """Sessions of this process that wait for a summary, or whose summary is being written."""
        return len(self._jobs)

    # What the chat tells

    @contextmanager
    def turn(self, session_id: str, model: str) -> Iterator[None]:
        """A turn runs: summaries make way, and this session is looked at after it."""
        self._drop(session_id)
        try:
            with self._lanes.turn(session_id, model):
                yield
        finally:
            self.schedule(session_id)

    def make_way(self, model: str) -> None:
        """A chat is about to ask the model: a background summary gives it free, to go on later."""
        self._lanes.make_way(model)

    # In the background

    def schedule(self, session_id: str) -> None:
        """Summarise the session after a quiet time, if there is anything to summarise then."""
        if not self._enabled:
            return
        self._mark(session_id)
        if not self._closed:
            self._drop(session_id)
            job = self._tasks.spawn(self._job(session_id), name=f"summary of {session_id}")
            self._jobs[session_id] = job
            job.add_done_callback(lambda job: self._forget(session_id, job))

    def _drop(self, session_id: str) -> bool:
        """Give up the session's job; whether there was one."""
        job = self._jobs.pop(session_id, None)
        if job is not None:
            job.cancel()
        return job is not None

    def _forget(self, session_id: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(session_id) is job:
            del self._jobs[session_id]

    def _mark(self, session_id: str) -> None:
        try:
            self._lanes.mark(session_id)
        except StorageError as error:
            logger.warning("Session %s is not marked for a summary: %s", session_id, error.message)

    async def _job(self, session_id: str) -> None:
        """Whatever happens, the conversation does not notice."""
        try:
            await anyio.sleep(self._interval)
            await self.bring_up_to_date(session_id)
        except PASSING as error:
            logger.warning("Session %s is not summarised now: %s", session_id, error.message)
        except MochiError as error:
            self._lanes.unmark(session_id)
            if not isinstance(error, SessionNotFound):
                logger.warning("Session %s was not summarised: %s", session_id, error.message)

    async def bring_up_to_date(self, session_id: str, *, anew: bool = False) -> Outcome:
        """Summarise what is new, giving way to chats as often as it takes.

        Args:
            session_id: Whose.
            anew: All of the conversation, also where nothing is new.

        Raises:
            MochiError: it cannot be read, the model did not answer, or not in the form.
        """
        pause = max(self._interval, AGAIN_SECONDS)
        patience = PATIENCE_INTERVALS * pause
        while True:
            session = await self._sessions.get(session_id)
            if not is_finished(session) or not (anew or await in_thread(has_news, session)):
                self._lanes.unmark(session_id)
                return Outcome.NOT_NEEDED
            model = await self.models.choose(session.metadata)
            if model is None:
                self._lanes.unmark(session_id)
                return Outcome.NO_MODEL
            async with self._lanes.lane(model, patience) as idle:
                work = partial(self._writer.write, session_id, model, anew=anew)
                if await self._lanes.undisturbed(session_id, model, work):
                    return Outcome.WRITTEN
            if not idle:
                patience *= 2
            await anyio.sleep(pause)

    # When somebody asks for it

    async def summarize(self, session_id: str, model: str | None = None) -> ConversationSummary:
        """The summary, brought up to date now; written anew where nothing is new.

        Args:
            session_id: Whose.
            model: Full name of the one that is to write; the one that the session has, if None.

        Raises:
            EmptyHistory: nothing was said.
            SummaryModelRequired: no model can, or the named one cannot.
            SessionBusy: somebody else has asked for the same.
            MochiError: the session cannot be read, the model did not answer, or not in the form.
        """
        if self._closed:
            raise ShuttingDown
        session = await self._sessions.get(session_id)
        chosen = await self.models.require(session.metadata, model)
        anew = not await in_thread(has_news, session)
        dropped = self._drop(session_id)
        try:
            return await self._write_now(session_id, chosen, anew=anew)
        finally:
            if dropped:
                self.schedule(session_id)

    async def _write_now(self, session_id: str, model: str, *, anew: bool) -> ConversationSummary:
        scope = anyio.CancelScope()
        self._wishes.add(scope)
        try:
            with scope:
                self.make_way(model)
                async with self._lanes.session(session_id, WAIT_SECONDS):
                    return await self._writer.write(session_id, model, anew=anew)
        finally:
            self._wishes.discard(scope)
        raise ShuttingDown

    # Beginning and end

    def catch_up(self) -> None:
        """Summarise in the background, one after the other, what was interrupted."""
        if self._enabled and not self._closed:
            self._catching_up = self._tasks.spawn(self._catch_up(), name="interrupted summaries")

    async def _catch_up(self) -> None:
        await anyio.sleep(self._interval)  # whoever starts a server wants to see it serve
        for session_id in (await in_thread(self._lanes.marked))[:MOST_AT_START]:
            if session_id not in self._jobs:
                self.schedule(session_id)
            if (job := self._jobs.get(session_id)) is not None:
                await asyncio.wait({job})

    def stop(self) -> None:
        """Write no more; what is not done stays marked for the next start."""
        self._closed = True
        for session_id in list(self._jobs):
            self._drop(session_id)
        if self._catching_up is not None:
            self._catching_up.cancel()
        for scope in self._wishes:
            scope.cancel()

    async def aclose(self) -> None:
        """``stop``, and wait for the end of what ran."""
        self.stop()
        await self._tasks.drain(CLOSE_SECONDS)


def has_news(session: ChatSession) -> bool:
    """Whether something was said that the summary is not about."""
    entries = said(session)
    return covered(session.metadata.summary, entries) < len(entries)
