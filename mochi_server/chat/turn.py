"""One turn: a user's message until the model has nothing more to say, as events.

The order in which things reach the disk: the user message before the model is called, the
assistant message before its calls run, all results of a round in one write, the final message
before ``message_complete``. What came before a cut is kept and marked as interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from ..protocol.events import Event, MessageComplete, ToolContinuationStart
from .conversation import Conversation
from .reply import Reply
from .requests import NOTHING, Beside
from .tool_calls import ToolCalls


@dataclass(slots=True, kw_only=True)
class Turn:
    """A turn that is allowed to run: everything was checked, and the session is claimed."""

    run_id: str
    conversation: Conversation
    calls: ToolCalls
    max_rounds: int
    """Times that tools may run; then the model has to answer without."""
    claim: AsyncExitStack

    @property
    def session_id(self) -> str:
        """Whose turn it is."""
        return self.conversation.session_id

    @property
    def model(self) -> str:
        """The full name of the model that is asked."""
        return self.conversation.model.full_name

    async def release(self) -> None:
        """Give the claim back; may be called again."""
        await self.claim.aclose()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The turn; events that come together are handed on together.

        Closing it, or cancelling its task, keeps what came so far.

        Raises:
            MochiError: the turn failed; what came so far is kept.
        """
        conversation = self.conversation
        offered = Beside(tools=self.calls.schemas())
        rounds = 0
        while True:
            reply = Reply()
            exhausted = rounds >= self.max_rounds
            beside = NOTHING if exhausted else offered
            async with aclosing(conversation.ask(reply, beside)) as batches:
                async for deltas in batches:
                    yield deltas
            if not reply.calls or exhausted:
                yield [await self._finish(reply, exhausted=exhausted)]
                return
            rounds += 1
            async with aclosing(conversation.run_calls(reply, self.calls)) as steps:
                async for events in steps:
                    yield events
            yield [ToolContinuationStart()]

    async def _finish(self, reply: Reply, *, exhausted: bool) -> MessageComplete:
        """Store the final message and say so.

        Raises:
            ProviderError: the model said nothing that a person could read.
        """
        if exhausted:
            reply.calls.clear()
        conversation = self.conversation
        message = await conversation.finish(reply)
        return MessageComplete(
            message_id=message.message_id or "",
            model=conversation.model.full_name,
            eval_count=message.eval_count,
            prompt_eval_count=message.prompt_eval_count,
            context_window=conversation.requests.window_payload(message),
            finish_reason=reply.finish.reason if reply.finish else None,
            tool_rounds_exhausted=exhausted,
            message=message.as_stored(),
        )
