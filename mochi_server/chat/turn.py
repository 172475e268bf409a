"""A turn: a user's message until the model has nothing more to say; and the turns that run.

The order in which things reach the disk: the user message before the model is called, the
assistant message before its calls run, all results of a round in one write, the final message
before ``message_complete``. What came before a cut is kept and marked as interrupted.

Each turn is a task that writes a log. Anyone with the session's id can stop it, and the last reader
that leaves its log cancels it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from ..core.logs import one_line
from ..errors import InternalError, MochiError, ShuttingDown
from ..protocol.events import Done, ErrorEvent, Event, MessageComplete, ToolContinuationStart
from ..services.requests import NO_EXTRAS, RequestExtras
from .conversation import Conversation
from .log import TurnLog, cancel_once_begun
from .reply import Reply
from .tool_calls import ToolCalls

logger = logging.getLogger(__name__)

SAVE_SECONDS = 3.0
"""Seconds for the saves of turns that were ended, on top of any limit."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """A turn that may run: everything was checked, and the session is claimed."""

    run_id: str
    conversation: Conversation
    calls: ToolCalls
    max_rounds: int
    """Rounds of tool calls; after them the model has to answer without."""
    claim: AsyncExitStack

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
        rounds = 0
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
            message=message.as_stored(),
        )


class TurnRegistry:
    """The running turns of this process, by session."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[asyncio.Task[None], TurnLog]] = {}
        self._stop_reasons: dict[str, MochiError] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._running)

    def check_open(self) -> None:
        """Raise :class:`ShuttingDown` while the server stops."""
        if self._closed:
            raise ShuttingDown

    def is_running(self, session_id: str) -> bool:
        return session_id in self._running

    def start(self, turn: Turn) -> TurnLog:
        """Run the turn until it ends, is stopped, or its last reader leaves."""
        log = TurnLog()
        task = asyncio.get_running_loop().create_task(self._run(turn, log))
        self._running[turn.session_id] = (task, log)
        log.task_to_cancel = task
        if self._closed:  # it was opened just before
            self.stop(turn.session_id, ShuttingDown())
        return log

    def stop(self, session_id: str, reason: MochiError) -> bool:
        """End the session's turn with an error and keep what it has; return whether one ran."""
        running = self._running.get(session_id)
        if running is None:
            return False
        self._stop_reasons.setdefault(session_id, reason)
        cancel_once_begun(running[0])
        return True

    def stop_all(self) -> None:
        """Refuse new turns and end the running ones: the server is stopping."""
        self._closed = True
        for session_id in list(self._running):
            self.stop(session_id, ShuttingDown())

    async def wait_closed(self, seconds: float) -> None:
        """Wait until no turn runs, for at most so many seconds and ``SAVE_SECONDS``."""
        tasks = [task for task, _ in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds + SAVE_SECONDS)

    async def _run(self, turn: Turn, log: TurnLog) -> None:
        error: MochiError | None = None
        labels = _labels(turn.session_id, turn.run_id, turn.model)
        try:
            async with aclosing(turn.events()) as batches:
                async for events in batches:
                    log.extend(events)
        except asyncio.CancelledError:
            error = self._stop_reasons.get(turn.session_id)
            if error is None:
                logger.info("Turn interrupted, its last reader has left: %s", labels)
                raise
            logger.info("Turn stopped: %s code=%s", labels, error.code)
        except MochiError as failure:
            log_failure(turn.session_id, turn.run_id, turn.model, failure)
            error = failure
        except Exception:
            error = InternalError()
            logger.exception("Turn failed: %s code=%s", labels, error.code)
        finally:
            await self._end(turn, log, error)

    async def _end(self, turn: Turn, log: TurnLog, error: MochiError | None) -> None:
        """Free the session first: who sees ``done`` may send the next message at once."""
        log.task_to_cancel = None
        try:
            await turn.release()
        finally:
            self._running.pop(turn.session_id, None)
            self._stop_reasons.pop(turn.session_id, None)
            if error is not None:
                log.append(ErrorEvent.of(error))
            log.append(Done(session_id=turn.session_id))
            log.close(error)


def _labels(session_id: str, run_id: str, model: str) -> str:
    return f"session={session_id} run={run_id} model={one_line(model)}"


def log_failure(session_id: str, run_id: str, model: str, error: MochiError) -> None:
    """Log that a turn failed, in one line with the message that the client gets."""
    logger.warning(
        "Turn failed: %s code=%s: %s",
        _labels(session_id, run_id, model),
        error.code,
        one_line(error.message),
    )
