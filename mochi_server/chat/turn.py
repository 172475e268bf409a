"""One turn: a user's message until the model has nothing more to say, as events.

The order in which things reach the disk: the user message before the model is called, the
assistant message before its calls run, all results of a round in one write, the final message
before ``message_complete``. What came before a cut is kept and marked as interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from itertools import islice

from pydantic import JsonValue

from ..aio import finish, in_thread
from ..errors import ContextOverflow, JSONObject, ProviderError
from ..events import Event, MessageComplete, ToolContinuationStart
from ..messages import AssistantMessage, ToolMessage
from ..providers.base import ModelInfo, ModelRequest, Provider, Think
from ..services.context_window import DynamicContextWindowService, Window, record
from ..services.history import FittedHistory, estimate, fit
from ..sessions import ChatSession, SessionManager
from .reply import Reply
from .tool_calls import interrupted, run_calls

LONG_SESSION = 200
"""Messages from which on the history is fitted in a thread: a large window may take them all."""
SMALLEST_REPLY = 256
"""Tokens that a reply may always have, even when the window seems full."""
FILLED = 0.75
"""Share of the window that is filled again after an overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a turn."""

    max_tool_rounds: int
    max_output_tokens: int | None = None
    max_history_tokens: int | None = None
    max_history_messages: int | None = None


@dataclass(slots=True, kw_only=True)
class Turn:
    """A turn that is allowed to run: everything was checked, and the session is claimed."""

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
    claim: AsyncExitStack
    session: ChatSession | None
    """The session as it was saved last; dropped once the request is built."""
    window: Window | None = field(default=None, init=False)
    dropped: int = field(default=0, init=False)
    sent: int = field(default=0, init=False)
    """Characters of the last request, as far as they count as prompt."""
    ceiling: int | None = field(default=None, init=False)
    """Most tokens of history, by our estimate, after an overflow has shown that it was wrong."""

    async def release(self) -> None:
        """Give the claim back; may be called again."""
        await self.claim.aclose()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The turn; events that come together are handed on together.

        A prompt that turns out too long is tried once more, with a larger window or less history.

        Closing it, or cancelling its task, keeps what came so far.

        Raises:
            MochiError: the turn failed; what came so far is kept.
        """
        rounds = 0
        retried = False
        while True:
            reply = Reply()
            request = await self._request()
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
            retried = False
            exhausted = rounds >= self.limits.max_tool_rounds
            if not reply.calls or exhausted:
                yield [await self._finish(reply, exhausted=exhausted)]
                return
            rounds += 1
            async with aclosing(self._run_calls(reply)) as steps:
                async for events in steps:
                    yield events

    async def _request(self) -> ModelRequest:
        """What to ask the model, with the history fitted to the window."""
        session = self.session or await self.sessions.get(self.session_id)
        self.session = None
        if len(session.messages) < LONG_SESSION:
            return self._plan(session)
        return await in_thread(self._plan, session)

    def _plan(self, session: ChatSession) -> ModelRequest:
        usage, last_model = usage_of(session, self.info.context_length)
        self.window = window = self.windows.decide(
            self.model,
            self.info,
            session.metadata.context_window_config,
            usage=usage,
            ours=self.provider.capabilities.context_size,
            model_changed=last_model is not None and last_model != self.model,
        )
        fitted = self._fit(session, window)
        self.dropped = fitted.dropped
        self.sent = int(fitted.tokens * self.windows.ratio(self.model))
        return ModelRequest(
            model=self.name,
            messages=fitted.messages,
            think=self.think,
            num_ctx=window.num_ctx,
            max_tokens=self._max_tokens(window, fitted.tokens),
        )

    def _fit(self, session: ChatSession, window: Window) -> FittedHistory:
        budget = window.budget
        if self.limits.max_history_tokens is not None:
            budget = min(budget or self.limits.max_history_tokens, self.limits.max_history_tokens)
        if self.ceiling is not None:
            budget = min(budget or self.ceiling, self.ceiling)
        total = len(session.messages)
        system = system_of(session)
        if system is not None:
            total -= 1
        return fit(
            system,
            objects(islice(session.tail(), total)),
            total=total,
            budget=budget,
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

    async def _run_calls(self, reply: Reply) -> AsyncGenerator[list[Event], None]:
        """Store what the model said, do what it asked, store all results in one write."""
        results: list[ToolMessage] = []
        try:
            await self._store(reply.message(self.model))
        except asyncio.CancelledError:  # it is stored all the same
            await self._store(*interrupted(reply.calls))
            raise
        try:
            for event in run_calls(reply.calls, results):
                yield [event]
        finally:
            await self._store(*results, *interrupted(reply.calls[len(results) :]))
        yield [ToolContinuationStart()]

    async def _finish(self, reply: Reply, *, exhausted: bool) -> MessageComplete:
        """Store the final message and say so.

        Raises:
            ProviderError: the model said nothing that a person could read.
        """
        if exhausted:
            reply.calls.clear()
        finish = reply.finish
        if reply.is_empty:
            if not reply.is_blank:
                await self._store(reply.message(self.model))
            raise ProviderError(
                "The model ended its reply without any text.",
                details={"model": self.model, "finish_reason": finish.reason if finish else None},
            )
        message = reply.message(self.model)
        await self._store(message)
        self._calibrate(message)
        return MessageComplete(
            message_id=message.message_id or "",
            model=self.model,
            eval_count=message.eval_count,
            prompt_eval_count=message.prompt_eval_count,
            context_window=self._window_payload(message),
            finish_reason=finish.reason if finish else None,
            tool_rounds_exhausted=exhausted,
            message=message.as_stored(),
        )

    def _calibrate(self, message: AssistantMessage) -> None:
        if message.prompt_eval_count and not self.dropped and self.window is not None:
            self.windows.calibrate(self.model, self.sent, message.prompt_eval_count)

    def _window_payload(self, message: AssistantMessage) -> JSONObject:
        window = self.window
        return {
            "current_window": window.size if window else None,
            "usage_tokens": (message.prompt_eval_count or 0) + (message.eval_count or 0),
            "reason": window.reason if window else "no_adjustment",
            "dropped_messages": self.dropped,
        }

    async def _keep_partial(self, reply: Reply) -> None:
        """Store a reply that was cut off, with results for calls that will have none."""
        if not reply.is_blank:
            message = reply.message(self.model, interrupted=True)
            await self._store(message, *interrupted(reply.calls))

    async def _store(self, *messages: AssistantMessage | ToolMessage) -> None:
        """Append, to the end even when the client leaves meanwhile."""
        await finish(self._append(messages))

    async def _append(self, messages: tuple[AssistantMessage | ToolMessage, ...]) -> None:
        def change(session: ChatSession) -> None:
            session.append(*messages)
            if self.window is not None:
                metadata = session.metadata
                metadata.context_window_config = record(metadata.context_window_config, self.window)

        await self.sessions.update(self.session_id, change)


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
