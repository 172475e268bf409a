"""One run of an agent: a plan, then rounds of work, as events; and what comes of it as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import islice

from ..chat.conversation import Conversation
from ..chat.reply import Reply
from ..chat.requests import Beside
from ..chat.stored import objects
from ..chat.tool_calls import ToolCalls
from ..core.ids import new_call_id
from ..errors import JSONObject, MochiError
from ..protocol.agent_events import (
    AgentComplete,
    AgentExecution,
    AgentPlanning,
    AgentStart,
    AgentToolCall,
    AgentToolResult,
)
from ..protocol.events import ContentDelta, Event, ToolCallStarted, ToolResultReady
from ..tools.base import ToolFailed, ToolOutput
from .definition import AGENT_TOOL
from .transcript import transcript


@dataclass(slots=True, kw_only=True)
class AgentRun:
    """An agent that is allowed to work: its session is claimed, its instruction stored."""

    name: str
    call_id: str
    parent_call_id: str | None
    conversation: Conversation
    calls: ToolCalls
    planning: str
    execution: str
    max_rounds: int
    begin: int
    """Messages in the session before the agent says anything."""
    longest_output: int
    """Characters that a calling model is given at most."""

    async def events(self, instruction: str) -> AsyncGenerator[Event | ToolOutput, None]:
        """Start, plan, work, complete; the output for the calling model last.

        Raises:
            ToolFailed: it could not go on; told by ``agent_complete`` as well.
        """
        yield AgentStart(
            agent_name=self.name,
            instruction=instruction,
            session_id=self.conversation.session_id,
            model=self.conversation.model.full_name,
            agent_call_id=self.call_id,
            parent_call_id=self.parent_call_id,
        )
        problem: str | None = None
        try:
            async with aclosing(self._work()) as steps:
                async for event in steps:
                    yield event
        except MochiError as error:
            problem = f"agent {self.name!r} could not go on: {error.message}"
        output = await self._output(problem or "")
        yield AgentComplete(
            agent_name=self.name,
            session_id=self.conversation.session_id,
            output=output,
            agent_call_id=self.call_id,
            success=problem is None,
            error_message=problem,
        )
        if problem is not None:
            raise ToolFailed(f"{problem}\n{output}")
        yield ToolOutput(output)

    async def _work(self) -> AsyncGenerator[Event, None]:
        reply = Reply()
        async with aclosing(self._ask(reply, self._beside(self.planning), AgentPlanning)) as deltas:
            async for delta in deltas:
                yield delta
        await self._keep(reply)
        for number in range(1, self.max_rounds + 1):
            reply = Reply()
            last = number == self.max_rounds
            beside = self._beside(self.execution, tools=not last)
            async with aclosing(self._ask(reply, beside, AgentExecution)) as deltas:
                async for delta in deltas:
                    yield delta
            if reply.calls and not last:
                _identify(reply)
                async with aclosing(self.conversation.run_calls(reply, self.calls)) as batches:
                    async for events in batches:
                        for event in events:
                            yield self._translated(event)
                continue
            await self._keep(reply)
            if number > 1:  # many models first announce what they are going to do
                return

    def _beside(self, prompt: str, *, tools: bool = False) -> Beside:
        """What is sent and never stored; as the user's, since templates know that everywhere."""
        schemas = self.calls.schemas() if tools else ()
        return Beside(tools=schemas, messages=[{"role": "user", "content": prompt}])

    async def _ask(
        self, reply: Reply, beside: Beside, kind: type[AgentPlanning | AgentExecution]
    ) -> AsyncGenerator[AgentPlanning | AgentExecution, None]:
        async with aclosing(self.conversation.ask(reply, beside)) as batches:
            async for deltas in batches:
                for delta in deltas:
                    if isinstance(delta, ContentDelta):
                        yield kind(delta.content, self.name, self.call_id)

    async def _keep(self, reply: Reply) -> None:
        """Store a reply without its calls: none were offered, or there is no round left."""
        reply.calls.clear()
        if not reply.is_empty:
            await self.conversation.finish(reply)

    def _translated(self, event: Event) -> Event:
        match event:
            case ToolCallStarted():
                return AgentToolCall(
                    agent_name=self.name,
                    tool_name=event.tool_name,
                    arguments=event.arguments,
                    call_index=event.call_index,
                    tool_call_id=event.tool_call_id,
                    agent_call_id=self.call_id,
                )
            case ToolResultReady():
                return AgentToolResult(
                    agent_name=self.name,
                    tool_name=event.tool_name,
                    success=event.success,
                    result=event.result,
                    error_message=event.error_message,
                    call_index=event.call_index,
                    tool_call_id=event.tool_call_id,
                    agent_call_id=self.call_id,
                    code=event.code,
                )
            case _:  # questions carry the agent already; those of agents within are theirs
                return event

    async def _output(self, beside: str = "") -> str:
        """What is handed back, with room for something that is said before it."""
        conversation = self.conversation
        since: list[JSONObject] = []
        with suppress(MochiError):  # the session may be deleted by now; the run ends all the same
            session = await conversation.sessions.get(conversation.session_id)
            count = max(len(session.messages) - self.begin, 0)
            since = list(objects(islice(session.tail(), count)))
        most = self.longest_output - len(beside) - 1
        return transcript(conversation.session_id, reversed(since), most)


def _identify(reply: Reply) -> None:
    """Give the calls of further agents ids of ours, which name their runs in the whole turn.

    Some models count their calls, so the calls of agents that work side by side have the same ids.
    """
    reply.calls = [
        call.model_copy(update={"id": new_call_id()}) if call.name == AGENT_TOOL else call
        for call in reply.calls
    ]
