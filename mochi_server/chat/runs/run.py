"""A run that this process executes: its log for readers, its journal for everybody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import anyio
from typing_extensions import Self

from ...core.caller import current_caller
from ...errors import ConfirmationUnavailable, JSONObject, RunInterrupted
from ...protocol.events import (
    AgentStart,
    ConfirmationRequired,
    Event,
    MessageComplete,
    RunStart,
    ToolInputRequired,
    ToolResultReady,
)
from ...protocol.messages import AssistantMessage, ToolMessage
from ..journal.base import RunWriter
from ..journal.journal import RunJournal
from ..journal.records import RECOVERY_JUMP, RunHead
from .log import DELTAS, RunLog
from .observer import ObservedRequest, RunObserver
from .progress import AgentProgress, RunProgress

_AT_ONCE = (RunStart, ConfirmationRequired, ToolInputRequired, ToolResultReady, AgentStart)
"""Events that are in the journal before a reader sees them: others depend on them.

In a batch, such an event must be the last. Of a run that is cancelled meanwhile it is written with
the end.
"""

RETRY_SECONDS = 0.05
"""Pause before the journal is tried again, by who cannot go on without it."""


class Run:
    """A run of this process; what happens is noted in its journal before it is acted on."""

    def __init__(self, head: RunHead, journal: RunJournal, log: RunLog | None = None) -> None:
        self.head = head
        self.slot_holder = current_caller().slot_holder
        """Who has the slot that it takes; of one that waited, whoever has decided."""
        self.log = log or RunLog(head.first_event)
        self.before: RunProgress | None = None
        """How far earlier processes have brought it; None for a new run."""
        self.can_park = True
        """Whether it may be let go while it waits: its session must outlive its turn."""
        self.is_parked = False
        """Whether its task ends because it only waits for a person: nothing is stored then."""
        self._branches = 1
        self._waiting = 0
        self.message_id: str | None = None
        """Id of the last message of the model that was stored, or is being stored now."""
        self.complete: MessageComplete | None = None
        """What readers are told of the answer that is stored, if it ends the run."""
        self.begun = asyncio.Event()
        """Set when the journal says that it has begun, or that it has ended before."""
        self.observers: Sequence[RunObserver] = ()
        self._journal = journal
        self._writer: RunWriter

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken it: nothing of it is stored or noted here any more."""
        return self._writer.is_lost

    @property
    def run_id(self) -> str:
        return self.head.run_id

    @classmethod
    def resumed(
        cls, before: RunProgress, log: RunLog, journal: RunJournal, writer: RunWriter
    ) -> Self:
        """Return a run that waited, with the writer that was taken for it.

        Its numbers jump ahead: a killed process may have shown more than the journal has.
        """
        run = cls(before.head, journal, log)
        log.jump(before.next_event + RECOVERY_JUMP)
        run.before = before
        run._writer = writer
        return run

    def begin(self) -> None:
        """Begin the journal, or go on with it."""
        if self.before is None:
            self._writer = self._journal.begin(self.head)
        else:
            self._writer.note("resumed")

    async def enqueue(self) -> None:
        """Note that it waits until the runs before it have ended."""
        self.begin()
        await self._journal.flush(self._writer, unless_failing=True)

    def leave_queue(self, head: RunHead) -> None:
        """Take a number: it is about to begin."""
        self.head = head
        self.log.jump(head.first_event)

    @property
    def rounds(self) -> int:
        """Rounds of tool calls that earlier processes have finished."""
        return 0 if self.before is None else self.before.fold.reply

    def agent_of(self, call_id: str) -> AgentProgress | None:
        """Return what earlier processes have done in a call of an agent."""
        return None if self.before is None else self.before.agents.get(call_id)

    @property
    def is_let_go(self) -> bool:
        """Whether it goes on in another process, or later: nothing of it is stored here then."""
        return self.is_parked or self.is_lost

    async def is_given_up(self) -> bool:
        """Return whether it goes on elsewhere, also if that was not noticed until now."""
        await self._journal.find_out_losses()
        return self.is_let_go

    async def is_surely_given_up(self) -> bool:
        """Return whether it goes on elsewhere.

        Raises:
            ConfirmationUnavailable: that cannot be known now.
        """
        if not await self._journal.find_out_losses():
            raise ConfirmationUnavailable(reason="whose the run is cannot be known")
        return self.is_let_go

    @property
    def is_waiting(self) -> bool:
        """Whether every branch waits for a person."""
        return 0 < self._waiting == self._branches

    @property
    def is_asking(self) -> bool:
        """Whether any branch waits for a person."""
        return self._waiting > 0

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Count a branch as one that waits; if the run is parked meanwhile, it does not go on."""
        self._waiting += 1
        try:
            yield
            if self.is_parked:
                await anyio.sleep_forever()
        finally:
            self._waiting -= 1

    @contextmanager
    def split(self, branches: int) -> Iterator[None]:
        """Replace the branch that starts calls by those that execute them."""
        self._branches += branches - 1
        try:
            yield
        finally:
            self._branches += 1

    def end_branch(self) -> None:
        """End one of the branches that ``split`` has begun."""
        self._branches -= 1

    async def emit(self, events: Sequence[Event]) -> None:
        """Add events to the journal and to the log, unless another process has taken the run."""
        self._writer.add(self.log.end, events)
        try:
            if isinstance(events[-1], _AT_ONCE):
                await self._journal.flush(self._writer, unless_failing=True)
            elif self._journal.has_leases:
                await self._journal.find_out_losses(unless_failing=True)
        finally:  # the journal has them under these numbers, also if this is cancelled
            if not self.is_lost:
                self.log.extend(events)
                if self.observers and not isinstance(events[0], DELTAS):
                    self._tell_observers(events)

    def _tell_observers(self, events: Sequence[Event]) -> None:
        for observer in self.observers:
            observer.on_events(self.head, events)

    @contextmanager
    def asking(self, session_id: str, provider: str, model: str) -> Iterator[ObservedRequest]:
        """Let observers know of a request to a model, from its begin to its end."""
        call = ObservedRequest(
            head=self.head, session_id=session_id, provider=provider, model=model
        )
        for observer in self.observers:
            observer.on_asked(call)
        try:
            yield call
        except BaseException as error:
            call.fail(error)
            raise
        finally:
            call.ended_at = time.perf_counter()
            for observer in self.observers:
                observer.on_answered(call)

    def stored(
        self,
        session_id: str,
        messages: Sequence[AssistantMessage | ToolMessage],
        complete: MessageComplete | None = None,
    ) -> None:
        """Tell readers of whole messages what is stored in the session of the run."""
        if session_id == self.head.session_id:
            self.log.stored(messages)
            self.complete = complete

    async def storing(
        self,
        session_id: str,
        messages: Sequence[AssistantMessage | ToolMessage],
        complete: MessageComplete | None = None,
    ) -> None:
        """Note that messages are about to be stored, which hold what was said until now.

        ``complete``: what readers are told once they are stored, if they end the run.

        Raises:
            RunInterrupted: another process has taken the run.
        """
        if session_id == self.head.session_id:
            for message in messages:
                if isinstance(message, AssistantMessage):
                    self.message_id = message.message_id
        ids = [message.message_id for message in messages]
        until = self.log.end - 1
        data = {} if complete is None else {"complete": complete.payload()}
        self._writer.note("storing", session_id=session_id, messages=ids, until=until, **data)
        await self._flush()

    async def started(
        self,
        session_id: str,
        call_id: str,
        arguments: JSONObject | None = None,
        *,
        seconds: float = 0.0,
    ) -> bool:
        """Note that a call is about to run, which must not run twice; return whether it is written.

        Args:
            session_id: The session of its conversation.
            call_id: The call.
            arguments: Those that a person has changed; None: they are the model's.
            seconds: Longest time to try again, where it cannot be written.

        Raises:
            RunInterrupted: another process has taken the run.
        """
        data = {} if arguments is None else {"arguments": arguments}
        line = self._writer.note("started", session_id=session_id, call=call_id, **data)
        await self._flush()
        with anyio.move_on_after(seconds):
            while not self._writer.is_written(line):
                await anyio.sleep(RETRY_SECONDS)
                await self._flush(unless_failing=False)
        return self._writer.is_written(line)

    def result(self, session_id: str, message: ToolMessage) -> None:
        """Note the result of a call, which is stored when all calls of its reply have ended."""
        self._writer.note("result", session_id=session_id, message=message.as_stored())

    def agent(self, call_id: str, session_id: str, begin: int) -> None:
        """Note the session of an agent, and how many messages it had before the agent's first."""
        self._writer.note("agent", call=call_id, session_id=session_id, begin=begin)

    async def end(
        self, state: str, last_events: Sequence[Event], **data: JSONObject | str | None
    ) -> None:
        """Note how the run ended, and add its last events, unless another process has taken it."""
        self._writer.add(self.log.end, last_events)
        self._writer.note("end", state=state, **data)
        await self._journal.close(self._writer)
        if not self.is_lost:
            self.log.extend(last_events)
            self._tell_observers(last_events)

    async def park(self) -> None:
        """Let the run go until somebody decides: no process has it then."""
        self._writer.note("waiting")
        await self._journal.close(self._writer)

    async def _flush(self, *, unless_failing: bool = True) -> None:
        await self._journal.flush(self._writer, unless_failing=unless_failing)
        if self.is_lost:
            raise RunInterrupted(run_id=self.run_id)
