"""Asks a model for the summary of a session, part by part, and stores each answer."""

from __future__ import annotations

import logging
import time
from enum import Enum

from ...core.aio import in_thread
from ...errors import ContextOverflow, EmptyHistory
from ...providers.base import LoadState, ModelRequest, Provider
from ...providers.registry import ProviderRegistry
from ...sessions import ChatSession, SessionManager
from ...sessions.types import ConversationSummary, SessionMetadata
from ..context_window import DynamicContextWindowService, window_beside
from ..summary_model import SummaryModelManager
from .schedule import LastReadConversations
from .text import PART_TOKENS, SHORT_PART_TOKENS, SummaryPart, SummaryReply, TokenBudget, next_part

logger = logging.getLogger(__name__)


class Loading(Enum):
    """When a model may be loaded for a summary, which may unload the model of a chat."""

    ALWAYS = "always"
    """A person asked for the summary."""
    IF_NONE_LOADED = "if_none_loaded"
    NEVER = "never"

    def allows(self, state: LoadState) -> bool:
        if state is LoadState.LOADED or self is Loading.ALWAYS:
            return True
        return self is Loading.IF_NONE_LOADED and state is LoadState.NONE_LOADED


class ModelNotLoaded(Exception):
    """The model is not loaded, and must not be loaded for this summary."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model = model


class SummaryWriter:
    """Writes summaries; the caller makes sure that each session has one writer at a time."""

    def __init__(
        self,
        *,
        sessions: SessionManager,
        providers: ProviderRegistry,
        models: SummaryModelManager,
        windows: DynamicContextWindowService,
        last_read: LastReadConversations,
        most_tokens: int | None = None,
    ) -> None:
        self.sessions = sessions
        self.providers = providers
        self.models = models
        self.windows = windows
        self.last_read = last_read
        self._most_tokens = most_tokens
        """Of history in a request; None for what the window holds."""

    async def write(
        self,
        session_id: str,
        model: str,
        *,
        anew: bool = False,
        loading: Loading = Loading.ALWAYS,
        preemptible: bool = False,
    ) -> ConversationSummary:
        """Bring the summary to the end of the conversation and return it.

        Each part is stored when it is done, so interrupted work goes on where it was.

        Raises:
            EmptyHistory: the conversation is empty, or too short.
            ModelNotLoaded: the model must not be loaded now.
            MochiError: the session cannot be read, or the model gave no summary.
        """
        began = time.monotonic()
        while True:
            session = await self.sessions.get(session_id)
            part, summary = await self._next(
                session, model, anew=anew, loading=loading, preemptible=preemptible
            )
            if part is None:
                return summary
            if part.is_last:
                seconds = time.monotonic() - began
                logger.debug("Session %s summarised by %s in %.1f s", session_id, model, seconds)
                return summary
            anew = False
            if loading is Loading.IF_NONE_LOADED:
                loading = Loading.NEVER  # it was loaded for the first part

    async def _next(
        self,
        session: ChatSession,
        model: str,
        *,
        anew: bool,
        loading: Loading,
        preemptible: bool,
    ) -> tuple[SummaryPart | None, ConversationSummary]:
        """Summarise one part; return it, or None if there is no more, and the summary then."""
        metadata = session.metadata
        provider, name = self.providers.resolve(model)
        is_short = preemptible and await provider.reads_cancelled_prompts()
        part_tokens = SHORT_PART_TOKENS if is_short else PART_TOKENS
        budget, num_ctx = await self._budget(metadata, model, provider, name, part_tokens)
        state = await provider.load_state(name)
        cached = state is LoadState.LOADED and self._has_read(provider, session, model)
        while True:
            part = await in_thread(next_part, session, budget, anew=anew, cached=cached)
            if part is None:
                if metadata.summary is None:
                    raise EmptyHistory(
                        f"Too little was said in session {session.session_id!r} to summarise it."
                    )
                return None, metadata.summary
            if not loading.allows(state):
                raise ModelNotLoaded(model)
            if not part.is_whole:
                self.last_read.forget(self.windows.weights_key(model))
            request = ModelRequest(
                model=name, messages=part.messages, num_ctx=num_ctx, max_tokens=budget.reply
            )
            try:
                reply = await provider.structured(request, SummaryReply)
            except ContextOverflow:
                if budget.is_least:
                    raise
                budget = budget.halved()
            else:
                return part, await self._store(session.session_id, part, reply, model)

    async def _budget(
        self,
        metadata: SessionMetadata,
        model: str,
        provider: Provider,
        name: str,
        part_tokens: int,
    ) -> tuple[TokenBudget, int | None]:
        """Return what fits into the model's window, which is not made larger, and its size."""
        is_of_chat = model == await self.models.of_chat(metadata)
        config = metadata.context_window_config if is_of_chat else None
        window = await window_beside(self.windows, model, provider, name, config)
        size, ratio = window.num_ctx or window.size, self.windows.ratio(model)
        return TokenBudget.of(size, self._most_tokens, ratio, part_tokens), window.num_ctx

    async def _store(
        self, session_id: str, part: SummaryPart, reply: SummaryReply, model: str
    ) -> ConversationSummary:
        summary = ConversationSummary(
            summary=reply.summary,
            topics=reply.topics,
            through_message_id=part.through.message_id,
            covers=part.through.digest,
            model=model,
        )

        def change(session: ChatSession) -> None:
            if part.is_still_in(session):
                note_summary(session.metadata, summary, part)

        await self.sessions.update(session_id, change)
        return summary

    def _has_read(self, provider: Provider, session: ChatSession, model: str) -> bool:
        metadata = session.metadata
        tools, agents = metadata.tool_settings, metadata.agent_settings
        offered = (tools and (tools.tools or tools.tool_group)) or (
            agents and agents.enabled_agents
        )
        return (
            provider.capabilities.context_size
            and model == metadata.model
            and not offered
            and self.last_read.session_of(self.windows.weights_key(model)) == session.session_id
        )


def note_summary(
    metadata: SessionMetadata, summary: ConversationSummary, part: SummaryPart
) -> None:
    """Keep a summary up to a part; the present one stays until one that begins anew is complete."""
    present = metadata.summary
    if present is not None:
        if not (part.is_last or part.extends_summary):
            metadata.summary_draft = summary
            return
        if present.title is not None:  # it is made once
            summary = summary.model_copy(update={"title": present.title})
    metadata.summary, metadata.summary_draft = summary, None
