"""One session and its model: ask, and store what comes of it.

Turns of people and the work of agents are two loops over this. It tries once more when the prompt
was too long after all, and keeps what came before a cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from ..core.aio import in_thread_if, run_to_completion
from ..errors import ContextOverflow, ProviderError
from ..protocol.events import Event
from ..protocol.messages import AssistantMessage, ToolMessage, UserMessage
from ..providers.base import ModelRequest, Think
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService, learn_window
from ..services.history import objects
from ..services.requests import NO_EXTRAS, ChatModel, RequestBuilder, RequestExtras, RequestLimits
from ..sessions import ChatSession, SessionManager
from ..sessions.session import encode_messages
from .reply import Reply
from .tool_calls import Results, ToolCalls, interrupted, unanswered

MANY_MESSAGES = 200
"""More of them are encoded in a thread."""

StoredMessages = deque[AssistantMessage | ToolMessage]
"""What a turn has stored, for a reader who wants whole messages and takes them out."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Asks one model about one session, whose claim the caller holds."""

    session_id: str
    session: ChatSession | None
    """The session as it was saved last; dropped once the request is built."""
    model: ChatModel
    requests: RequestBuilder
    sessions: SessionManager
    preempt: Callable[[str, str], None]
    """Called with model and session before each request: background work on the server yields."""
    stored_messages: StoredMessages | None
    """Gets every message that is stored, before the events that follow from it are there."""

    async def ask(
        self, reply: Reply, extras: RequestExtras = NO_EXTRAS
    ) -> AsyncGenerator[list[Event], None]:
        """Ask the model; its deltas in batches, all of its reply in ``reply``.

        A prompt that turns out too long is tried once more, with a larger window or less history,
        where there is either.
        What came before an error or a cancellation is stored, marked as interrupted.

        Raises:
            MochiError: the model gave no whole reply.
        """
        retried = False
        self.preempt(self.model.full_name, self.session_id)
        request = await self._request(extras)
        while True:
            try:
                async with aclosing(self.model.provider.batches(request)) as batches:
                    del request  # it may be long, and a stream lives long
                    async for chunks in batches:
                        if deltas := reply.add(chunks):
                            yield deltas
                        self._check_size(reply)
            except BaseException as error:
                if isinstance(error, ContextOverflow) and reply.is_blank and not retried:
                    retried, before = True, self.requests.extent
                    self.requests.make_room(error)
                    request = await self._request(extras)
                    if self.requests.extent != before:
                        continue
                await self._keep_partial(reply)
                raise
            return

    async def run_calls(self, reply: Reply, calls: ToolCalls) -> AsyncGenerator[list[Event], None]:
        """Store what the model said, do what it asked, store all results in one write."""
        results: Results = [None] * len(reply.calls)
        try:
            await self.store(reply.message(self.model.full_name))
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
                await self.store(reply.message(self.model.full_name))
            reason = reply.finish.reason if reply.finish else None
            raise ProviderError(
                "The model ended its reply without any text.",
                details={"model": self.model.full_name, "finish_reason": reason},
            )
        message = reply.message(self.model.full_name)
        await self.store(message)
        self.requests.learn(message)
        return message

    async def store(self, *messages: AssistantMessage | ToolMessage) -> None:
        """Append, to the end even when the client leaves meanwhile."""
        await run_to_completion(self._append(messages))

    def _check_size(self, reply: Reply) -> None:
        """End a reply of which enough has come.

        Raises:
            ProviderError: it is larger than ``MOCHI_MAX_REPLY_MB``.
        """
        most = self.requests.limits.max_reply_mb
        if most is not None and reply.size > most * 10**6:
            raise ProviderError(
                f"The model's reply is longer than {most:g} MB (MOCHI_MAX_REPLY_MB).",
                details={"model": self.model.full_name, "incomplete": True},
            )

    async def _request(self, extras: RequestExtras) -> ModelRequest:
        session = self.session or await self.sessions.get(self.session_id)
        self.session = None
        return await self.requests.build(session, extras)

    async def _keep_partial(self, reply: Reply) -> None:
        """Store a reply that was cut off, with results for calls that will have none."""
        if not reply.is_blank:
            message = reply.message(self.model.full_name, interrupted=True)
            await self.store(message, *interrupted(reply.calls, [None] * len(reply.calls)))

    async def _append(self, messages: tuple[AssistantMessage | ToolMessage, ...]) -> None:
        # A reply may have thousands of calls, each with its result.
        lines = await in_thread_if(len(messages) > MANY_MESSAGES, encode_messages, messages)

        def change(session: ChatSession) -> None:
            session.extend(lines)
            self.requests.note_window(session)

        await self.sessions.update(self.session_id, change)
        if self.stored_messages is not None:
            self.stored_messages.extend(messages)


class Conversations:
    """Opens conversations: finds the model, and gives all of them the same bounds and windows."""

    def __init__(
        self,
        *,
        providers: ProviderRegistry,
        windows: DynamicContextWindowService,
        limits: RequestLimits,
        preempt: Callable[[str, str], None],
    ) -> None:
        """Open nothing yet.

        Args:
            providers: Whose models there are.
            windows: What is known of the models' windows.
            limits: For each request.
            preempt: Called with model and session before each request.
        """
        self._providers = providers
        self._windows = windows
        self._limits = limits
        self._preempt = preempt

    async def find_model(
        self, full_name: str, *, think: Think = False, tools: bool = False
    ) -> ChatModel:
        """A model that is there and can do what is asked; how large it is loaded is known then.

        Raises:
            ThinkingNotSupported, ToolsNotSupported: it is known not to.
            ModelNotFound, ProviderNotConfigured, ProviderUnreachable, ProviderError.
        """
        provider, name = self._providers.resolve(full_name)
        info = await self._providers.show_model(full_name)
        model = ChatModel(full_name=full_name, name=name, info=info, provider=provider)
        model.check_thinking(think)
        if tools:
            model.check_tools()
        await learn_window(self._windows, full_name, provider, name)
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
        """A conversation about this session, as it was saved last, whose claim the caller holds."""
        return Conversation(
            session_id=session.session_id,
            session=session,
            model=model,
            requests=RequestBuilder(
                model=model, think=think, limits=self._limits, windows=self._windows
            ),
            sessions=sessions,
            preempt=self._preempt,
            stored_messages=stored_messages,
        )


def add_question(session: ChatSession, message: str) -> None:
    """Add a user's message, and results for calls that a crash has left without any."""
    session.append(*unanswered(objects(session.tail())), UserMessage(content=message))
