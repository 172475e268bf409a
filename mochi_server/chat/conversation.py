"""One session and its model: ask the model, and store what comes of it.

Turns of people and the work of agents are two loops over this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass

from ..core.aio import in_thread_if, run_to_completion
from ..errors import (
    ContextOverflow,
    InvalidRequest,
    JSONObject,
    MochiError,
    ProviderError,
    StorageUnavailable,
)
from ..protocol.completions import Chunk
from ..protocol.events import Event, HistoryCompacted, HistoryShortened, MessageComplete
from ..protocol.messages import AssistantMessage, Message, ToolCall, ToolMessage
from ..providers.base import ModelRequest
from ..providers.text_thinking import TextThinking
from ..services.chat_model import ChatModel
from ..services.compaction.service import CompactionService, FullHistory
from ..services.history import objects
from ..services.requests import NO_EXTRAS, RequestBuilder, RequestExtras
from ..sessions import ChatSession, SessionManager
from ..sessions.messages import MANY_MESSAGES, encode_messages
from .find_tools import ToolShelf, shelf_of
from .reply import Reply
from .runs.observer import ObservedRequest
from .runs.run import Run
from .text_calls import DemandedCall, TextCalls
from .tool_calls.handling import ToolCalls
from .tool_calls.results import Results, results_or_interrupted, unanswered
from .waiting_calls import WaitingCalls


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Asks one model about one session, which the caller has claimed."""

    session_id: str
    session: ChatSession | None
    """The session as it was saved last; dropped when it is used or changed."""
    last_message_id: str | None
    """Id of the last message as it was saved last; what is stored follows from it."""
    run_number: int
    """Which one of the session's runs it is part of."""
    model: ChatModel
    run: Run
    """The run that it is part of, whose journal gets what is about to be stored."""
    requests: RequestBuilder
    finds_text_calls: bool
    """Whether calls that the model writes as text are calls."""
    sessions: SessionManager
    preempt: Callable[[str, str], None]
    compaction: CompactionService

    async def compact_if_full(self) -> None:
        """Let a summary of the oldest messages be made if the window is nearly full."""
        room = self.requests.room
        if room is None or not self.requests.is_full:
            return
        is_sent = self.run.head.is_temporary and self.session_id == self.run.head.session_id
        with suppress(MochiError):  # it may be deleted by now
            self.compaction.schedule(
                FullHistory(
                    session_id=self.session_id,
                    model=self.model.full_name,
                    room=room,
                    sessions=self.sessions,
                    sent=await self.sessions.get(self.session_id) if is_sent else None,
                )
            )

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
        told = self._left_out()
        request = await self._request(extras)
        while True:
            if new := [each for each in self._left_out() if each not in told]:
                told = new
                yield new
            stages = TextStages(self._text_calls(extras))
            try:
                with self._asking() as call:
                    async with aclosing(self.model.provider.batches(request)) as batches:
                        del request  # it may be long, and a stream lives long
                        async for chunks in batches:
                            call.count(len(chunks))
                            if deltas := reply.add(stages.add(chunks)):
                                yield deltas
                            self._check_length(reply, longest)
                            if stages.is_over:
                                break
                    reply.separate_thinking()
                    call.finish = reply.finish
            except ContextOverflow as error:
                reply.add(stages.flush())
                if retried or not reply.is_empty:
                    await self.store_partial(reply)
                    raise
                retried, before = True, self.requests.extent
                self.requests.make_room(error)
                request = await self._request(extras)
                if self.requests.extent == before:
                    raise
                continue
            except BaseException:
                reply.add(stages.flush())
                await self.store_partial(reply)
                raise
            return

    async def has_result_last(self) -> bool:
        """Return whether the session ends with the result of a call."""
        session = await self.sessions.get(self.session_id)
        return bool(session.messages) and isinstance(session.messages[-1], ToolMessage)

    async def shelf(self, tools: Sequence[JSONObject]) -> ToolShelf | None:
        """Return the shelf of tools that are too many to be offered at once."""
        session = self.session or await self.sessions.get(self.session_id)
        return shelf_of(tools, self.requests, session)

    async def on_offer(self, shelf: ToolShelf) -> tuple[list[JSONObject], list[JSONObject]]:
        """Return the schemas of a shelf that the next request has, and the others."""
        session = self.session or await self.sessions.get(self.session_id)
        return shelf.on_offer(session)

    def _left_out(self) -> list[Event]:
        """Return what there is to tell about messages that the last request does not have."""
        requests = self.requests
        events: list[Event] = []
        if requests.summarised:
            events.append(
                HistoryCompacted(
                    summarised_messages=requests.summarised,
                    through_message_id=requests.through_message_id,
                )
            )
        if requests.dropped:
            events.append(HistoryShortened(dropped_messages=requests.dropped))
        return events

    def _text_calls(self, extras: RequestExtras) -> TextCalls | DemandedCall | None:
        """Return what finds calls in the text of a reply, where there can be some."""
        if self.requests.is_held_to_call(extras):
            return DemandedCall(extras.tools)
        tools = [*extras.tools, *extras.withheld]
        is_sought = self.requests.is_prompted or (
            self.finds_text_calls and not self.requests.response_format
        )
        return TextCalls(tools) if tools and is_sought else None

    def _asking(self) -> AbstractContextManager[ObservedRequest]:
        return self.run.asking(self.session_id, self.model.provider.alias, self.model.name)

    def _check_length(self, reply: Reply, longest: float) -> None:
        if reply.size <= longest:
            return
        text = f"The model's reply is longer than {longest / 10**6:g} MB (MOCHI_MAX_BODY_MB)."
        raise ProviderError(text, details={"model": self.model.full_name, "incomplete": True})

    async def run_calls(self, reply: Reply, calls: ToolCalls) -> AsyncGenerator[list[Event], None]:
        """Store the reply, run its calls as events, store all results in one write."""
        try:
            await self.store(reply.message(self.model.full_name))
        except asyncio.CancelledError:  # it is stored all the same
            await self.store(*results_or_interrupted(reply.calls, [None] * len(reply.calls)))
            raise
        async with aclosing(self.run_stored_calls(reply.calls, calls)) as batches:
            async for events in batches:
                yield events

    async def run_stored_calls(
        self, calls: Sequence[ToolCall], handler: ToolCalls
    ) -> AsyncGenerator[list[Event], None]:
        """Run the calls of the session's last reply, store all results in one write."""
        results: Results = [None] * len(calls)
        try:
            async with aclosing(handler.run(calls, results)) as batches:
                async for events in batches:
                    yield events
        finally:
            if not self.run.is_let_go:
                await self.store(*results_or_interrupted(calls, results))

    async def store_answer(
        self,
        reply: Reply,
        *,
        is_whole: bool = True,
        complete: Callable[[AssistantMessage], MessageComplete] | None = None,
    ) -> AssistantMessage:
        """Store a reply without calls, which a person can read, and return its message.

        ``complete`` makes what readers are told of it, if it ends the run.
        """
        message = reply.message(self.model.full_name)
        if not reply.has_answer:
            if not reply.is_empty:
                await self.store(message)
            reason = reply.finish.reason if reply.finish else None
            raise ProviderError(
                "The model ended its reply without any text.",
                details={"model": self.model.full_name, "finish_reason": reason},
            )
        event = None if complete is None else complete(message)
        await self.store(message, is_whole=is_whole, complete=event)
        self.requests.learn(message)
        return message

    async def store(
        self,
        *messages: AssistantMessage | ToolMessage,
        is_whole: bool = False,
        complete: MessageComplete | None = None,
    ) -> None:
        """Append messages to the session, also if the caller is cancelled meanwhile.

        Args:
            messages: The first ones of a run take the place of the answer that it replaces.
            is_whole: Whether they complete the answer: then what was kept until now goes.
            complete: What readers are told of them, if they end the run.
        """
        await run_to_completion(self._append(messages, is_whole=is_whole, complete=complete))

    async def _append(
        self,
        messages: tuple[AssistantMessage | ToolMessage, ...],
        *,
        is_whole: bool,
        complete: MessageComplete | None,
    ) -> None:
        await self.run.storing(self.session_id, messages, complete)
        # A reply may have thousands of calls, each with its result.
        lines = await in_thread_if(len(messages) > MANY_MESSAGES, encode_messages, messages)

        def change(session: ChatSession) -> None:
            is_older = session.metadata.run_number < self.run_number
            if is_older or not session.has_message(self.last_message_id):
                reason = "what the turn has stored is gone; an earlier state may have been put back"
                raise StorageUnavailable(session_id=self.session_id, reason=reason)
            head = self.run.head
            if head.has_yet_to_replace(session):
                session.set_aside_answer(keep=head.request.keep)
            session.extend(lines)
            if is_whole:
                session.settle_variants(keep=head.request.keep)
            self.requests.note_window(session)

        await self.sessions.update(self.session_id, change)
        self.requests.note_stored(message.as_stored() for message in messages)
        self.session = None
        self.last_message_id = messages[-1].message_id
        self.run.stored(self.session_id, messages, complete)

    async def _request(self, extras: RequestExtras) -> ModelRequest:
        session = self.session or await self.sessions.get(self.session_id)
        self.session = None
        if self.run.head.has_yet_to_replace(session):
            session.truncate_after_last_user()
        return await self.requests.build(session, extras)

    async def store_partial(self, reply: Reply) -> None:
        """Store a reply that was cut off, with results for its calls, which will not run."""
        if not reply.is_empty:
            message = reply.message(self.model.full_name, interrupted=True)
            await self.store(
                message, *results_or_interrupted(reply.calls, [None] * len(reply.calls))
            )


class TextStages:
    """What a reply's chunks pass: text in them may be thinking, or calls."""

    __slots__ = ("_calls", "_thinking")

    def __init__(self, calls: TextCalls | DemandedCall | None) -> None:
        self._thinking = TextThinking()
        self._calls = calls

    def add(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return what is known now."""
        chunks = self._thinking.add(chunks)
        return chunks if self._calls is None else self._calls.add(chunks)

    @property
    def is_over(self) -> bool:
        """Whether nothing new comes, although the model goes on."""
        return self._calls is not None and self._calls.is_over

    def flush(self) -> Sequence[Chunk]:
        """Return what is held back, where the reply is cut off."""
        held = self._thinking.flush()
        return held if self._calls is None else [*self._calls.add(held), *self._calls.flush()]


def add_messages(session: ChatSession, messages: Sequence[Message]) -> None:
    """Add messages, before them results for calls that are left without any.

    A result without the id of its call is of the first one of its tool that waits.

    Raises:
        InvalidRequest: a result is of no call that waits for one.
    """
    missing = unanswered(objects(session.tail()))
    waiting = {result.tool_call_id for result in missing}
    messages = _with_call_ids(messages, missing)
    sent: set[str | None] = set()
    for call_id in (each.tool_call_id for each in messages if isinstance(each, ToolMessage)):
        if call_id not in waiting or call_id in sent:
            text = f"No call {call_id!r} waits for a result."
            raise InvalidRequest(text, details={"tool_call_id": call_id})
        sent.add(call_id)
    session.append(*(each for each in missing if each.tool_call_id not in sent), *messages)


def _with_call_ids(
    messages: Sequence[Message], missing: Sequence[ToolMessage]
) -> Sequence[Message]:
    """Return messages in which results without the id of a call have that of one that waits."""
    waiting = WaitingCalls((each.tool_call_id or "", each.tool_name or "") for each in missing)
    made: list[Message] = []
    for message in messages:
        if not isinstance(message, ToolMessage) or message.tool_call_id is not None:
            made.append(message)
        elif (call := waiting.take(None, message.tool_name or None)) is not None:
            found = {"tool_call_id": call[0], "tool_name": call[1]}
            made.append(message.model_copy(update=found))
        else:
            made.append(message)
    return made


def open_reply(session: ChatSession) -> AssistantMessage | None:
    """Return the last reply if it has calls whose results are not stored yet."""
    last = session.messages[-1] if session.messages else None
    if not isinstance(last, AssistantMessage) or last.interrupted or not last.tool_calls:
        return None
    return last


def calls_of(reply: AssistantMessage) -> list[ToolCall]:
    """Return the calls of a stored reply."""
    return [
        ToolCall(
            id=call["id"],
            name=call["function"]["name"],
            arguments=call["function"]["arguments"],
            recovered=call.get("recovered") is True,
        )
        for call in reply.tool_calls or []
    ]
