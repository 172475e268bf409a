"""Asks a person about a call, on the stream of the person's conversation."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import anyio

from ..core.ids import new_confirmation_id
from ..errors import (
    ConfirmationNotFound,
    JSONObject,
    MochiError,
    ToolConfirmationTimeout,
    ToolExecutionDenied,
)
from ..protocol.events import ConfirmationDecided, ConfirmationRequired, Event, FieldPayload
from ..protocol.messages import ToolCall

REMEMBERED = 1000
"""Expired questions whose late decisions are told that they are late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest(FieldPayload):
    """The question that a person is asked; its payload is an entry of ``/confirmations``."""

    confirmation_id: str
    session_id: str
    """Of the conversation on whose stream the question appears."""
    tool_name: str
    tool_source: str
    """``Tool.source`` of the tool, for whoever validates changed arguments."""
    arguments: JSONObject
    call_index: int
    tool_call_id: str
    queue_position: int
    queue_total: int
    asked_at: str
    """UTC, microseconds, ``Z``."""
    expires_at: str
    agent_name: str | None = None
    agent_call_id: str | None = None
    """Which run of the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decided."""

    approved: bool
    reason: str | None = None
    arguments: JSONObject | None = None
    """Replaces the model's arguments as a whole; null leaves them."""


class Pending(ABC):
    """A registered question."""

    @abstractmethod
    async def decision(self) -> Decision:
        """Wait for the decision.

        Raises:
            ToolConfirmationTimeout: nobody decided in time; nobody can any more.
        """


class ApprovalBroker(ABC):
    """Registers questions and carries decisions to whoever waits for them."""

    timeout: float
    """Seconds that a question waits."""

    @abstractmethod
    def ask(self, request: ApprovalRequest) -> AbstractAsyncContextManager[Pending]:
        """Register the question; it can be decided from here on. Leaving the context forgets it."""

    @abstractmethod
    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> None:
        """Hand the decision to whoever waits; the first one counts.

        Raises:
            ConfirmationNotFound: unknown, of another session, or decided already.
            ToolConfirmationTimeout: it has expired.
        """

    @abstractmethod
    async def pending(self, session_id: str) -> list[ApprovalRequest]:
        """What waits for a decision in this session, oldest first."""

    async def check(self) -> bool:
        """Whether a question could be asked now."""
        return True

    @abstractmethod
    async def aclose(self) -> None:
        """Give back what the broker holds; may be called again."""


class LocalApprovals(ApprovalBroker):
    """Questions and decisions within one process."""

    def __init__(self, *, timeout: float = 300.0) -> None:
        self.timeout = timeout
        self._waiting: dict[str, _LocalPending] = {}
        self._expired: dict[str, str] = {}

    @asynccontextmanager
    async def ask(self, request: ApprovalRequest) -> AsyncIterator[Pending]:
        """See the base class."""
        pending = _LocalPending(self, request)
        self._waiting[request.confirmation_id] = pending
        try:
            yield pending
        finally:
            self._waiting.pop(request.confirmation_id, None)

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> None:
        """See the base class."""
        pending = self._waiting.get(confirmation_id)
        if pending is not None and pending.request.session_id == session_id:
            del self._waiting[confirmation_id]
            pending.future.set_result(decision)
        elif self._expired.get(confirmation_id) == session_id:
            raise ToolConfirmationTimeout(confirmation_id=confirmation_id)
        else:
            raise ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)

    async def pending(self, session_id: str) -> list[ApprovalRequest]:
        """See the base class."""
        requests = [pending.request for pending in self._waiting.values()]
        return [request for request in requests if request.session_id == session_id]

    def expire(self, request: ApprovalRequest) -> None:
        """Nobody can decide it any more."""
        self._waiting.pop(request.confirmation_id, None)
        self._expired[request.confirmation_id] = request.session_id
        while len(self._expired) > REMEMBERED:
            self._expired.pop(next(iter(self._expired)))

    async def aclose(self) -> None:
        """See the base class."""


class _LocalPending(Pending):
    def __init__(self, broker: LocalApprovals, request: ApprovalRequest) -> None:
        self.request = request
        self.future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._broker = broker

    async def decision(self) -> Decision:
        with anyio.move_on_after(self._broker.timeout):
            await asyncio.wait({self.future})
        if not self.future.done():
            self._broker.expire(self.request)
            raise ToolConfirmationTimeout(confirmation_id=self.request.confirmation_id)
        return self.future.result()


DENIED = "the user denied this call."
NOBODY = "nobody confirmed the call within {seconds:g} seconds."
NOT_ASKED = (
    "this call must be confirmed by a person, and nobody is asked in a reply in one piece. Stream "
    'the reply, or send "confirmations": "wait" and confirm the call meanwhile, or change the '
    "session's execution_policy, or its tool_policies where they name the tool."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call that must be confirmed, and its place among those of the reply."""

    call: ToolCall
    arguments: JSONObject
    """What will run: coerced, with the defaults of what the model left out."""
    call_index: int
    tool_source: str
    position: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a question."""

    approved: bool
    reason: str | None = None
    """For the model, when it is not approved."""
    code: str | None = None
    arguments: JSONObject | None = None
    """What the person made of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks through a broker, or denies at once where nobody can be asked."""

    broker: ApprovalBroker
    session_id: str
    """Of the conversation on whose stream the question appears."""
    wait: bool = True
    agent_name: str | None = None
    agent_call_id: str | None = None

    def for_agent(self, name: str, call_id: str) -> Asker:
        """The same, for the calls of an agent that was started by this call."""
        return replace(self, agent_name=name, agent_call_id=call_id)

    async def ask(self, question: Question) -> AsyncGenerator[Event | Verdict, None]:
        """Events while a person is asked, and exactly one verdict, before the last event.

        Registered before it is announced. Where the broker fails, the call is denied; a question
        that could not be registered has no events.
        """
        if not self.wait:
            yield Verdict(approved=False, reason=NOT_ASKED, code=ToolExecutionDenied.code)
            return
        request = self._request(question)
        announced = False
        try:
            async with self.broker.ask(request) as pending:
                announced = True
                yield self._required(request)
                decision, code = await pending.decision(), None
        except ToolConfirmationTimeout:
            reason = NOBODY.format(seconds=self.broker.timeout)
            decision = Decision(approved=False, reason=reason)
            code = ToolConfirmationTimeout.code
        except MochiError as error:
            reason = f"nobody could be asked: {error.message}"
            decision, code = Decision(approved=False, reason=reason), error.code
        yield _verdict(decision, code)
        if announced:
            yield self._decided(request, decision, code)

    def _request(self, question: Question) -> ApprovalRequest:
        asked = datetime.now(timezone.utc)
        expires = asked + timedelta(seconds=self.broker.timeout)
        return ApprovalRequest(
            confirmation_id=new_confirmation_id(),
            session_id=self.session_id,
            tool_name=question.call.name,
            tool_source=question.tool_source,
            arguments=question.arguments,
            call_index=question.call_index,
            tool_call_id=question.call.id,
            queue_position=question.position,
            queue_total=question.total,
            asked_at=f"{asked:%Y-%m-%dT%H:%M:%S.%fZ}",
            expires_at=f"{expires:%Y-%m-%dT%H:%M:%S.%fZ}",
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
        )

    def _required(self, request: ApprovalRequest) -> ConfirmationRequired:
        return ConfirmationRequired(
            tool_name=request.tool_name,
            arguments=request.arguments,
            call_index=request.call_index,
            tool_call_id=request.tool_call_id,
            confirmation_id=request.confirmation_id,
            queue_position=request.queue_position,
            queue_total=request.queue_total,
            timeout_seconds=self.broker.timeout,
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
        )

    def _decided(
        self, request: ApprovalRequest, decision: Decision, code: str | None
    ) -> ConfirmationDecided:
        arguments = decision.arguments if decision.approved else None
        return ConfirmationDecided(
            confirmation_id=request.confirmation_id,
            tool_name=request.tool_name,
            call_index=request.call_index,
            tool_call_id=request.tool_call_id,
            approved=decision.approved,
            arguments=request.arguments if arguments is None else arguments,
            edited=arguments is not None,
            reason=decision.reason,
            code=code,
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
        )


def _verdict(decision: Decision, code: str | None) -> Verdict:
    if decision.approved:
        return Verdict(approved=True, arguments=decision.arguments)
    if code is not None:
        return Verdict(approved=False, reason=decision.reason, code=code)
    reason = f"{DENIED} Reason: {decision.reason}" if decision.reason else DENIED
    return Verdict(approved=False, reason=reason, code=ToolExecutionDenied.code)
