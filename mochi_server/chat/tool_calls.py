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

from ..core.aio import merge
from ..errors import InvalidRequest, JSONObject, ToolExecutionDenied, ToolNotFound
from ..protocol.events import AgentStart, Event, ToolCallStarted, ToolResultReady
from ..protocol.messages import ToolCall, ToolMessage
from ..sessions.types import AgentSettings, ToolSettings
from ..tools.base import InvalidArguments, Tool, ToolContext, ToolFailed
from ..tools.config import needs_confirmation
from ..tools.execution import ToolExecutionResult, ToolExecutionService
from .confirmations import ConfirmationDecision, Confirmations


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """The agents that a session can use."""

    tool: Tool | None = None
    """Tool that calls agents; null when none is enabled and valid."""
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


INTERRUPTED = "Error: the call was interrupted before it had a result."

EDITED = "(The user changed the arguments of this call to {}.)\n{}"

REFUSED_AT_ONCE = 50
"""Calls beyond the limit that are refused before others have their turn on the loop."""

Results = list[ToolMessage | None]
"""One place for each call of a reply, in call order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext(ToolContext):
    """The caller, for tools that hold conversations of their own."""

    model: str
    """Full name of the model that calls."""
    settings: ToolSettings
    """Settings of the person's conversation, whose policies hold for the tools of agents, too."""
    confirmations: Confirmations
    depth: int
    """0 for the person's conversation, one more for each agent within."""


@dataclass(slots=True)
class PlannedCall:
    """A call, and what is known about it before it runs."""

    call: ToolCall
    index: int
    tool: Tool | None
    arguments: JSONObject
    refusal: ToolExecutionResult | None = None
    """Result of a call that will not run."""
    edited: bool = False
    """Whether a person has changed the arguments."""
    announced: bool = False


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """Handles the calls of one conversation."""

    session_id: str
    model: str
    execution: ToolExecutionService
    confirmations: Confirmations
    tools: Mapping[str, Tool] = field(default_factory=dict)
    settings: ToolSettings = field(default_factory=ToolSettings)
    """Settings whose policies say when a person is asked."""
    depth: int = 0

    def schemas(self) -> list[JSONObject]:
        return [tool.schema() for tool in self.tools.values()]

    async def run(
        self, calls: Sequence[ToolCall], results: Results
    ) -> AsyncGenerator[list[Event], None]:
        """Handle the calls; yield events, after their messages for the model are in ``results``."""
        most = self.execution.max_calls_per_reply
        planned = await asyncio.gather(
            *(self._plan(call, index) for index, call in enumerate(calls[:most]))
        )
        if refused := [plan for plan in planned if plan.refusal is not None]:
            yield [self._started(plan) for plan in refused]
            yield [self._refuse(plan, results) for plan in refused]
        for first in range(most, len(calls), REFUSED_AT_ONCE):
            yield self._refuse_all(calls, first, results)
            await asyncio.sleep(0)  # others have their turn: a reply may have thousands
        async with aclosing(self._ask(planned, results)) as batches:
            async for events in batches:
                yield events
        for batch in _batches([plan for plan in planned if plan.refusal is None]):
            async with aclosing(merge([self._run(plan, results) for plan in batch])) as running:
                async for events in running:
                    yield events

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

    async def _plan(self, call: ToolCall, index: int) -> PlannedCall:
        tool = self.tools.get(call.name)
        plan = PlannedCall(call, index, tool, call.arguments)
        if tool is None:
            reason = f"there is no tool named {call.name!r}."
            plan.refusal = _refused(call, reason, ToolNotFound.code)
        elif call.problem is not None:
            reason = f"invalid arguments: {call.problem}."
            plan.refusal = _refused(call, reason, InvalidRequest.code)
        else:
            await self._validate(plan, tool, call.arguments)
        return plan

    async def _validate(self, plan: PlannedCall, tool: Tool, arguments: JSONObject) -> None:
        try:
            plan.arguments = await tool.validate(arguments)
        except InvalidArguments as error:
            reason = f"invalid arguments: {error}"
            plan.refusal = _refused(plan.call, reason, InvalidRequest.code)
        except ToolFailed as error:
            plan.refusal = _refused(plan.call, str(error))

    async def _ask(
        self, planned: Sequence[PlannedCall], results: Results
    ) -> AsyncGenerator[list[Event], None]:
        queue = [
            (plan, plan.tool)
            for plan in planned
            if plan.refusal is None
            and plan.tool is not None
            and self._needs_confirmation(plan.tool)
        ]
        for position, (plan, tool) in enumerate(queue, start=1):
            steps = self.confirmations.ask(
                plan.call,
                arguments=_with_defaults(plan.arguments, tool),
                call_index=plan.index,
                tool_source=tool.source,
                position=position,
                total=len(queue),
            )
            async with aclosing(steps):
                async for step in steps:
                    if isinstance(step, ConfirmationDecision):
                        await self._follow(plan, tool, step)
                    else:
                        plan.announced = True
                        yield [step]
            if plan.refusal is not None:
                start = [] if plan.announced else [self._started(plan)]
                yield [*start, self._refuse(plan, results)]

    def _needs_confirmation(self, tool: Tool) -> bool:
        policies = self.settings.policies_of(tool.name)
        return any(needs_confirmation(policy, tool) for policy in policies)

    async def _follow(self, plan: PlannedCall, tool: Tool, decision: ConfirmationDecision) -> None:
        if not decision.approved:
            code = decision.code or ToolExecutionDenied.code
            plan.refusal = _refused(plan.call, decision.reason_for_model, code)
        elif decision.arguments is not None:
            plan.edited = True
            await self._validate(plan, tool, decision.arguments)

    async def _run(self, plan: PlannedCall, results: Results) -> AsyncGenerator[list[Event], None]:
        assert plan.tool is not None  # noqa: S101 - planned without a refusal
        if not plan.announced:
            yield [self._started(plan)]
        context = CallContext(
            session_id=self.session_id,
            tool_call_id=plan.call.id,
            model=self.model,
            settings=self.settings,
            confirmations=self.confirmations,
            depth=self.depth,
        )
        execution = self.execution.execute(plan.tool, plan.arguments, context)
        async with aclosing(execution) as steps:
            async for step in steps:
                if isinstance(step, ToolExecutionResult):
                    yield [self._record(plan, step, results)]
                else:
                    if isinstance(step, AgentStart) and results[plan.index] is None:
                        text = f"{INTERRUPTED} Session ID: {step.session_id}"
                        results[plan.index] = _message(plan.call, text)  # until there is a result
                    yield [step]

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
        results[plan.index] = _message(plan.call, text)
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
    """Make results for calls that a crash has left without any at the end of a session."""
    answered = 0
    for message in backwards:
        if message.get("role") == "tool":
            answered += 1
            continue
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        return (
            [_stored_result(call) for call in calls[answered:]] if isinstance(calls, list) else []
        )
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
