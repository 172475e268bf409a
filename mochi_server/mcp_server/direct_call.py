"""A call of one tool without a conversation: a run of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Container
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from ..chat.confirmations.asking import Confirmations
from ..chat.journal.records import RunHead
from ..chat.rules.places import RulePlaces
from ..chat.rules.rule import RuleSet
from ..chat.runs.log import LogReader
from ..chat.runs.run import Run
from ..chat.tool_calls.handling import ToolCalls
from ..chat.tool_calls.results import Results
from ..core.caller import current_caller, require
from ..core.ids import new_call_id, new_run_id
from ..errors import JSONObject
from ..protocol.events import Event
from ..protocol.messages import ToolCall, now
from ..protocol.turn_request import TurnRequest
from ..runtime import Runtime
from ..sessions.types import ToolExecutionPolicy, ToolSettings
from ..tools.base import Tool

SETTINGS = ToolSettings(execution_policy=ToolExecutionPolicy.CONFIRM_DESTRUCTIVE)


class SharedRules(RulePlaces):
    """The rules of the data folder alone: there is no session that could have some."""

    async def load(
        self,
        session_id: str | None = None,  # noqa: ARG002
        decided: Container[str] = (),
    ) -> list[RuleSet]:
        return await super().load(None, decided)


@dataclass(slots=True, kw_only=True)
class DirectCall:
    """A turn that consists of one call."""

    run: Run
    call: ToolCall
    calls: ToolCalls
    claim: AsyncExitStack
    """Its slot, and the end of the MCP servers that were started for it."""

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """Ask about the call where that is needed, run it; yield its events."""
        results: Results = [None]
        async with aclosing(self.calls.run([self.call], results)) as batches:
            async for events in batches:
                yield events

    async def release(self) -> None:
        """Give back what the run holds."""
        await self.claim.aclose()


def start_call(
    runtime: Runtime, tool: Tool, arguments: JSONObject, *, model: str, can_ask: bool
) -> tuple[str, LogReader]:
    """Start a call as a run, and return the run's id and a reader, which the caller must leave.

    The run has its own id as the id of its session: there is no such session.

    Args:
        runtime: The parts of the server.
        tool: What is called.
        arguments: Its arguments, not yet validated.
        model: Full name of the model of agents that have none.
        can_ask: Whether a person is asked where that is needed; else such a call is denied.

    Raises:
        ShuttingDown: the server is stopping.
        ServerBusy: it has too many runs.
        Forbidden: the caller lacks the right ``tools``.
    """
    require("tools")
    claim = AsyncExitStack()
    claim.enter_context(runtime.runs.slot())
    run_id = new_run_id()
    claim.push_async_callback(runtime.mcp.end_session, run_id)  # as if it were a session
    head = RunHead(
        run_id=run_id,
        session_id=run_id,
        number=1,
        model=model,
        started_at=now(),
        request=TurnRequest(wait=can_ask),
        owner=current_caller().owner,
    )
    run = runtime.runs.new(head)
    calls = _calls_of(run, runtime, tool, can_ask=can_ask)
    call = ToolCall(id=new_call_id(), name=tool.name, arguments=arguments)
    reader = run.log.reader()
    runtime.runs.start(DirectCall(run=run, call=call, calls=calls, claim=claim))
    return run_id, reader


def _calls_of(run: Run, runtime: Runtime, tool: Tool, *, can_ask: bool) -> ToolCalls:
    head = run.head
    return ToolCalls(
        of_run=run,
        session_id=head.session_id,
        model=head.model,
        execution=runtime.tool_execution,
        confirmations=Confirmations(
            store=runtime.confirmations,
            rule_places=SharedRules(runtime.inbox.rule_places.shared, runtime.sessions),
            run_id=head.run_id,
            session_id=head.session_id,
            owner=head.owner,
            session_kept=False,
            timeout=runtime.chat.confirmation_timeout,
            wait=can_ask,
        ),
        sampler=runtime.chat.conversations,
        tools={tool.name: tool},
        settings=SETTINGS,
    )
