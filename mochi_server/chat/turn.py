"""A turn: a user's message until the model has nothing more to say.

The order in which things reach the disk: the user message before the model is called, the
assistant message before its calls run, all results of a round in one write, the final message
before ``message_complete``. What came before a cut is kept and marked as interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from ..errors import JSONObject, ResponseFormatNotMet
from ..protocol.events import (
    ContentDelta,
    Event,
    MessageComplete,
    ReplyRetry,
    ToolContinuationStart,
)
from ..protocol.messages import AssistantMessage, ToolCall
from ..protocol.response_format import ResponseFormat
from ..providers.common.tools import without_nulls
from ..services.requests import RequestExtras
from ..services.response_format import problem_in, repair_messages
from .conversation import Conversation, calls_of
from .find_tools import ToolShelf
from .reply import Reply
from .runs.run import Run
from .tool_calls.handling import ToolCalls


@dataclass(slots=True, kw_only=True)
class Turn:
    """A turn that may run: everything was checked, and the session is claimed."""

    run: Run
    conversation: Conversation
    calls: ToolCalls
    max_rounds: int
    """Rounds of tool calls; after them the model has to answer without."""
    claim: AsyncExitStack
    client_tools: Mapping[str, JSONObject] = field(default_factory=dict)
    """Schemas of the functions that the client runs, by name: a call of one ends the turn."""
    must_call: bool = False
    """Whether the first reply must call a tool."""
    open_reply: AssistantMessage | None = None
    """The session's last reply, where an earlier process began the turn and calls are open."""

    @property
    def session_id(self) -> str:
        return self.conversation.session_id

    @property
    def model(self) -> str:
        return self.conversation.model.full_name

    async def release(self) -> None:
        await self.claim.aclose()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """Run the turn; yield its events, those that come together in one list.

        However it ends, what came so far is stored.
        """
        conversation = self.conversation
        own = self.calls.offer()
        of_clients = [*self.client_tools.values()]
        offered = RequestExtras(tools=[*own, *of_clients], must_call=self.must_call)
        shelf = await self._shelf(offered.tools)
        clients = RequestExtras(tools=of_clients, withheld=own, must_call=self.must_call)
        response_format = conversation.requests.response_format
        repair: RequestExtras | None = None
        rounds = self.run.rounds
        is_over = False
        if self.open_reply is not None:
            rounds += 1
            is_over = bool(self._of_client(calls_of(self.open_reply)))
            async with aclosing(self._resume(self.open_reply)) as batches:
                async for events in batches:
                    yield events
        reply = Reply()
        while not is_over:
            offered, clients = await self._on_offer(shelf, offered, clients)
            exhausted = rounds >= self.max_rounds
            extras = repair or (clients if exhausted or self.calls.must_answer else offered)
            async with aclosing(conversation.ask(reply, extras)) as batches:
                async for deltas in batches:
                    yield deltas
            if extras is offered and not reply.has_answer and await conversation.has_result_last():
                self.calls.must_answer = True
                continue
            reply.calls = [self._without_nulls(call) for call in reply.calls]
            if extras is not offered and (answer := self._withhold_calls(reply, repair)):
                yield answer
            if not self._only_finds(reply, shelf):
                offered, clients = (replace(each, must_call=False) for each in (offered, clients))
            problem = await self._problem_in(reply, response_format)
            if problem and response_format and not repair:
                repair = RequestExtras(
                    messages=repair_messages(reply.text, problem, response_format)
                )
                yield [ReplyRetry(problem=problem)]
                reply = Reply()
                continue
            is_over = not reply.calls or bool(self._of_client(reply.calls))
            step = self._end(reply, problem, exhausted=exhausted) if is_over else self._go_on(reply)
            async with aclosing(step) as batches:
                async for events in batches:
                    yield events
            rounds += 1
            reply = Reply()

    async def _shelf(self, tools: Sequence[JSONObject]) -> ToolShelf | None:
        """Return the shelf of tools that are too many, and let the model call what finds them."""
        shelf = await self.conversation.shelf(tools)
        if shelf is not None:
            self.calls.tools = {**self.calls.tools, shelf.finder.name: shelf.finder}
        return shelf

    async def _on_offer(
        self, shelf: ToolShelf | None, offered: RequestExtras, clients: RequestExtras
    ) -> tuple[RequestExtras, RequestExtras]:
        """Return what requests carry, of a shelf those tools alone that are in use."""
        if shelf is None:
            return offered, clients
        tools, others = await self.conversation.on_offer(shelf)
        of_clients = [tool for tool in tools if tool in self.client_tools.values()]
        not_of_clients = [tool for tool in tools if tool not in of_clients]
        offered = replace(offered, tools=tools, withheld=others)
        return offered, replace(clients, tools=of_clients, withheld=[*not_of_clients, *others])

    def _only_finds(self, reply: Reply, shelf: ToolShelf | None) -> bool:
        """Return whether all calls of a reply look for tools: no such call meets a demand."""
        return (
            shelf is not None
            and bool(reply.calls)
            and all(call.name == shelf.finder.name for call in reply.calls)
        )

    def _withhold_calls(self, reply: Reply, repair: RequestExtras | None) -> list[Event]:
        """Take calls of tools that are not offered any more out of a reply.

        If that leaves nothing, the last results are the answer, but not in place of a repaired one.
        """
        reply.calls = self._of_client(reply.calls)
        answer = "" if reply.has_answer or repair else self.calls.answer()
        return reply.add([ContentDelta(answer)]) if answer else []

    def _without_nulls(self, call: ToolCall) -> ToolCall:
        """Return a call as its function takes it; tools of the server see to it themselves."""
        tool = self.client_tools.get(call.name)
        if tool is None:
            return call
        return call.model_copy(update={"arguments": without_nulls(call.arguments, tool)})

    async def _problem_in(self, reply: Reply, response_format: ResponseFormat | None) -> str | None:
        """Return why an answer does not have the response format, if there is one."""
        if response_format is None or reply.calls:
            return None
        try:
            return await problem_in(reply.text, response_format)
        except BaseException:
            await self.conversation.store_partial(reply)
            raise

    async def _go_on(self, reply: Reply) -> AsyncGenerator[list[Event], None]:
        """Run the calls of a reply, after whose results the model is asked again."""
        async with aclosing(self.conversation.run_calls(reply, self.calls)) as batches:
            async for events in batches:
                yield events
        yield [ToolContinuationStart()]

    async def _end(
        self, reply: Reply, problem: str | None, *, exhausted: bool
    ) -> AsyncGenerator[list[Event], None]:
        """Store the last reply, and run those of its calls that are not the client's.

        Raises:
            ResponseFormatNotMet: there is a problem with its form.
        """
        conversation = self.conversation
        complete = partial(self._complete, reply=reply, exhausted=exhausted)
        is_last = problem is None and self._of_client(reply.calls) == reply.calls
        message = await conversation.store_answer(
            reply, is_whole=problem is None, complete=complete if is_last else None
        )
        if problem is not None:
            raise ResponseFormatNotMet(
                model=conversation.model.full_name,
                reason=problem,
                details={
                    "message_id": message.message_id,
                    "finish_reason": reply.finish.reason if reply.finish else None,
                },
            )
        async with aclosing(self._run_open(message)) as batches:
            async for events in batches:
                yield events
        yield [self.run.complete or complete(message)]

    async def _resume(self, reply: AssistantMessage) -> AsyncGenerator[list[Event], None]:
        """Run what an earlier process has left of a reply's calls."""
        async with aclosing(self._run_open(reply)) as batches:
            async for events in batches:
                yield events
        is_clients = self._of_client(calls_of(reply))
        yield [self._complete(reply) if is_clients else ToolContinuationStart()]

    def _of_client(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls of a reply that end the turn, as the client answers them.

        They are those of its functions, and beside them those of tools that nobody has.
        """
        if not any(call.name in self.client_tools for call in calls):
            return []
        return [call for call in calls if call.name not in self.calls.tools]

    async def _run_open(self, reply: AssistantMessage) -> AsyncGenerator[list[Event], None]:
        """Run the calls of a stored reply that are not the client's."""
        all_calls = calls_of(reply)
        of_client = {call.id for call in self._of_client(all_calls)}
        calls = [call for call in all_calls if call.id not in of_client]
        if calls:
            async with aclosing(self.conversation.run_stored_calls(calls, self.calls)) as batches:
                async for events in batches:
                    yield events

    def _complete(
        self, message: AssistantMessage, reply: Reply | None = None, *, exhausted: bool = False
    ) -> MessageComplete:
        conversation = self.conversation
        calls = self._of_client(calls_of(message))
        reason = reply.finish.reason if reply is not None and reply.finish else None
        return MessageComplete(
            message_id=message.message_id or "",
            model=conversation.model.full_name,
            eval_count=message.eval_count,
            prompt_eval_count=message.prompt_eval_count,
            context_window=conversation.requests.window_payload(message),
            finish_reason="tool_calls" if calls else reason,
            stop_sequence=reply.finish.stop_sequence if reply and reply.finish else None,
            tool_rounds_exhausted=exhausted,
            ignored_options=self._ignored_options(),
            client_calls=[
                {"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
            ]
            or (),
            timestamp=message.timestamp,
            message=message.as_stored(),
        )

    def _ignored_options(self) -> tuple[str, ...]:
        requests = self.conversation.requests
        ignored = tuple(requests.ignored_options)
        is_ignored = self.must_call and not requests.can_demand_calls
        return (*ignored, "tool_choice") if is_ignored else ignored
