"""Asking a person before a call runs: registered before it is announced, decided once.

The waiting turn and the person's request may be in different processes; which broker carries the
decision from one to the other is a setting (docs/how-to/several-workers.md).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import anyio

from ..errors import ConfirmationNotFound, JSONObject, ToolConfirmationTimeout
from ..protocol.payload import FieldPayload

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
