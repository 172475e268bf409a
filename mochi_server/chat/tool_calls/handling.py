"""Handles the calls in a model's reply: plan, confirm, run, record.

Every call gets exactly one result, recorded in call order. Nothing runs before everything is
planned and every person has been asked; what may run then runs side by side. Only tools that were
offered run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import groupby

import orjson

from ...core.aio import merge, run_to_completion
from ...errors import InvalidRequest, JSONObject, StorageError, ToolExecutionDenied, ToolNotFound
from ...protocol.events import (
    AgentStart,
    Event,
    ToolCallStarted,
    ToolInputReceived,
    ToolInputRequired,
    ToolResultReady,
)
from ...protocol.messages import ToolCall
from ...sessions.types import TextCallMode, ToolSettings
from ...tools.base import Tool
from ...tools.execution import ToolExecutionResult, ToolExecutionService, cut
from ..confirmations.announcing import input_received
from ..confirmations.asking import ELICITATION_WITHDRAWN, Confirmations
from ..runs.progress import Unstored
from ..runs.run import Run
from .context import CallContext, Sampler
from .deciding import CallDecisions
from .planned import PlannedCall
from .results import INTERRUPTED, INTERRUPTED_REASON, Results, message_of

NOTE_SECONDS = 30.0
"""Longest wait of an approved call until it can be stored that it runs."""
CANNOT_NOTE = "the server cannot store at present that the call runs."

EDITED = "(The user changed the arguments of this call to {}.)\n{}"

REFUSED_AT_ONCE = 50
"""Calls beyond the limit that are refused before others have their turn on the loop."""


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
    """Settings whose execution policies say when a person is asked."""
    text_calls: TextCallMode = "on"
    """Whether a person is asked about every call that the model wrote as text."""
    depth: int = 0
    before: Unstored | None = None
    """What an earlier process has done with the first calls that are handled."""
    must_answer: bool = field(default=False, init=False)
    """Whether the model repeats a call, or says nothing of its results: it gets no more tools."""
    _last_results: dict[int, ToolExecutionResult] = field(default_factory=dict, init=False)
    """Results of the calls of the last reply, by their index; of repeated ones alone, if any."""
    _outcomes: dict[tuple[str, str], _Outcome] = field(default_factory=dict, init=False)
    """The last result of each call in this turn, and how many times in a row it was that."""

    def offer(self) -> list[JSONObject]:
        """Return the schemas of the tools for a model, which may call them soon."""
        for tool in self.tools.values():
            tool.prepare()
        return [tool.schema() for tool in self.tools.values()]

    def answer(self) -> str:
        """Return the last results, or those of repeated calls, for a model that says nothing.

        Failures are told where nothing else is.
        """
        results = [self._last_results[index] for index in sorted(self._last_results)]
        told = [each for each in results if each.success] or results
        first, *others = dict.fromkeys(each.for_model() for each in told) or [""]
        text = "\n\n".join([first, *others])
        return cut(text, max(len(first), self.execution.result_characters))

    async def run(
        self, calls: Sequence[ToolCall], results: Results
    ) -> AsyncGenerator[list[Event], None]:
        """Handle the calls; yield events, after their messages for the model are in ``results``."""
        most = self.execution.max_calls_per_reply
        self._last_results = {}
        before, self.before = self.before, None
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
            async with aclosing(self._decisions(results).decide(planned)) as batches:
                async for events in batches:
                    yield events
            for batch in _batches([plan for plan in planned if plan.refusal is None]):
                steps = merge([self._run(plan, results) for plan in batch])
                with self.of_run.split(len(batch)):
                    async with aclosing(steps) as running:
                        async for events in running:
                            yield events
        finally:
            if not await run_to_completion(self.of_run.is_given_up()):
                await self.confirmations.close()

    def _decisions(self, results: Results) -> CallDecisions:
        return CallDecisions(
            confirmations=self.confirmations,
            settings=self.settings,
            text_calls=self.text_calls,
            waiting=self.of_run.waiting,
            refuse=lambda plan: self._refuse_asked(plan, results),
        )

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
            plan.refuse(reason, ToolExecutionDenied.code)
            events += [self._started(plan), self._refuse(plan, results)]
        return events

    async def _plan(self, call: ToolCall, index: int, before: Unstored | None) -> PlannedCall:
        tool = self.tools.get(call.name)
        plan = PlannedCall(call, index, tool, call.arguments)
        if before is not None:
            plan.announced = call.id in before.announced
            plan.confirmation = self.confirmations.earlier_of(call)
            if call.id in before.started:
                await self._plan_started(plan, before.started[call.id])
                return plan
        if tool is None:
            reason = f"there is no tool named {call.name!r}."
            plan.refuse(reason, ToolNotFound.code)
        elif call.problem is not None:
            reason = f"invalid arguments: {call.problem}."
            plan.refuse(reason, InvalidRequest.code)
        elif (outcome := self._outcomes.get(_key(call))) and outcome.times >= MOST_REPEATS:
            self.must_answer = True
            self._last_results[index] = outcome.result
            plan.refusal = outcome.again()
        else:
            await plan.validate(tool, call.arguments)
        return plan

    async def _plan_started(self, plan: PlannedCall, edited: JSONObject | None) -> None:
        """Go on with a call that an earlier process started, or give it up."""
        plan.is_started = True
        plan.edited = edited is not None
        if edited is not None:
            plan.arguments = edited
        if plan.confirmation is not None:
            await self.confirmations.consume(plan.confirmation, ran=plan.arguments)
        if plan.tool is not None and plan.tool.is_resumable:
            await plan.validate(plan.tool, plan.arguments)
        else:
            plan.refuse(INTERRUPTED_REASON)

    async def _run(self, plan: PlannedCall, results: Results) -> AsyncGenerator[list[Event], None]:
        assert plan.tool is not None  # noqa: S101 - planned without a refusal
        try:
            if not plan.announced:
                yield [self._started(plan)]
            if not plan.is_started:
                if not await self._may_start(plan):
                    plan.refuse(CANNOT_NOTE, StorageError.code)
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
            execution = _closing_elicitations(
                self.execution.execute(plan.tool, plan.arguments, context)
            )
            async with aclosing(execution) as steps:
                async for step in steps:
                    if isinstance(step, ToolExecutionResult):
                        yield [self._record(plan, step, results)]
                    else:
                        if isinstance(step, AgentStart) and results[plan.index] is None:
                            text = f"{INTERRUPTED} Session ID: {step.session_id}"
                            results[plan.index] = message_of(plan.call, text)  # for an interruption
                        yield [step]
        finally:
            self.of_run.end_branch()

    async def _may_start(self, plan: PlannedCall) -> bool:
        """Note that a call runs: an approved one must not run again after a crash."""
        edited = plan.arguments if plan.edited else None
        seconds = NOTE_SECONDS if plan.is_approved else 0.0
        is_noted = await self.of_run.started(self.session_id, plan.call.id, edited, seconds=seconds)
        return is_noted or not plan.is_approved

    def _refuse_asked(self, plan: PlannedCall, results: Results) -> list[Event]:
        start = [] if plan.announced else [self._started(plan)]
        return [*start, self._refuse(plan, results)]

    def _started(self, plan: PlannedCall) -> Event:
        return ToolCallStarted(
            agent_name=self.confirmations.agent_name,
            tool_name=plan.call.name,
            arguments=plan.call.arguments,
            call_index=plan.index,
            tool_call_id=plan.call.id,
            agent_call_id=self.confirmations.agent_call_id,
            recovered=plan.call.recovered,
        )

    def _refuse(self, plan: PlannedCall, results: Results) -> Event:
        assert plan.refusal is not None  # noqa: S101
        return self._record(plan, plan.refusal, results)

    def _record(self, plan: PlannedCall, result: ToolExecutionResult, results: Results) -> Event:
        text = result.for_model()
        if not self.must_answer:
            self._last_results[plan.index] = result
        key = _key(plan.call)
        repeated = self._outcomes.get(key)
        times = repeated.times if repeated and repeated.result.for_model() == text else 0
        self._outcomes[key] = _Outcome(result, times + 1)
        if plan.edited:
            text = EDITED.format(orjson.dumps(plan.arguments).decode(), text)
        attachments = [each.payload() for each in result.attachments]
        results[plan.index] = message = message_of(plan.call, text)
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


async def _closing_elicitations(
    steps: AsyncGenerator[Event | ToolExecutionResult, None],
) -> AsyncGenerator[Event | ToolExecutionResult, None]:
    """Yield the steps of a call; before its result, end the elicitations that are still open."""
    pending: dict[str, ToolInputRequired] = {}
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, ToolInputRequired):
                pending[step.confirmation_id] = step
            elif isinstance(step, ToolInputReceived):
                pending.pop(step.confirmation_id, None)
            elif isinstance(step, ToolExecutionResult):
                for elicitation in pending.values():
                    yield input_received(elicitation, ELICITATION_WITHDRAWN)
            yield step


MOST_REPEATS = 2
"""Times in a turn that a call may have the same result."""
ALREADY_DONE = "This was already done {} times, with this result:\n{}"
ALREADY_FAILED = "this has failed {} times already: {}"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a call, and how often in a turn."""

    result: ToolExecutionResult
    times: int

    def again(self) -> ToolExecutionResult:
        """Return the result of the same call, which does not run."""
        if self.result.success:
            text = ALREADY_DONE.format(self.times, self.result.for_model())
            return replace(self.result, result=text, execution_time=0.0, attachments=())
        reason = ALREADY_FAILED.format(self.times, self.result.error_message)
        return replace(self.result, error_message=reason, execution_time=0.0)


def _batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """Group calls that may run side by side, in call order; a sequential tool runs alone."""

    def is_sequential(plan: PlannedCall) -> bool:
        return plan.tool is not None and plan.tool.sequential

    batches: list[list[PlannedCall]] = []
    for alone, group in groupby(planned, is_sequential):
        plans = list(group)
        batches += [[plan] for plan in plans] if alone else [plans]
    return batches


def _key(call: ToolCall) -> tuple[str, str]:
    """Return what is the same for the same call."""
    return call.name, json.dumps(call.arguments, sort_keys=True)
