"""A turn: a user's message until the model has nothing more to say.

The order in which things reach the disk: the user message before the model is called, the
assistant message before its calls run, all results of a round in one write, the final message
before ``message_complete``. What came before a cut is kept and marked as interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from ..protocol.events import Event, MessageComplete, ToolContinuationStart
from ..protocol.messages import ToolCall
from ..services.requests import NO_EXTRAS, RequestExtras
from .conversation import Conversation
from .reply import Reply
from .runs.run import Run
from .tool_calls import ToolCalls


@dataclass(slots=True, kw_only=True)
class Turn:
    """A turn that may run: everything was checked, and the session is claimed."""

    run: Run
    conversation: Conversation
    calls: ToolCalls
    max_rounds: int
    """Rounds of tool calls; after them the model has to answer without."""
    claim: AsyncExitStack
    open_calls: Sequence[ToolCall] = ()
    """Calls of the session's last reply, where an earlier process began the turn."""

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
        offered = RequestExtras(tools=self.calls.schemas())
        rounds = self.run.rounds
        if self.open_calls:
            rounds += 1
            stored = conversation.run_stored_calls(self.open_calls, self.calls)
            async with aclosing(stored) as batches:
                async for events in batches:
                    yield events
            yield [ToolContinuationStart()]
        while True:
            reply = Reply()
            exhausted = rounds >= self.max_rounds
            extras = NO_EXTRAS if exhausted else offered
            async with aclosing(conversation.ask(reply, extras)) as batches:
                async for deltas in batches:
                    yield deltas
            if not reply.calls or exhausted:
                yield [await self._complete(reply, exhausted=exhausted)]
                return
            rounds += 1
            async with aclosing(conversation.run_calls(reply, self.calls)) as batches:
                async for events in batches:
                    yield events
            yield [ToolContinuationStart()]

    async def _complete(self, reply: Reply, *, exhausted: bool) -> MessageComplete:
        if exhausted:
            reply.calls.clear()
        conversation = self.conversation
        message = await conversation.store_answer(reply)
        return MessageComplete(
            message_id=message.message_id or "",
            model=conversation.model.full_name,
            eval_count=message.eval_count,
            prompt_eval_count=message.prompt_eval_count,
            context_window=conversation.requests.window_payload(message),
            finish_reason=reply.finish.reason if reply.finish else None,
            tool_rounds_exhausted=exhausted,
            ignored_options=tuple(conversation.requests.ignored_options),
            message=message.as_stored(),
        )
