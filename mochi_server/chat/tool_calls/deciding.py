"""Decides which calls of a reply run: rules first, then execution policies, then a person."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field

from ...errors import ToolExecutionDenied
from ...protocol.events import Event
from ...sessions.types import TextCallMode, ToolExecutionPolicy, ToolSettings
from ...tools.base import Tool
from ...tools.config import needs_confirmation
from ..confirmations.asking import DENIED_BY_RULE, AskedCall, Confirmations
from ..confirmations.confirmation import ConfirmationDecision
from ..rules.comparer import Comparer
from ..rules.rule import RuleMatch, RuleSet
from .planned import PlannedCall

_POLICY_OF_TEXT_CALLS: Mapping[TextCallMode, ToolExecutionPolicy] = {
    "on": ToolExecutionPolicy.CONFIRM_DESTRUCTIVE,
    "ask": ToolExecutionPolicy.ALWAYS_CONFIRM,
    "off": ToolExecutionPolicy.ALWAYS_CONFIRM,  # written before it was set
}
"""Execution policies of calls that a model wrote as text."""


@dataclass(slots=True, kw_only=True)
class CallDecisions:
    """The decisions about the calls of one reply."""

    confirmations: Confirmations
    settings: ToolSettings
    """Settings whose execution policies say when a person is asked."""
    text_calls: TextCallMode
    """Whether a person is asked about every call that the model wrote as text."""
    waiting: Callable[[], AbstractAsyncContextManager[None]]
    """Is entered while nothing is to do but wait for a person."""
    refuse: Callable[[PlannedCall], list[Event]]
    """Records that a call does not run, and returns events that tell it."""
    _comparer: Comparer = field(default_factory=Comparer, init=False)
    """What was compared with rules."""

    async def decide(self, planned: Sequence[PlannedCall]) -> AsyncGenerator[list[Event], None]:
        """Let people and rules decide about all calls; yield events."""
        async with aclosing(self._ask(planned)) as batches:
            async for events in batches:
                yield events
        for plan in await self._denied_now(planned):
            yield self.refuse(plan)
            await self.confirmations.settle(plan.call.id)

    async def _ask(self, planned: Sequence[PlannedCall]) -> AsyncGenerator[list[Event], None]:
        valid = [
            (plan, plan.tool)
            for plan in planned
            if plan.refusal is None and plan.tool and not plan.is_started
        ]
        rules = await self.confirmations.rules() if valid else []
        queue = []
        for plan, tool in valid:
            if events := await self._withdraw_stale(plan, tool, rules):
                yield events
            if await self._needs_confirmation(plan, tool, rules):
                queue.append((plan, tool))
            elif plan.refusal is not None:
                yield self.refuse(plan)
                await self.confirmations.settle(plan.call.id)
        for position, (plan, tool) in enumerate(queue, start=1):
            if position > 1:  # the decision before may have become a rule
                rules = await self.confirmations.rules()
            if await self._needs_confirmation(plan, tool, rules):
                async with aclosing(
                    self._ask_about(plan, tool, position, len(queue), rules)
                ) as steps:
                    async for event in steps:
                        yield [event]
            if plan.refusal is not None:
                yield self.refuse(plan)
                await self.confirmations.settle(plan.call.id)

    async def _denied_now(self, planned: Sequence[PlannedCall]) -> list[PlannedCall]:
        """Refuse what rules deny after people were asked; return it.

        There may be new rules, and arguments that a person has changed.
        """
        if not any(plan.announced for plan in planned):
            return []
        rules = await self.confirmations.rules()
        denied = []
        for plan in planned:
            if plan.refusal is not None or plan.tool is None or plan.is_started:
                continue
            asked = plan.asked(plan.tool)
            match = await self.confirmations.match(rules, asked, self._comparer)
            if match is not None and match.action == "deny":
                await self.confirmations.settle(plan.call.id)
                self._follow_rule(plan, asked, match)
                denied.append(plan)
        return denied

    async def _ask_about(
        self,
        plan: PlannedCall,
        tool: Tool,
        position: int,
        total: int,
        rules: Sequence[RuleSet],
    ) -> AsyncGenerator[Event, None]:
        """Ask a person about one call, and follow the decision."""
        decision = None
        seen = tool.fingerprint if plan.confirmation is None else None  # what was shown is gone
        steps = self.confirmations.ask(
            plan.asked(tool),
            position=position,
            total=total,
            rules=rules,
            earlier=plan.confirmation,
            waiting=self.waiting,
        )
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, ConfirmationDecision):
                    decision = step
                else:
                    plan.announced = True
                    yield step
        if decision is not None:
            await self._follow(plan, tool, decision, seen)

    async def _needs_confirmation(
        self, plan: PlannedCall, tool: Tool, rules: Sequence[RuleSet]
    ) -> bool:
        """Return whether a person is asked; else a rule may have refused the call."""
        asked = plan.asked(tool)
        match = await self.confirmations.match(rules, asked, self._comparer)
        if plan.confirmation is not None and (match is None or match.action != "deny"):
            return True  # a person was asked, and may have denied it
        if tool.needs_approval is not None and (match is None or match.action != "deny"):
            return True
        if match is None:
            return not tool.only_tells and self._policy_asks(plan, tool)
        if match.action == "ask":
            return True
        self._follow_rule(plan, asked, match)
        return False

    def _policy_asks(self, plan: PlannedCall, tool: Tool) -> bool:
        """Return whether an execution policy asks a person about a call that no rule matches."""
        policies = self.settings.policies_of(tool.name)
        if plan.call.recovered:
            policies.append(_POLICY_OF_TEXT_CALLS[self.text_calls])
        return any(needs_confirmation(policy, tool) for policy in policies)

    def _follow_rule(self, plan: PlannedCall, asked: AskedCall, match: RuleMatch) -> None:
        """Note that a rule allows or denies a call, and refuse one that it denies."""
        self.confirmations.note_rule(asked, match.rule)
        if match.action == "deny":
            plan.refuse(DENIED_BY_RULE, ToolExecutionDenied.code)

    async def _withdraw_stale(
        self, plan: PlannedCall, tool: Tool, rules: Sequence[RuleSet]
    ) -> list[Event]:
        """Withdraw what was asked before, if a rule denies it now or the tool has changed."""
        asked, earlier = plan.asked(tool), plan.confirmation
        if earlier is None:
            return []
        match = await self.confirmations.match(rules, asked, self._comparer)
        is_same = (earlier.tool_source, earlier.arguments) == (asked.tool_source, asked.arguments)
        if is_same and (match is None or match.action != "deny"):
            return []
        plan.confirmation = None
        return await self.confirmations.withdraw(earlier)

    async def _follow(
        self,
        plan: PlannedCall,
        tool: Tool,
        decision: ConfirmationDecision,
        fingerprint: str | None,
    ) -> None:
        if not decision.approved:
            plan.refuse(decision.reason_for_model, decision.code or ToolExecutionDenied.code)
            return
        plan.is_approved = True
        if fingerprint is not None:
            await tool.approve(fingerprint)
        if decision.arguments is not None:
            plan.edited = True
            await plan.validate(tool, decision.arguments)
