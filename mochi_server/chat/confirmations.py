"""Confirmations: a person decides whether a call may run.

A confirmation is registered before it is announced, and decided once. The waiting turn and the
person's request may be in different processes; a broker carries the decision from one to the other
(docs/how-to/several-workers.md).
"""

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

MAX_EXPIRED = 1000
"""Expired confirmations that are remembered, so that a late decision is told that it is late."""

DENIED = "the user denied this call."
NOBODY = "nobody confirmed the call within {seconds:g} seconds."
NOT_ASKED = (
    "this call must be confirmed by a person, and nobody is asked in a reply in one piece. Stream "
    'the reply, or send "confirmations": "wait" and confirm the call meanwhile, or change the '
    "session's execution_policy, or its tool_policies where they name the tool."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRequest(FieldPayload):
    """A call that waits for a person; its payload is an entry of ``/confirmations``."""

    confirmation_id: str
    session_id: str
    """Session on whose stream the person is asked."""
    tool_name: str
    tool_source: str
    """``Tool.source`` of the tool, which validates changed arguments."""
    arguments: JSONObject
    """Arguments that will run: coerced, with the defaults of what the model left out."""
    call_index: int
    tool_call_id: str
    queue_position: int
    queue_total: int
    asked_at: str
    """UTC, microseconds, ``Z``."""
    expires_at: str
    agent_name: str | None = None
    agent_call_id: str | None = None
    """Call that started the agent, if an agent makes this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationDecision:
    """The answer of a person, or the reason why there is none."""

    approved: bool
    reason: str | None = None
    arguments: JSONObject | None = None
    """Arguments that replace all of the model's; null keeps those."""
    code: str | None = None
    """Error code when nobody decided."""

    @property
    def reason_for_model(self) -> str | None:
        if self.approved or self.code is not None:
            return self.reason
        return f"{DENIED} Reason: {self.reason}" if self.reason else DENIED


class PendingConfirmation(ABC):
    """A registered confirmation."""

    @abstractmethod
    async def decision(self) -> ConfirmationDecision:
        """Wait for the decision.

        Raises:
            ToolConfirmationTimeout: nobody decided in time; nobody can any more.
        """


class ConfirmationBroker(ABC):
    """Registers confirmations and carries decisions to whoever waits for them."""

    timeout: float
    """Seconds after which a confirmation expires."""

    @abstractmethod
    def ask(self, request: ConfirmationRequest) -> AbstractAsyncContextManager[PendingConfirmation]:
        """Register the confirmation, which can be decided then; forget it on leaving."""

    @abstractmethod
    async def decide(
        self, session_id: str, confirmation_id: str, decision: ConfirmationDecision
    ) -> None:
        """Hand the decision to whoever waits; the first one counts.

        Raises:
            ConfirmationNotFound: unknown, of another session, or decided already.
            ToolConfirmationTimeout: it has expired.
        """

    @abstractmethod
    async def pending(self, session_id: str) -> list[ConfirmationRequest]:
        """Return the session's confirmations that wait for a decision, oldest first."""

    async def check(self) -> bool:
        """Return whether a confirmation could be registered now."""
        return True

    @abstractmethod
    async def aclose(self) -> None:
        """Release what the broker holds; may be called again."""


class LocalConfirmations(ConfirmationBroker):
    """Confirmations within one process."""

    def __init__(self, *, timeout: float = 300.0) -> None:
        self.timeout = timeout
        self._pending: dict[str, _LocalPending] = {}
        self._expired: dict[str, str] = {}
        """Sessions of expired confirmations, by id."""

    @asynccontextmanager
    async def ask(self, request: ConfirmationRequest) -> AsyncIterator[PendingConfirmation]:
        pending = _LocalPending(self, request)
        self._pending[request.confirmation_id] = pending
        try:
            yield pending
        finally:
            self._pending.pop(request.confirmation_id, None)

    async def decide(
        self, session_id: str, confirmation_id: str, decision: ConfirmationDecision
    ) -> None:
        pending = self._pending.get(confirmation_id)
        if pending is not None and pending.request.session_id == session_id:
            del self._pending[confirmation_id]
            pending.future.set_result(decision)
        elif self._expired.get(confirmation_id) == session_id:
            raise ToolConfirmationTimeout(confirmation_id=confirmation_id)
        else:
            raise ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)

    async def pending(self, session_id: str) -> list[ConfirmationRequest]:
        requests = [pending.request for pending in self._pending.values()]
        return [request for request in requests if request.session_id == session_id]

    def expire(self, request: ConfirmationRequest) -> None:
        self._pending.pop(request.confirmation_id, None)
        self._expired[request.confirmation_id] = request.session_id
        while len(self._expired) > MAX_EXPIRED:
            self._expired.pop(next(iter(self._expired)))

    async def aclose(self) -> None:
        pass


class _LocalPending(PendingConfirmation):
    def __init__(self, broker: LocalConfirmations, request: ConfirmationRequest) -> None:
        self.request = request
        self.future: asyncio.Future[ConfirmationDecision] = (
            asyncio.get_running_loop().create_future()
        )
        self._broker = broker

    async def decision(self) -> ConfirmationDecision:
        with anyio.move_on_after(self._broker.timeout):
            await asyncio.wait({self.future})
        if not self.future.done():
            self._broker.expire(self.request)
            raise ToolConfirmationTimeout(confirmation_id=self.request.confirmation_id)
        return self.future.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmations:
    """Asks a person about calls on the stream of one session, or denies them at once."""

    broker: ConfirmationBroker
    session_id: str
    """Session on whose stream the person is asked."""
    wait: bool = True
    """Whether a person is asked; else every call is denied."""
    agent_name: str | None = None
    agent_call_id: str | None = None

    def for_agent(self, name: str, call_id: str) -> Confirmations:
        return replace(self, agent_name=name, agent_call_id=call_id)

    async def ask(
        self,
        call: ToolCall,
        *,
        arguments: JSONObject,
        call_index: int,
        tool_source: str,
        position: int,
        total: int,
    ) -> AsyncGenerator[Event | ConfirmationDecision, None]:
        """Ask about one call: yield events, and one decision before the last event.

        The confirmation is registered before it is announced. Where the broker fails, the call is
        denied; a confirmation that could not be registered has no events.
        """
        if not self.wait:
            code = ToolExecutionDenied.code
            yield ConfirmationDecision(approved=False, reason=NOT_ASKED, code=code)
            return
        now = datetime.now(timezone.utc)
        expires = now + timedelta(seconds=self.broker.timeout)
        request = ConfirmationRequest(
            confirmation_id=new_confirmation_id(),
            session_id=self.session_id,
            tool_name=call.name,
            tool_source=tool_source,
            arguments=arguments,
            call_index=call_index,
            tool_call_id=call.id,
            queue_position=position,
            queue_total=total,
            asked_at=f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
            expires_at=f"{expires:%Y-%m-%dT%H:%M:%S.%fZ}",
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
        )
        announced = False
        try:
            async with self.broker.ask(request) as pending:
                announced = True
                yield _required(request, self.broker.timeout)
                decision = await pending.decision()
        except ToolConfirmationTimeout:
            reason, code = NOBODY.format(seconds=self.broker.timeout), ToolConfirmationTimeout.code
            decision = ConfirmationDecision(approved=False, reason=reason, code=code)
        except MochiError as error:
            reason = f"nobody could be asked: {error.message}"
            decision = ConfirmationDecision(approved=False, reason=reason, code=error.code)
        yield decision
        if announced:
            yield _decided(request, decision)


def _required(request: ConfirmationRequest, timeout: float) -> ConfirmationRequired:
    return ConfirmationRequired(
        tool_name=request.tool_name,
        arguments=request.arguments,
        call_index=request.call_index,
        tool_call_id=request.tool_call_id,
        confirmation_id=request.confirmation_id,
        queue_position=request.queue_position,
        queue_total=request.queue_total,
        timeout_seconds=timeout,
        agent_name=request.agent_name,
        agent_call_id=request.agent_call_id,
    )


def _decided(request: ConfirmationRequest, decision: ConfirmationDecision) -> ConfirmationDecided:
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
        code=decision.code,
        agent_name=request.agent_name,
        agent_call_id=request.agent_call_id,
    )
