"""Asks a person about the calls of a run, unless a rule decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import anyio

from ...core.aio import in_thread, run_to_completion, wait_unless
from ...core.clock import timestamp
from ...core.ids import new_confirmation_id
from ...errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    JSONObject,
    MochiError,
    ToolExecutionDenied,
)
from ...protocol.events import Event
from ...protocol.messages import ToolCall
from ...tools.base import Elicitation
from ..rules.comparer import Comparer
from ..rules.places import RulePlaces
from ..rules.rule import CallFacts, CallRule, RuleMatch, RuleSet, match_rules
from ..rules.suggestions import suggestions_for
from .announcing import announcement_of, decision_event_of, input_required
from .confirmation import (
    LOST,
    RUN_ENDED,
    Confirmation,
    ConfirmationDecision,
    StoredConfirmation,
    shortened,
)
from .store import RETRY_SECONDS, ConfirmationStore

BY_RULE = "policy"
NOBODY = "nobody confirmed the call within {seconds:g} seconds."
DENIED_BY_RULE = "a rule of this server denies this call."
WITHDRAWN = ConfirmationDecision(
    approved=False,
    reason="the call is not what was shown any more, or a rule denies it.",
    code=ToolExecutionDenied.code,
)
ELICITATION_WITHDRAWN = ConfirmationDecision(
    approved=False,
    reason="the tool does not wait for an answer any more.",
    code=ToolExecutionDenied.code,
)
NOT_ASKED = (
    "this call must be confirmed by a person, and nobody can be asked here. Stream the reply, or "
    'send "confirmations": "wait" and confirm the call meanwhile; over MCP, use a client with '
    "elicitation. Or change the session's execution_policy, or its tool_policies where they name "
    "the tool, or add a rule that allows such calls."
)

NOT_APPROVED = (
    "A person must confirm a call of it, and nobody is asked in a reply in one piece. Stream the "
    'reply, or send "confirmations": "wait" and confirm the call meanwhile.'
)


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call about which a person is asked, or which a rule may decide."""

    call: ToolCall
    index: int
    """Position in the model's reply, from 0."""
    arguments: JSONObject
    """Arguments that will run: coerced, with the defaults of what the model left out."""
    tool_source: str
    """``Tool.source`` of the tool."""
    notice: str = ""
    """Why a person is asked whatever policies and rules allow."""
    parameters: JSONObject = field(default_factory=dict)
    """JSON Schema of the tool's arguments."""

    def facts(self, session_id: str, comparer: Comparer) -> CallFacts:
        return CallFacts(self.call.name, self.arguments, self.tool_source, session_id, comparer)


async def stays_here() -> bool:
    """Say of a run that no other process can take it."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmations:
    """Asks about the calls of one conversation of a run, or denies them at once.

    What was asked stays in the store until ``settle`` or ``close`` moves it to the history.
    """

    store: ConfirmationStore
    rule_places: RulePlaces
    run_id: str
    session_id: str
    """Session of the person's conversation."""
    owner: str | None = None
    """To whom that belongs."""
    session_kept: bool = True
    """Whether that is kept, so that it can have rules."""
    timeout: float = 300.0
    """Seconds after which a confirmation expires; 0: never."""
    wait: bool = True
    """Whether a person is asked; else every call is denied."""
    is_given_up: Callable[[], Awaitable[bool]] = stays_here
    """Whether the run goes on in another process: what is asked stays asked then.

    It raises ConfirmationUnavailable where that is not known now.
    """
    agent_name: str | None = None
    agent_call_id: str | None = None
    earlier: Sequence[StoredConfirmation] = ()
    """Confirmations that an earlier process stored for this run: they are not asked again."""
    announced: Container[str] = frozenset()
    """Ids of those of which readers know."""
    decided: Container[str] = frozenset()
    """Ids of those whose decisions readers know."""
    _unsettled: dict[str, tuple[Confirmation, ConfirmationDecision | None]] = field(
        default_factory=dict, init=False
    )
    """What is not in the history, by id of the call; with the decision if a rule made it."""
    _remembered: set[str] = field(default_factory=set, init=False)
    """Ids of the rules that came with decisions: the next call of the reply follows them."""

    def for_agent(self, name: str, call_id: str) -> Confirmations:
        return replace(self, agent_name=name, agent_call_id=call_id)

    async def rules(self) -> list[RuleSet]:
        """Return the rules of the data folder and of the session, as they are now."""
        return await self.rule_places.load(self.session_id, self._remembered)

    async def match(
        self, rules: Sequence[RuleSet], asked: AskedCall, comparer: Comparer
    ) -> RuleMatch | None:
        """Return what the rules say about a call."""
        call = asked.facts(self.session_id, comparer)
        has_patterns = any(rule.arguments for each in rules for rule in each.rules)
        if has_patterns:  # long texts take their time, and links are looked up
            return await in_thread(match_rules, rules, call)
        return match_rules(rules, call)

    def note_rule(self, asked: AskedCall, rule: CallRule | None) -> None:
        """Note that a rule has decided about a call, for the history."""
        decision = ConfirmationDecision(
            approved=rule is not None and rule.action == "allow",
            decided_by=BY_RULE,
            decided_at=timestamp(self.store.clock()),
            rule_id=None if rule is None else rule.id,
        )
        confirmation = self._confirmation(asked, position=0, total=0, expires=False)
        self._unsettled[asked.call.id] = (confirmation, decision)

    async def ask(
        self,
        asked: AskedCall,
        *,
        position: int,
        total: int,
        rules: Sequence[RuleSet] = (),
        earlier: Confirmation | None = None,
        waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> AsyncGenerator[Event | ConfirmationDecision, None]:
        """Ask about one call: yield events, and one decision before the last event.

        A confirmation that cannot be stored is denied and has no events. One that was announced
        stays open while the store fails.

        Args:
            asked: The call.
            position: Its place among the calls that are asked about, from 1.
            total: Number of these calls.
            rules: The rules as they are now.
            earlier: What an earlier process has asked about it.
            waiting: Is entered while nothing is to do but wait for the decision.
        """
        if not self.wait:
            reason = f"{asked.notice} {NOT_APPROVED}" if asked.notice else NOT_ASKED
            code = ToolExecutionDenied.code
            yield ConfirmationDecision(approved=False, reason=reason, code=code)
            return
        announced = earlier is not None and earlier.confirmation_id in self.announced
        confirmation = earlier or replace(
            self._confirmation(asked, position=position, total=total),
            suggestions=await self._suggestions(asked, rules),
        )
        self._unsettled[asked.call.id] = (confirmation, None)
        try:
            if earlier is None:
                await self.store.put(confirmation)
            if not announced:
                announced = True
                yield announcement_of(confirmation)
            async with waiting():
                decision = await self._wait(confirmation)
        except MochiError as error:
            reason = f"nobody could be asked: {error.message}"
            decision = ConfirmationDecision(approved=False, reason=reason, code=error.code)
        if decision.rule_id is not None:
            self._remembered.add(decision.rule_id)
        yield decision
        if announced and confirmation.confirmation_id not in self.decided:
            yield decision_event_of(confirmation, decision)

    async def _suggestions(
        self, asked: AskedCall, rules: Sequence[RuleSet]
    ) -> Sequence[JSONObject]:
        call = asked.facts(self.session_id, Comparer())
        suggestions = await in_thread(suggestions_for, call, asked.parameters, rules)
        return [each.payload() for each in suggestions] or ()

    async def elicit(
        self,
        asked: AskedCall,
        elicitation: Elicitation,
        withdrawn: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[Event | ConfirmationDecision, None]:
        """Ask for a tool that runs: yield events, and one decision, last.

        ``withdrawn`` is done as soon as the tool does not wait for an answer any more.
        Where nobody is asked, or the store fails, the decision has a code. What was asked ends with
        the call: no other process can answer its tool.
        """
        if not self.wait:
            code = ToolExecutionDenied.code
            yield ConfirmationDecision(approved=False, reason=NOT_ASKED, code=code)
            return
        confirmation = replace(
            self._confirmation(replace(asked, arguments={}), position=1, total=1),
            elicitation=elicitation.payload(),
        )
        name, announced, ran = confirmation.confirmation_id, False, None
        try:
            try:
                await self.store.put(confirmation)
                announced = True
                yield input_required(confirmation)
                answered = await wait_unless(withdrawn, self._wait(confirmation))
                decision = answered or ELICITATION_WITHDRAWN
            except MochiError as error:
                decision = ConfirmationDecision(
                    approved=False, reason=error.message, code=error.code
                )
            ran = decision.arguments if decision.approved else None
            if announced:
                yield decision_event_of(confirmation, decision)
            yield decision
        finally:
            end = partial(self.store.end, name, ELICITATION_WITHDRAWN, ran=ran)
            await run_to_completion(self.store.eventually(end))

    async def withdraw_elicitations(self) -> list[Event]:
        """Withdraw what tools of an earlier process have asked; return events for readers."""
        events = []
        for each in self.earlier:
            asked = each.confirmation
            if asked.elicitation is not None and asked.agent_call_id == self.agent_call_id:
                events += await self.withdraw(asked, ELICITATION_WITHDRAWN)
        return events

    def earlier_of(self, call: ToolCall) -> Confirmation | None:
        """Return what an earlier process has asked last about a call with this id and name."""
        key = (self.agent_call_id, call.id, call.name)
        for each in reversed(self.earlier):  # some models use the ids of calls again
            asked = each.confirmation
            is_of_call = (asked.agent_call_id, asked.tool_call_id, asked.tool_name) == key
            if is_of_call and asked.elicitation is None:
                return asked
        return None

    async def withdraw(
        self, confirmation: Confirmation, decision: ConfirmationDecision = WITHDRAWN
    ) -> list[Event]:
        """Deny what an earlier process has asked; return the event for readers that know of it."""
        name = confirmation.confirmation_id
        await self.store.eventually(partial(self.store.end, name, decision))
        is_known = name in self.announced and name not in self.decided
        return [decision_event_of(confirmation, decision)] if is_known else []

    def _confirmation(
        self, asked: AskedCall, *, position: int, total: int, expires: bool = True
    ) -> Confirmation:
        now = self.store.clock()
        end = now + timedelta(seconds=self.timeout) if expires and self.timeout else None
        return Confirmation(
            confirmation_id=new_confirmation_id(),
            run_id=self.run_id,
            session_id=self.session_id,
            owner=self.owner,
            tool_name=asked.call.name,
            tool_source=asked.tool_source,
            arguments=asked.arguments,
            call_index=asked.index,
            tool_call_id=asked.call.id,
            queue_position=position,
            queue_total=total,
            asked_at=timestamp(now),
            expires_at=None if end is None else timestamp(end),
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
            notice=asked.notice,
            session_kept=self.session_kept,
        )

    async def _wait(self, confirmation: Confirmation) -> ConfirmationDecision:
        """Wait for the decision, also while the store cannot be reached.

        A confirmation that the store has lost is stored again.

        Raises:
            ConfirmationUnavailable: the store cannot be reached, and the time is over.
        """
        name = confirmation.confirmation_id
        known = (each.decision for each in self.earlier if each.confirmation == confirmation)
        decision = next(known, None)
        is_lost = False
        while decision is None:
            try:
                if is_lost:
                    await self.store.put(confirmation)
                found = await self.store.wait(name)
                decision = await self.store.decision(name) if found is LOST else found
            except ConfirmationNotFound:  # noqa: PERF203 - it waits for a person
                is_lost = True
            except ConfirmationUnavailable:
                if self.store.is_due(confirmation):
                    raise
                await anyio.sleep(RETRY_SECONDS)
        if decision.is_expired:
            return replace(decision, reason=NOBODY.format(seconds=self.timeout))
        return decision

    async def consume(self, confirmation: Confirmation, *, ran: JSONObject | None = None) -> None:
        """Move what an earlier process has asked to the history."""
        self._unsettled[confirmation.tool_call_id] = (confirmation, None)
        await self.settle(confirmation.tool_call_id, ran=ran)

    async def settle(self, call_id: str, *, ran: JSONObject | None = None) -> None:
        """Move what was decided about a call to the history, after it was acted on.

        Args:
            call_id: The call; one that nobody and no rule decided about changes nothing.
            ran: Arguments with which the tool runs; None if it does not.
        """
        if call_id not in self._unsettled:
            return
        confirmation, decision = self._unsettled[call_id]
        ran = None if ran is None else shortened(ran)
        if decision is None:
            change = partial(self.store.consume, confirmation.confirmation_id, ran=ran)
        else:
            change = partial(self.store.record, confirmation.shortened(), decision, ran=ran)
        await self.store.eventually(change)
        self._unsettled.pop(call_id, None)  # not before: if this is cancelled, ``close`` settles it

    async def close(self) -> None:
        """Deny what nobody has decided: the run ends. What was decided did not run."""
        if self._unsettled:
            await run_to_completion(self._close())

    async def _close(self) -> None:
        for call_id, (confirmation, decision) in [*self._unsettled.items()]:
            if decision is None:
                name = confirmation.confirmation_id
                await self.store.eventually(partial(self._end_with_run, name))
                del self._unsettled[call_id]
            else:
                await self.settle(call_id)

    async def _end_with_run(self, name: str) -> None:
        if not await self.is_given_up():  # meanwhile, as while the store could not be reached
            await self.store.end(name, RUN_ENDED)
