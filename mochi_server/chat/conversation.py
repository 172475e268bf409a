"""One session and its model: ask, and store what comes of it.

Turns of people and the work of agents are two loops over this. It decides the context window, fits
the history to it, tries once more when the prompt was too long after all, and keeps what came
before a cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice

import orjson
from pydantic import JsonValue

from ..aio import finish, in_thread
from ..errors import ContextOverflow, JSONObject, ProviderError
from ..events import Event
from ..messages import AssistantMessage, ToolMessage
from ..providers.base import ModelInfo, ModelRequest, Provider, Think
from ..services.context_window import DynamicContextWindowService, Window, record
from ..services.history import FittedHistory, estimate, fit
from ..sessions import ChatSession, SessionManager
from .reply import Reply
from .tool_calls import Results, ToolCalls, interrupted

LONG_SESSION = 200
"""Messages from which on the history is fitted in a thread: a large window may take them all."""
SMALLEST_REPLY = 256
"""Tokens that a reply may always have, even when the window seems full."""
FILLED = 0.75
"""Share of the window that is filled again after an overflow."""


Notes = deque[AssistantMessage | ToolMessage]
"""What a turn has stored, for a reader who wants whole messages and takes them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a turn."""

    max_tool_rounds: int
    max_output_tokens: int | None = None
    max_history_tokens: int | None = None
    max_history_messages: int | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What is sent with the history and not stored with it."""

    tools: Sequence[JSONObject] = ()
    """Schemas of the tools that are offered."""
    messages: Sequence[JSONObject] = ()
    """Messages behind the history."""

    def estimate(self, ratio: float) -> int:
        """Tokens that it costs, at so many characters a token."""
        tokens = sum(estimate(message, ratio) for message in self.messages)
        return tokens + (int(len(orjson.dumps(self.tools)) / ratio) if self.tools else 0)


NOTHING = Beside()


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Asks one model about one session, whose claim the caller holds."""

    session_id: str
    model: str
    """The full name, as the session has it."""
    name: str
    """The provider's own name."""
    info: ModelInfo
    provider: Provider
    think: Think
    limits: Limits
    sessions: SessionManager
    windows: DynamicContextWindowService
    make_way: Callable[[str], None] | None = None
    """Told the model before each request: what is done with it in the background can wait."""
    session: ChatSession | None = None
    """The session as it was saved last; dropped once the request is built."""
    notes: Notes | None = None
    """Gets every message that is stored, before the events that follow from it are there."""
    window: Window | None = field(default=None, init=False)
    dropped: int = field(default=0, init=False)
    sent: int = field(default=0, init=False)
    """Characters of the last request, as far as they count as prompt."""
    ceiling: int | None = field(default=None, init=False)
    """Most tokens of history, by our estimate, after an overflow has shown that it was wrong."""

    async def ask(
        self, reply: Reply, beside: Beside = NOTHING
    ) -> AsyncGenerator[list[Event], None]:
        """Ask the model; its deltas in batches, all of its reply in ``reply``.

        A prompt that turns out too long is tried once more, with a larger window or less history.
        What came before an error or a cancellation is stored, marked as interrupted.

        Raises:
            MochiError: the model gave no whole reply.
        """
        retried = False
        if self.make_way is not None:
            self.make_way(self.model)
        while True:
            request = await self._request(beside)
            try:
                async with aclosing(self.provider.batches(request)) as batches:
                    del request  # it may be long, and a stream lives long
                    async for chunks in batches:
                        if deltas := reply.add(chunks):
                            yield deltas
            except BaseException as error:
                if isinstance(error, ContextOverflow) and reply.is_blank and not retried:
                    self._make_room(error)
                    retried = True
                    continue
                await self._keep_partial(reply)
                raise
            return

    async def run_calls(self, reply: Reply, calls: ToolCalls) -> AsyncGenerator[list[Event], None]:
        """Store what the model said, do what it asked, store all results in one write."""
        results: Results = [None] * len(reply.calls)
        try:
            await self.store(reply.message(self.model))
        except asyncio.CancelledError:  # it is stored all the same
            await self.store(*interrupted(reply.calls, results))
            raise
        try:
            async with aclosing(calls.run(reply.calls, results)) as steps:
                async for events in steps:
                    yield events
        finally:
            await self.store(*interrupted(reply.calls, results))

    async def finish(self, reply: Reply) -> AssistantMessage:
        """Store a reply without calls.

        Raises:
            ProviderError: the model said nothing that a person could read.
        """
        if reply.is_empty:
            if not reply.is_blank:
                await self.store(reply.message(self.model))
            reason = reply.finish.reason if reply.finish else None
            raise ProviderError(
                "The model ended its reply without any text.",
                details={"model": self.model, "finish_reason": reason},
            )
        message = reply.message(self.model)
        await self.store(message)
        self._calibrate(message)
        return message

    def window_payload(self, message: AssistantMessage) -> JSONObject:
        """``context_window`` of ``message_complete`` (docs/reference/events.md)."""
        window = self.window
        return {
            "current_window": window.size if window else None,
            "usage_tokens": (message.prompt_eval_count or 0) + (message.eval_count or 0),
            "reason": window.reason if window else "no_adjustment",
            "dropped_messages": self.dropped,
        }

    async def store(self, *messages: AssistantMessage | ToolMessage) -> None:
        """Append, to the end even when the client leaves meanwhile."""
        await finish(self._append(messages))

    async def _request(self, beside: Beside) -> ModelRequest:
        """What to ask the model, with the history fitted to the window."""
        session = self.session or await self.sessions.get(self.session_id)
        self.session = None
        if len(session.messages) < LONG_SESSION:
            return self._plan(session, beside)
        return await in_thread(self._plan, session, beside)

    def _plan(self, session: ChatSession, beside: Beside) -> ModelRequest:
        usage, last_model = usage_of(session, self.info.context_length)
        ratio = self.windows.ratio(self.model)
        around = beside.estimate(ratio)
        # What the model counted last has had much the same around it,
        window = self._decide(session, usage if last_model else usage + around, last_model)
        fitted = self._fit(session, window, around)
        if fitted.dropped and last_model and around:  # unless tools are new: then make room first
            window = self._decide(session, usage + around, last_model)
            fitted = self._fit(session, window, around)
        self.window = window
        self.dropped = fitted.dropped
        self.sent = int((fitted.tokens + around) * ratio)
        return ModelRequest(
            model=self.name,
            messages=[*fitted.messages, *beside.messages] if beside.messages else fitted.messages,
            tools=beside.tools,
            think=self.think,
            num_ctx=window.num_ctx,
            max_tokens=self._max_tokens(window, fitted.tokens + around),
        )

    def _decide(self, session: ChatSession, usage: int, last_model: str | None) -> Window:
        return self.windows.decide(
            self.model,
            self.info,
            session.metadata.context_window_config,
            usage=usage,
            ours=self.provider.capabilities.context_size,
            model_changed=last_model is not None and last_model != self.model,
        )

    def _fit(self, session: ChatSession, window: Window, around: int) -> FittedHistory:
        bounds = (window.budget, self.limits.max_history_tokens, self.ceiling)
        budget = min((bound for bound in bounds if bound), default=None)
        total = len(session.messages)
        system = system_of(session)
        if system is not None:
            total -= 1
        return fit(
            system,
            objects(islice(session.tail(), total)),
            total=total,
            budget=None if budget is None else max(budget - around, 1),
            ratio=self.windows.ratio(self.model),
            max_messages=self.limits.max_history_messages,
        )

    def _max_tokens(self, window: Window, prompt: int) -> int | None:
        """Bound the reply to what the window leaves, so that nothing is shifted out of it."""
        room = window.num_ctx or window.size
        left = None if room is None else max(room - prompt, SMALLEST_REPLY)
        most = self.limits.max_output_tokens
        return min(left, most) if left is not None and most is not None else left or most

    def _make_room(self, overflow: ContextOverflow) -> None:
        """Prepare for one more try: a larger window if there is one, and what fits into it.

        Where our estimate was far off, what Ollama has counted corrects it.
        """
        needed, room = (_count(overflow, key) for key in ("n_prompt_tokens", "n_ctx"))
        grown = None
        if self.window is not None and self.window.num_ctx is not None:
            grown = self.windows.grow(self.model, self.info, needed)
        elif room:
            self.windows.loaded(self.model, room)
        self.windows.calibrate(self.model, self.sent, needed)
        room = grown or room
        share = FILLED * room / needed if room and needed else FILLED / 2
        if share < 1 and not (grown and not needed):
            self.ceiling = int(self.sent / self.windows.ratio(self.model) * share)

    def _calibrate(self, message: AssistantMessage) -> None:
        if message.prompt_eval_count and not self.dropped and self.window is not None:
            self.windows.calibrate(self.model, self.sent, message.prompt_eval_count)

    async def _keep_partial(self, reply: Reply) -> None:
        """Store a reply that was cut off, with results for calls that will have none."""
        if not reply.is_blank:
            message = reply.message(self.model, interrupted=True)
            await self.store(message, *interrupted(reply.calls, [None] * len(reply.calls)))

    async def _append(self, messages: tuple[AssistantMessage | ToolMessage, ...]) -> None:
        def change(session: ChatSession) -> None:
            session.append(*messages)
            if self.window is not None:
                metadata = session.metadata
                metadata.context_window_config = record(metadata.context_window_config, self.window)

        await self.sessions.update(self.session_id, change)
        if self.notes is not None:
            self.notes.extend(messages)


def objects(messages: Iterable[JsonValue]) -> Iterator[JSONObject]:
    """Stored messages without what is no object: kept in the file, never sent."""
    return (message for message in messages if isinstance(message, dict))


def system_of(session: ChatSession) -> JSONObject | None:
    """The stored system prompt."""
    first = session.stored(0) if len(session.messages) else None
    return first if isinstance(first, dict) and first.get("role") == "system" else None


def _count(overflow: ContextOverflow, key: str) -> int:
    """A number that the provider told with the error; 0 if it did not."""
    value = overflow.details.get(key)
    return value if isinstance(value, int) else 0


def usage_of(session: ChatSession, limit: int | None) -> tuple[int, str | None]:
    """Tokens of the conversation, and the model of its last reply.

    The provider's own count where there is one, plus an estimate of what came after it; reads no
    further back than that, or than ``limit`` tokens.
    """
    tokens = 0
    for message in objects(session.tail()):
        prompt, generated = message.get("prompt_eval_count"), message.get("eval_count")
        if message.get("role") == "assistant" and isinstance(prompt, int) and prompt:
            model = message.get("model")
            counted = prompt + (generated if isinstance(generated, int) else 0)
            return tokens + counted, model if isinstance(model, str) else None
        tokens += estimate(message)
        if limit is not None and tokens > limit:
            break
    return tokens, None
