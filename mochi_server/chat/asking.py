"""Asks a person about a call, on the stream of the person's conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from ..core.ids import new_confirmation_id
from ..errors import JSONObject, MochiError, ToolConfirmationTimeout, ToolExecutionDenied
from ..protocol.events import ConfirmationDecided, ConfirmationRequired, Event
from ..protocol.messages import ToolCall
from .approvals import ApprovalBroker, ApprovalRequest, Decision

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
