"""One session and its model: ask the model, and store what comes of it.

Turns of people and the work of agents are two loops over this.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import NoReturn

from ..core.aio import in_thread_if, run_to_completion
from ..errors import ContextOverflow, ProviderError
from ..protocol.events import Event
from ..protocol.messages import AssistantMessage, ToolMessage, UserMessage
from ..providers.base import ModelRequest, Think
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService, learn_window
from ..services.history import objects
from ..services.requests import (
    NO_EXTRAS,
    ChatModel,
    RequestBuilder,
    RequestExtras,
    RequestLimits,
)
from ..sessions import ChatSession, SessionManager
from ..sessions.session import encode_messages
from .reply import Reply
from .tool_calls import Results, ToolCalls, results_or_interrupted, unanswered

MANY_MESSAGES = 200
"""Number of messages above which they are encoded in a thread."""

StoredMessages = deque[AssistantMessage | ToolMessage]
"""Messages that a turn has stored; a reader who wants whole messages takes them out."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Asks one model about one session, which the caller has claimed."""

    session_id: str
    session: ChatSession | None
    """The session as it was saved last; dropped once the request is built."""
    model: ChatModel
    requests: RequestBuilder
    sessions: SessionManager
    preempt: Callable[[str, str], None]
    stored_messages: StoredMessages | None
    """Gets every message that is stored, before the events that follow from it."""

    async def ask(
        self, reply: Reply, extras: RequestExtras = NO_EXTRAS
    ) -> AsyncGenerator[list[Event], None]:
        """Ask the model; yield its deltas in batches and collect all of its reply in ``reply``.

        A prompt that turns out too long is tried once more, with a larger window or less history,
        where there is either. What came before an error or a cancellation is stored, marked as
        interrupted.

        Raises:
            MochiError: the model gave no whole reply.
        """
        retried = False
        longest = self.requests.limits.max_reply_bytes
        self.preempt(self.model.full_name, self.session_id)
        request = await self._request(extras)
        while True:
            try:
                async with aclosing(self.model.provider.batches(request)) as batches:
                    del request  # it may be long, and a stream lives long
                    async for chunks in batches:
                        if deltas := reply.add(chunks):
                            yield deltas
                        if reply.size > longest:
                            self._refuse_longer(longest)
            except ContextOverflow as error:
                if retried or not reply.is_empty:
                    await self._store_partial(reply)
                    raise
                retried, before = True, self.requests.extent
                self.requests.make_room(error)
                request = await self._request(extras)
                if self.requests.extent == before:
                    raise
                continue
            except BaseException:
                await self._store_partial(reply)
                raise
            return

    def _refuse_longer(self, longest: float) -> NoReturn:
        text = f"The model's reply is longer than {longest / 10**6:g} MB (MOCHI_MAX_REPLY_MB)."
        raise ProviderError(text, details={"model": self.model.full_name, "incomplete": True})

    async def run_calls(self, reply: Reply, calls: ToolCalls) -> AsyncGenerator[list[Event], None]:
        """Store the reply, run its calls as events, store all results in one write."""
        results: Results = [None] * len(reply.calls)
        try:
            await self.store(reply.message(self.model.full_name))
        except asyncio.CancelledError:  # it is stored all the same
            await self.store(*results_or_interrupted(reply.calls, results))
            raise
        try:
            async with aclosing(calls.run(reply.calls, results)) as batches:
                async for events in batches:
                    yield events
        finally:
            await self.store(*results_or_interrupted(reply.calls, results))

    async def store_answer(self, reply: Reply) -> AssistantMessage:
        """Store a reply without calls, which a person can read, and return its message."""
        message = reply.message(self.model.full_name)
        if not reply.has_answer:
            if not reply.is_empty:
                await self.store(message)
            reason = reply.finish.reason if reply.finish else None
            raise ProviderError(
                "The model ended its reply without any text.",
                details={"model": self.model.full_name, "finish_reason": reason},
            )
        await self.store(message)
        self.requests.learn(message)
        return message

    async def store(self, *messages: AssistantMessage | ToolMessage) -> None:
        """Append messages to the session, also if the caller is cancelled meanwhile."""
        await run_to_completion(self._append(messages))

    async def _append(self, messages: tuple[AssistantMessage | ToolMessage, ...]) -> None:
        # A reply may have thousands of calls, each with its result.
        lines = await in_thread_if(len(messages) > MANY_MESSAGES, encode_messages, messages)

        def change(session: ChatSession) -> None:
            session.extend(lines)
            self.requests.note_window(session)

        await self.sessions.update(self.session_id, change)
        if self.stored_messages is not None:
            self.stored_messages.extend(messages)

    async def _request(self, extras: RequestExtras) -> ModelRequest:
        session = self.session or await self.sessions.get(self.session_id)
        self.session = None
        return await self.requests.build(session, extras)

    async def _store_partial(self, reply: Reply) -> None:
        """Store a reply that was cut off, with results for its calls, which will not run."""
        if not reply.is_empty:
            message = reply.message(self.model.full_name, interrupted=True)
            await self.store(
                message, *results_or_interrupted(reply.calls, [None] * len(reply.calls))
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Opens conversations, all with the same limits and context windows."""

    providers: ProviderRegistry
    windows: DynamicContextWindowService
    limits: RequestLimits
    preempt: Callable[[str, str], None]
    """Called with model and session before each request, to stop background work on the server."""

    async def find_model(
        self, full_name: str, *, think: Think = False, tools: bool = False
    ) -> ChatModel:
        """Find a model that can do what is wanted, and learn how large it is loaded.

        Raises:
            ThinkingNotSupported, ToolsNotSupported: it is known not to.
            ModelNotFound, ProviderNotConfigured, ProviderUnreachable, ProviderError.
        """
        provider, name = self.providers.resolve(full_name)
        info = await self.providers.show_model(full_name)
        model = ChatModel(full_name=full_name, name=name, info=info, provider=provider)
        model.check_thinking(think)
        if tools:
            model.check_tools()
        await learn_window(self.windows, full_name, provider, name)
        return model

    def open(
        self,
        session: ChatSession,
        model: ChatModel,
        *,
        sessions: SessionManager,
        think: Think = False,
        stored_messages: StoredMessages | None = None,
    ) -> Conversation:
        return Conversation(
            session_id=session.session_id,
            session=session,
            model=model,
            requests=RequestBuilder(
                model=model, think=think, limits=self.limits, windows=self.windows
            ),
            sessions=sessions,
            preempt=self.preempt,
            stored_messages=stored_messages,
        )


def add_question(session: ChatSession, message: str) -> None:
    """Add a user's message, and results for calls that a crash has left without any."""
    session.append(*unanswered(objects(session.tail())), UserMessage(content=message))
