"""Asks a model for the summary of old messages, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile

from pydantic import JsonValue

from ...core.aio import in_thread_if
from ...errors import ContextOverflow, JSONObject, ProviderError
from ...protocol.completions import ContentDelta
from ...protocol.messages import now
from ...protocol.options import ModelOptions
from ...providers.base import ModelRequest, Provider
from ...providers.registry import ProviderRegistry
from ...providers.text_thinking import TextThinking
from ...sessions import ChatSession
from ...sessions.codec import id_of, is_user
from ...sessions.messages import MANY_MESSAGES
from ...sessions.types import HistorySummary
from ..context_window import DynamicContextWindowService, learn_window, window_beside
from ..summaries.schedule import LastReadConversations
from ..summaries.text import PART_TOKENS, SHORT_PART_TOKENS, UNKNOWN_WINDOW, TokenBudget
from ..summaries.writer import Loading, ModelNotLoaded
from .covered import CoveredHistory, digests, history_of
from .fitting import text_of_note
from .text import (
    INSTRUCTION,
    NOTES_TOKENS,
    PARTS_OF_WINDOW,
    SMALLEST_PART,
    HistoryRoom,
    next_part,
    question_about,
    question_for_shorter,
    shortest,
    with_new,
    without_inventions,
    words_of_user,
)

EXACT = ModelOptions(temperature=0)
"""It is to copy what was said."""
MARGIN_TOKENS = 64
"""For what stands around notes and part."""


def _budget_of(size: int, most: int, ratio: float, *, is_short: bool) -> TokenBudget:
    """Return what requests may have in a window for notes of at most so many tokens."""
    part = SHORT_PART_TOKENS if is_short else PART_TOKENS
    return TokenBudget(
        prompt=size - min(NOTES_TOKENS, most),
        reply=min(NOTES_TOKENS, most),
        ratio=ratio,
        part=min(part, max(size // PARTS_OF_WINDOW, SMALLEST_PART)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionWriter:
    """Asks models for summaries of old messages."""

    providers: ProviderRegistry
    windows: DynamicContextWindowService
    last_read: LastReadConversations

    async def extend(
        self,
        session: ChatSession,
        covered: CoveredHistory | None,
        model: str,
        room: HistoryRoom,
        *,
        end_of: Callable[[Sequence[JsonValue]], int],
        requested: bool = False,
        at_once: bool = False,
    ) -> CoveredHistory | None:
        """Return a summary that covers more than one that holds; None if there is no need.

        ``end_of`` tells how many messages are to be covered. With ``at_once`` somebody waits for
        it, and a model is loaded; else chats wait until the model has read a part to its end.

        Raises:
            ModelNotLoaded: it must not be loaded now.
            MochiError: it gave no summary.
        """
        messages = [*history_of(session)]
        start = 0 if covered is None else covered.count
        is_long = len(messages) > MANY_MESSAGES
        end = await in_thread_if(is_long, end_of, messages)
        if end <= start:
            return None
        notes, start = _notes_before(messages[:end], start, covered)
        writing, size = await self._begin_writing(session, model, at_once=at_once)
        is_short = not at_once and await writing.provider.reads_cancelled_prompts()
        most = min(room.summary_tokens, size // 4)
        budget = _budget_of(size, most, self.windows.ratio(model), is_short=is_short)
        new, covered_end = await writing.notes_of(messages[:end], start, notes, budget)
        for each in new:
            notes = await writing.within(most, with_new(notes, each), budget)
        if not notes:
            raise ProviderError("The model wrote no summary.", details={"model": model})
        summary = HistorySummary(
            text=notes,
            covers=await in_thread_if(is_long, _digest, messages[:covered_end]),
            through_message_id=id_of(messages[covered_end - 1]),
            model=model,
            tokens=budget.tokens(notes),
            made_at=now(),
            requested=requested or (covered is not None and covered.summary.requested),
        )
        return CoveredHistory(summary, covered_end)

    async def _begin_writing(
        self, session: ChatSession, model: str, *, at_once: bool
    ) -> tuple[_WritingModel, int]:
        """Return a model that writes, and the tokens of its window; it forgets what it has read.

        Raises:
            ModelNotLoaded: it must not be loaded now.
        """
        provider, name = self.providers.resolve(model)
        config = session.metadata.context_window_config if model == session.metadata.model else None
        window = await window_beside(self.windows, model, provider, name, config)
        loading = Loading.ALWAYS if at_once else Loading.NEVER
        if not loading.allows(await provider.load_state(name)):
            raise ModelNotLoaded(model)
        self.last_read.forget(self.windows.weights_key(model))
        size = window.num_ctx or window.size or UNKNOWN_WINDOW
        return _WritingModel(provider, name, window.num_ctx), size

    async def room(self, session: ChatSession, model: str, most: int | None) -> HistoryRoom:
        """Return the room for a session in its model's largest window, tools not counted."""
        provider, name = self.providers.resolve(model)
        info = await provider.show_model(name)
        await learn_window(self.windows, model, provider, name)
        size = self.windows.largest(
            model,
            info,
            session.metadata.context_window_config,
            ours=provider.capabilities.context_size,
        )
        return HistoryRoom.of_window(size or UNKNOWN_WINDOW, most, self.windows.ratio(model))


@dataclass(frozen=True, slots=True)
class _WritingModel:
    """The model that writes."""

    provider: Provider
    name: str
    num_ctx: int | None

    async def notes_of(
        self, messages: list[JsonValue], start: int, notes: str, budget: TokenBudget
    ) -> tuple[list[str], int]:
        """Return notes about the messages from ``start`` on, and where the part of them ends.

        Args:
            messages: Those up to the last that may be covered.
            start: Index of the first that the notes do not cover.
            notes: Of what is before.
            budget: What may be read at a time; less, where that does not fit.

        Raises:
            ContextOverflow: not even the smallest part fits.
        """
        while start < len(messages):
            around = budget.tokens(INSTRUCTION + notes) + MARGIN_TOKENS
            left = max(min(budget.prompt - around, budget.part), SMALLEST_PART)
            part = next_part(messages, start, len(messages), int(left * budget.ratio))
            try:
                new = [await self._note(text, notes, budget.reply) for text in part.texts]
            except ContextOverflow:
                if budget.is_least:
                    raise
                budget = budget.halved()
            else:
                kept = new if any(new) else [words_of_user(messages[start : part.end])]
                start = part.end
                if any(kept):
                    return kept, start
        return [], start

    async def _note(self, text: str, notes: str, most: int) -> str:
        """Return what of an answer about messages is kept."""
        return without_inventions(await self.answer(question_about(text, notes), most), text)

    async def within(self, most: int, notes: str, budget: TokenBudget) -> str:
        """Return notes of at most so many tokens, written shorter where they are longer."""
        if budget.tokens(notes) <= most:
            return notes
        shorter = await self.answer(question_for_shorter(notes, most), most)
        return shortest(notes, with_new("", shorter), int(most * budget.ratio))

    async def answer(self, messages: list[JSONObject], most: int) -> str:
        """Return the text of an answer of at most so many tokens, without thinking."""
        request = ModelRequest(
            model=self.name,
            messages=messages,
            think=False,
            num_ctx=self.num_ctx,
            max_tokens=most,
            options=EXACT,
        )
        thinking = TextThinking()
        texts: list[str] = []
        async with aclosing(self.provider.stream(request)) as chunks:
            async for chunk in chunks:
                known = thinking.add([chunk])
                texts += [each.content for each in known if isinstance(each, ContentDelta)]
        texts += [each.content for each in thinking.flush() if isinstance(each, ContentDelta)]
        return "".join(texts)


def _notes_before(
    messages: Sequence[JsonValue], start: int, covered: CoveredHistory | None
) -> tuple[str, int]:
    """Return the notes that there are, and how many messages they are about.

    A client that goes on from a summary sends it as a message, behind what the user has said: it is
    about that. Where an answer is before it, nobody knows what else it is about.
    """
    notes = "" if covered is None else covered.summary.text
    for number, message in enumerate(takewhile(is_user, messages[start:]), start + 1):
        if (earlier := text_of_note(message)) is not None:
            notes, start = with_new(notes, earlier), number
    return notes, start


def _digest(messages: list[JsonValue]) -> str:
    return [*digests(messages)][-1][1]
