"""Handles the calls in a model's reply: plan, confirm, run, record.

Every call gets exactly one result, recorded in call order. Nothing runs before everything is
planned and every person has been asked; what may run then runs side by side. Only tools that were
offered run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import orjson
from pydantic import JsonValue

from ..core.aio import merge
from ..errors import (
    InvalidRequest,
    JSONObject,
    MochiError,
    StorageError,
    ToolExecutionDenied,
    ToolNotFound,
)
from ..protocol.completions import Finish
from ..protocol.events import AgentStart, Event, ToolCallStarted, ToolResultReady, ToolSampling
from ..protocol.messages import ToolCall, ToolMessage
from ..sessions.types import AgentSettings, ToolSettings
from ..tools.base import (
    Elicitation,
    ElicitationAnswer,
    InvalidArguments,
    SamplingAnswer,
    SamplingRequest,
    Tool,
    ToolContext,
    ToolFailed,
)
from ..tools.config import needs_confirmation
from ..tools.execution import ToolExecutionResult, ToolExecutionService
from .confirmations.asking import DENIED_BY_RULE, AskedCall, Confirmations
from .confirmations.confirmation import Confirmation, ConfirmationDecision
from .confirmations.display import shown_text
from .policies.comparer import Comparer
from .policies.rules import Policies, PolicyMatch
from .runs.progress import AgentProgress, Unstored
from .runs.run import Run


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """The agents that a session can use."""

    tool: Tool | None = None
    """Tool that calls agents; None when none is enabled and valid."""
    enabled: Sequence[str] = ()
    unknown: Sequence[str] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Why an enabled agent cannot be used, by name."""


class SessionAgents(Protocol):
    """The source of the ``agent`` tool: all that the chat knows about agents."""

    async def offer(self, settings: AgentSettings | None) -> AgentOffer:
        """Return what the settings of a session enable."""

    async def tool_of(self, source: str, name: str) -> Tool | None:
        """Find a tool of an agent by its ``Tool.source``."""


class Sampler(Protocol):
    """Asks models for tools that want it."""

    async def sample(
        self, full_name: str, request: SamplingRequest
    ) -> tuple[SamplingAnswer, Finish]:
        """Return what a model says.

        Raises:
            MochiError: it says nothing.
        """


INTERRUPTED_REASON = "the call was interrupted before it had a result."
INTERRUPTED = f"Error: {INTERRUPTED_REASON}"

CANNOT_NOTE = "the server cannot store at present that the call runs."

EDITED = "(The user changed the arguments of this call to {}.)\n{}"

REFUSED_AT_ONCE = 50
"""Calls beyond the limit that are refused before others have their turn on the loop."""

Results = list[ToolMessage | None]
"""One place for each call of a reply, in call order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext(ToolContext):
    """The caller, for tools that hold conversations of their own."""

    run: Run
    model: str
    """Full name of the model that calls."""
    settings: ToolSettings
    """Settings of the person's conversation, whose policies hold for the tools of agents, too."""
    confirmations: Confirmations
    sampler: Sampler
    call: ToolCall
    index: int
    """Position of the call in the model's reply, from 0."""
    depth: int
    """0 for the person's conversation, one more for each agent within."""
    before: AgentProgress | None = None
    """What an earlier process has done in this call."""

    @property
    def conversation_id(self) -> str:
        return self.confirmations.session_id

    @property
    def agent_name(self) -> str | None:
        return self.confirmations.agent_name

    @property
    def agent_call_id(self) -> str | None:
        return self.confirmations.agent_call_id

    async def elicit(
        self, tool: Tool, elicitation: Elicitation
    ) -> AsyncGenerator[Event | ElicitationAnswer, None]:
        asked = AskedCall(self.call, self.index, {}, tool.source)
        steps = self.confirmations.elicit(asked, elicitation)
        async with aclosing(steps):
            async for step in steps:
                if not isinstance(step, ConfirmationDecision):
                    yield step
                elif step.approved:
                    yield ElicitationAnswer("accept", step.arguments)
                else:
                    yield ElicitationAnswer("cancel" if step.code else "decline")

    async def sample(
        self, tool: Tool, request: SamplingRequest
    ) -> AsyncGenerator[Event | SamplingAnswer | str, None]:
        try:
            answer, finish = await self.sampler.sample(self.model, request)
        except MochiError as error:
            yield error.message
            return
        yield ToolSampling(
            tool_name=tool.name,
            tool_call_id=self.tool_call_id,
            model=answer.model,
            prompt_eval_count=finish.prompt_eval_count,
            eval_count=finish.eval_count,
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
        )
        yield answer


@dataclass(slots=True)
class PlannedCall:
    """A call, and what is known about it before it runs."""

    call: ToolCall
    index: int
    tool: Tool | None
    arguments: JSONObject
    refusal: ToolExecutionResult | None = None
    """Result of a call that will not run."""
    is_approved: bool = False
    """Whether a person has approved it."""
    edited: bool = False
    """Whether a person has changed the arguments."""
    announced: bool = False
    """Whether readers know of it."""
    is_started: bool = False
    """Whether an earlier process has started it, and it goes on."""
    confirmation: Confirmation | None = None
    """What an earlier process has asked about it."""


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """Handles the calls of one conversation."""

    of_run: Run
    """The run that it is part of."""
    session_id: str
    model: str
    execution: ToolExecutionService
    confirmations: Confirmations
    sampler: Sampler
    tools: Mapping[str, Tool] = field(default_factory=dict)
    settings: ToolSettings = field(default_factory=ToolSettings)
    """Settings whose policies say when a person is asked."""
    depth: int = 0
    before: Unstored | None = None
    """What an earlier process has done with the first calls that are handled."""
    _comparer: Comparer = field(default_factory=Comparer, init=False)
    """What was compared with rules about the calls of this reply."""

    def schemas(self) -> list[JSONObject]:
        return [tool.schema() for tool in self.tools.values()]

    async def run(
        self, calls: Sequence[ToolCall], results: Results
    ) -> AsyncGenerator[list[Event], None]:
        """Handle the calls; yield events, after their messages for the model are in ``results``."""
        most = self.execution.max_calls_per_reply
        before, self.before = self.before, None
        self._comparer = Comparer()
        if before is not None and (events := await self._take_up(before, calls, results)):
            yield events
        planned = await asyncio.gather(
            *(
                self._plan(call, index, before)
                for index, call in enumerate(calls[:most])
                if results[index] is None
            )
        )
        if refused := [plan for plan in planned if plan.refusal is not None]:
            if unknown := [self._started(plan) for plan in refused if not plan.announced]:
                yield unknown
            yield [self._refuse(plan, results) for plan in refused]
        for first in range(most, len(calls), REFUSED_AT_ONCE):
            if results[first] is not None:
                continue
            yield self._refuse_all(calls, first, results)
            await asyncio.sleep(0)  # others have their turn: a reply may have thousands
        try:
            async with aclosing(self._confirm(planned, results)) as batches:
                async for events in batches:
                    yield events
            for batch in _batches([plan for plan in planned if plan.refusal is None]):
                steps = merge([self._run(plan, results) for plan in batch])
                with self.of_run.split(len(batch)):
                    async with aclosing(steps) as running:
                        async for events in running:
                            yield events
        finally:
            if not self.of_run.is_let_go:
                await self.confirmations.close()

    async def _take_up(
        self, before: Unstored, calls: Sequence[ToolCall], results: Results
    ) -> list[Event]:
        """Take the results that an earlier process had; return events for readers."""
        results[:] = [before.results.get(call.id) for call in calls]
        return await self.confirmations.withdraw_elicitations()

    def _refuse_all(self, calls: Sequence[ToolCall], first: int, results: Results) -> list[Event]:
        most = self.execution.max_calls_per_reply
        reason = (
            f"a reply may have {most} calls at most, and this one had {len(calls)}. Call again for "
            "what is left."
        )
        events: list[Event] = []
        for index in range(first, min(first + REFUSED_AT_ONCE, len(calls))):
            call = calls[index]
            plan = PlannedCall(call, index, self.tools.get(call.name), call.arguments)
            plan.refusal = _refused(call, reason, ToolExecutionDenied.code)
            events += [self._started(plan), self._refuse(plan, results)]
        return events

    async def _plan(self, call: ToolCall, index: int, before: Unstored | None) -> PlannedCall:
        tool = self.tools.get(call.name)
        plan = PlannedCall(call, index, tool, call.arguments)
        if before is not None:
            plan.announced = call.id in before.announced
            plan.is_started = call.id in before.started
            plan.confirmation = self.confirmations.earlier_of(call)
        if plan.is_started:
            await self._plan_started(plan, before.started[call.id] if before is not None else None)
        elif tool is None:
            reason = f"there is no tool named {call.name!r}."
            plan.refusal = _refused(call, reason, ToolNotFound.code)
        elif call.problem is not None:
            reason = f"invalid arguments: {call.problem}."
            plan.refusal = _refused(call, reason, InvalidRequest.code)
        else:
            await self._validate(plan, tool, call.arguments)
        return plan

    async def _plan_started(self, plan: PlannedCall, edited: JSONObject | None) -> None:
        """Go on with a call that an earlier process started, or give it up."""
        plan.edited = edited is not None
        if edited is not None:
            plan.arguments = edited
        if plan.confirmation is not None:
            await self.confirmations.consume(plan.confirmation, ran=plan.arguments)
        if plan.tool is not None and plan.tool.is_resumable:
            await self._validate(plan, plan.tool, plan.arguments)
        else:
            plan.refusal = _refused(plan.call, INTERRUPTED_REASON)

    async def _validate(self, plan: PlannedCall, tool: Tool, arguments: JSONObject) -> None:
        try:
            plan.arguments = await tool.validate(arguments)
        except InvalidArguments as error:
            reason = f"invalid arguments: {error}"
            plan.refusal = _refused(plan.call, reason, InvalidRequest.code)
        except ToolFailed as error:
            plan.refusal = _refused(plan.call, str(error))

    async def _confirm(
        self, planned: Sequence[PlannedCall], results: Results
    ) -> AsyncGenerator[list[Event], None]:
        """Let people and rules decide about all calls."""
        async with aclosing(self._ask(planned, results)) as batches:
            async for events in batches:
                yield events
        for plan in await self._denied_now(planned):
            yield self._refuse_asked(plan, results)
            await self.confirmations.settle(plan.call.id)

    async def _ask(
        self, planned: Sequence[PlannedCall], results: Results
    ) -> AsyncGenerator[list[Event], None]:
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
                yield self._refuse_asked(plan, results)
                await self.confirmations.settle(plan.call.id)
        for position, (plan, tool) in enumerate(queue, start=1):
            if position > 1:  # the decision before may have become a rule
                rules = await self.confirmations.rules()
            if await self._needs_confirmation(plan, tool, rules):
                async with aclosing(self._ask_about(plan, tool, position, len(queue))) as steps:
                    async for event in steps:
                        yield [event]
            if plan.refusal is not None:
                yield self._refuse_asked(plan, results)
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
            asked = _asked(plan, plan.tool)
            match = await self.confirmations.match(rules, asked, self._comparer)
            if match is not None and match.action == "deny":
                await self.confirmations.settle(plan.call.id)
                self._follow_rule(plan, asked, match)
                denied.append(plan)
        return denied

    async def _ask_about(
        self, plan: PlannedCall, tool: Tool, position: int, total: int
    ) -> AsyncGenerator[Event, None]:
        """Ask a person about one call, and follow the decision."""
        decision = None
        seen = tool.fingerprint if plan.confirmation is None else None  # what was shown is gone
        steps = self.confirmations.ask(
            _asked(plan, tool),
            position=position,
            total=total,
            earlier=plan.confirmation,
            waiting=self.of_run.waiting,
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

    def _refuse_asked(self, plan: PlannedCall, results: Results) -> list[Event]:
        start = [] if plan.announced else [self._started(plan)]
        return [*start, self._refuse(plan, results)]

    async def _needs_confirmation(
        self, plan: PlannedCall, tool: Tool, rules: Sequence[Policies]
    ) -> bool:
        """Return whether a person is asked; else a rule may have refused the call."""
        asked = _asked(plan, tool)
        match = await self.confirmations.match(rules, asked, self._comparer)
        if plan.confirmation is not None and (match is None or match.action != "deny"):
            return True  # a person was asked, and may have denied it
        if tool.needs_approval is not None and (match is None or match.action != "deny"):
            return True
        if match is None:
            policies = self.settings.policies_of(tool.name)
            return any(needs_confirmation(policy, tool) for policy in policies)
        if match.action == "ask":
            return True
        self._follow_rule(plan, asked, match)
        return False

    def _follow_rule(self, plan: PlannedCall, asked: AskedCall, match: PolicyMatch) -> None:
        """Note that a rule allows or denies a call, and refuse one that it denies."""
        self.confirmations.note_rule(asked, match.rule)
        if match.action == "deny":
            plan.refusal = _refused(plan.call, DENIED_BY_RULE, ToolExecutionDenied.code)

    async def _withdraw_stale(
        self, plan: PlannedCall, tool: Tool, rules: Sequence[Policies]
    ) -> list[Event]:
        """Withdraw what was asked before, if a rule denies it now or the tool has changed."""
        asked, earlier = _asked(plan, tool), plan.confirmation
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
            code = decision.code or ToolExecutionDenied.code
            plan.refusal = _refused(plan.call, decision.reason_for_model, code)
            return
        plan.is_approved = True
        if fingerprint is not None:
            await tool.approve(fingerprint)
        if decision.arguments is not None:
            plan.edited = True
            await self._validate(plan, tool, decision.arguments)

    async def _run(self, plan: PlannedCall, results: Results) -> AsyncGenerator[list[Event], None]:
        assert plan.tool is not None  # noqa: S101 - planned without a refusal
        try:
            if not plan.announced:
                yield [self._started(plan)]
            if not plan.is_started:
                edited = plan.arguments if plan.edited else None
                is_noted = await self.of_run.started(self.session_id, plan.call.id, edited)
                if plan.is_approved and not is_noted:  # it could run again after a crash
                    plan.refusal = _refused(plan.call, CANNOT_NOTE, StorageError.code)
                    yield [self._refuse(plan, results)]
                    return
                await self.confirmations.settle(plan.call.id, ran=plan.arguments)
            context = CallContext(
                run=self.of_run,
                session_id=self.session_id,
                tool_call_id=plan.call.id,
                call=plan.call,
                index=plan.index,
                model=self.model,
                settings=self.settings,
                confirmations=self.confirmations,
                sampler=self.sampler,
                depth=self.depth,
                before=self.of_run.agent_of(plan.call.id) if plan.is_started else None,
            )
            execution = self.execution.execute(plan.tool, plan.arguments, context)
            async with aclosing(execution) as steps:
                async for step in steps:
                    if isinstance(step, ToolExecutionResult):
                        yield [self._record(plan, step, results)]
                    else:
                        if isinstance(step, AgentStart) and results[plan.index] is None:
                            text = f"{INTERRUPTED} Session ID: {step.session_id}"
                            results[plan.index] = _message(plan.call, text)  # for an interruption
                        yield [step]
        finally:
            self.of_run.end_branch()

    def _started(self, plan: PlannedCall) -> Event:
        return ToolCallStarted(
            agent_name=self.confirmations.agent_name,
            tool_name=plan.call.name,
            arguments=plan.call.arguments,
            call_index=plan.index,
            tool_call_id=plan.call.id,
            agent_call_id=self.confirmations.agent_call_id,
        )

    def _refuse(self, plan: PlannedCall, results: Results) -> Event:
        assert plan.refusal is not None  # noqa: S101
        return self._record(plan, plan.refusal, results)

    def _record(self, plan: PlannedCall, result: ToolExecutionResult, results: Results) -> Event:
        text = result.for_model()
        if plan.edited:
            text = EDITED.format(orjson.dumps(plan.arguments).decode(), text)
        attachments = [each.payload() for each in result.attachments]
        results[plan.index] = message = _message(plan.call, text)
        if attachments:
            message.attachments = attachments
        self.of_run.result(self.session_id, message)
        return ToolResultReady(
            agent_name=self.confirmations.agent_name,
            tool_name=plan.call.name,
            success=result.success,
            result=result.result,
            error_message=result.error_message,
            call_index=plan.index,
            tool_call_id=plan.call.id,
            agent_call_id=self.confirmations.agent_call_id,
            code=result.code,
            attachments=attachments or (),
        )


def _asked(plan: PlannedCall, tool: Tool) -> AskedCall:
    notice = tool.needs_approval
    return AskedCall(
        plan.call,
        plan.index,
        _with_defaults(plan.arguments, tool),
        tool.source,
        "" if notice is None else shown_text(notice),
    )


def _with_defaults(arguments: JSONObject, tool: Tool) -> JSONObject:
    properties = tool.parameters.get("properties")
    defaults = {
        name: schema["default"]
        for name, schema in (properties if isinstance(properties, dict) else {}).items()
        if isinstance(schema, dict) and "default" in schema
    }
    return {**defaults, **arguments}


def _batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """Group calls that may run side by side, in call order; a sequential tool runs alone."""

    def is_sequential(plan: PlannedCall) -> bool:
        return plan.tool is not None and plan.tool.sequential

    batches: list[list[PlannedCall]] = []
    for alone, group in groupby(planned, is_sequential):
        plans = list(group)
        batches += [[plan] for plan in plans] if alone else [plans]
    return batches


def _refused(call: ToolCall, reason: str | None, code: str | None = None) -> ToolExecutionResult:
    return ToolExecutionResult.failure(call.name, reason or "the call was refused.", code=code)


def _message(call: ToolCall, content: str) -> ToolMessage:
    return ToolMessage(content=content, tool_name=call.name, tool_call_id=call.id)


def results_or_interrupted(calls: Sequence[ToolCall], results: Results) -> list[ToolMessage]:
    """Return the result of each call, else a message that it was interrupted.

    Models refuse a history with open calls.
    """
    return [
        result if result is not None else _message(call, INTERRUPTED)
        for call, result in zip(calls, results, strict=True)
    ]


def unanswered(backwards: Iterable[JSONObject]) -> list[ToolMessage]:
    """Make results for the calls at the end of a session that have none.

    A crash leaves such calls, and a client that does not send the results of its own functions.
    """
    answered: list[JsonValue] = []
    for message in backwards:
        if message.get("role") == "tool":
            answered.append(message.get("tool_call_id"))
            continue
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        if not isinstance(calls, list):
            return []
        results = [_stored_result(call) for call in calls]
        if any(result.tool_call_id is None for result in results):  # files of old writers
            return results[len(answered) :]
        known = {each for each in answered if isinstance(each, str)}
        return [result for result in results if result.tool_call_id not in known]
    return []


def _stored_result(call: Any) -> ToolMessage:  # noqa: ANN401 - JSON of any writer
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    call_id = call.get("id")
    return ToolMessage(
        content=INTERRUPTED,
        tool_name=name if isinstance(name, str) else None,
        tool_call_id=call_id if isinstance(call_id, str) else None,
    )
