"""What an agent does when it is called: plan without tools, then work with them.

Docs: docs/explanation/agents.md. It is the same engine as the chat's, over the agent's own session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from ..chat.conversation import Conversation, Conversations, add_question
from ..chat.reply import Reply
from ..chat.tool_calls import CallContext, ToolCalls
from ..core.ids import new_call_id
from ..errors import JSONObject, MochiError, ModelNotFound, ProviderNotConfigured, ToolsNotSupported
from ..protocol.events import (
    AgentComplete,
    AgentExecution,
    AgentPlanning,
    AgentStart,
    ContentDelta,
    Event,
)
from ..services.history import objects, system_of
from ..services.requests import ChatModel, RequestExtras
from ..sessions import ChatSession, SessionManager
from ..tools.base import Tool, ToolFailed, ToolOutput
from ..tools.execution import ToolExecutionService, cut
from .definition import AGENT_TOOL, AgentDefinition
from .prompt_loader import PromptLoader

AGENT_KEY = "agent_name"
"""In an agent session's metadata: whose it is."""


class AgentExecutionService:
    """Runs agents, each on a session of its own."""

    def __init__(
        self,
        *,
        max_rounds: int,
        sessions: SessionManager,
        conversations: Conversations,
        execution: ToolExecutionService,
        prompts: PromptLoader,
    ) -> None:
        self._max_rounds = max_rounds
        self._sessions = sessions
        self._conversations = conversations
        self._execution = execution
        self._prompts = prompts

    async def run(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        instruction: str,
        session_id: str | None,
        context: CallContext,
    ) -> AsyncGenerator[Event | ToolOutput, None]:
        """Run a valid agent: yield its events and, last, its output for the calling model.

        Closing the generator ends the agent's model call and its tools; what it did is stored.

        Args:
            definition: The agent.
            tools: Tools that it may call, the ``agent`` tool among them if it may call agents.
            instruction: Its task.
            session_id: An earlier session of this agent to continue; None creates one.
            context: The call that started it.

        Raises:
            ToolFailed: it could not begin, or not go on.
        """
        try:
            model = await self._find_model(definition, context.model)

            def instruct(session: ChatSession) -> None:
                session.metadata.model = model.full_name
                system = system_of(session)
                if system is None or system.get("content") != definition.system_prompt:
                    session.set_system_prompt(definition.system_prompt)
                add_question(session, instruction)

            is_new = session_id is None
            if session_id is None:
                session_id = await self._create_session(definition, model, instruct)
            async with self._sessions.claim(session_id) as session:
                if not is_new:
                    check_owner(session, definition)
                    session = await self._sessions.update(session_id, instruct)  # noqa: PLW2901
                conversation = self._conversations.open(session, model, sessions=self._sessions)
                run = self._run(definition, tools, conversation, context, len(session.messages))
                async with aclosing(run.events(instruction)) as events:
                    async for event in events:
                        yield event
        except MochiError as error:
            reason = f"agent {definition.name!r} cannot work now: {error.message}"
            raise ToolFailed(reason) from error

    async def _find_model(self, definition: AgentDefinition, fallback: str) -> ChatModel:
        """Find the agent's model, or the caller's if that is missing or cannot call tools."""
        tools = bool(definition.tools)
        if definition.model is not None:
            with suppress(ModelNotFound, ProviderNotConfigured, ToolsNotSupported):
                return await self._conversations.find_model(definition.model, tools=tools)
        return await self._conversations.find_model(fallback, tools=tools)

    async def _create_session(
        self,
        definition: AgentDefinition,
        model: ChatModel,
        instruct: Callable[[ChatSession], None],
    ) -> str:
        """Create the agent's session, complete in one write."""

        def prepare(session: ChatSession) -> None:
            extra = session.metadata.model_extra
            assert extra is not None  # noqa: S101 - the model keeps keys that it does not know
            extra[AGENT_KEY] = definition.name
            instruct(session)

        return (await self._sessions.create(model.full_name, prepare=prepare)).session_id

    def _run(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        conversation: Conversation,
        context: CallContext,
        begin: int,
    ) -> AgentRun:
        confirmations = context.confirmations.for_agent(definition.name, context.tool_call_id)
        return AgentRun(
            name=definition.name,
            call_id=context.tool_call_id,
            parent_call_id=context.confirmations.agent_call_id,
            conversation=conversation,
            calls=ToolCalls(
                session_id=conversation.session_id,
                model=conversation.model.full_name,
                execution=self._execution,
                confirmations=confirmations,
                tools={tool.name: tool for tool in tools},
                settings=context.settings,
                depth=context.depth + 1,
            ),
            planning=self._prompts.planning(tools),
            execution=self._prompts.execution(tools),
            max_rounds=self._max_rounds,
            begin=begin,
            longest_output=self._execution.result_characters,
        )


def check_owner(session: ChatSession, definition: AgentDefinition) -> None:
    """Refuse another agent's session.

    Raises:
        ToolFailed: it is one.
    """
    owner = (session.metadata.model_extra or {}).get(AGENT_KEY)
    if owner is not None and owner != definition.name:
        raise ToolFailed(f"session {session.session_id} belongs to agent {owner!r}.")


SILENT = "(The agent said nothing.)"
SHORTEST_PART = 100
"""Characters of a message that are always kept."""


def transcript(session_id: str, messages: Iterable[JSONObject], most: int) -> str:
    """``Session ID: …``, then messages, calls and results.

    Where that is too long, the longest parts are shortened; the last one, which is the answer, has
    half of the room if it needs it.

    Args:
        session_id: Of the agent's session.
        messages: As they are stored.
        most: Characters that it should have at most.
    """
    head = f"Session ID: {session_id}"
    parts = [part for message in messages for part in _lines(message)] or [SILENT]
    longest = max(map(len, parts))
    while True:
        shown = [cut(part, longest) for part in parts[:-1]]
        answer = cut(parts[-1], max(longest, most // 2))
        text = "\n\n".join([head, *shown, answer])
        if len(text) <= most or longest <= SHORTEST_PART:
            return text
        longest //= 2


def _lines(message: JSONObject) -> Iterator[str]:
    text = message.get("content")
    if message.get("role") == "tool":
        yield f"Result of {message.get('tool_name')}: {text}"
        return
    if isinstance(text, str) and text.strip():
        yield text.strip()
    calls: Any = message.get("tool_calls") or []
    for call in calls:
        function = call["function"]
        yield f"Call of {function['name']}: {orjson.dumps(function['arguments']).decode()}"


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
        async with aclosing(self._ask(reply, self._extras(self.planning), AgentPlanning)) as deltas:
            async for delta in deltas:
                yield delta
        await self._keep(reply)
        for number in range(1, self.max_rounds + 1):
            reply = Reply()
            last = number == self.max_rounds
            extras = self._extras(self.execution, tools=not last)
            async with aclosing(self._ask(reply, extras, AgentExecution)) as deltas:
                async for delta in deltas:
                    yield delta
            if reply.calls and not last:
                _identify(reply)
                async with aclosing(self.conversation.run_calls(reply, self.calls)) as batches:
                    async for events in batches:
                        for event in events:
                            yield event
                continue
            await self._keep(reply)
            if number > 1:  # many models first announce what they are going to do
                return

    def _extras(self, prompt: str, *, tools: bool = False) -> RequestExtras:
        """What is sent and never stored; as the user's, since templates know that everywhere."""
        schemas = self.calls.schemas() if tools else ()
        return RequestExtras(tools=schemas, messages=[{"role": "user", "content": prompt}])

    async def _ask(
        self, reply: Reply, extras: RequestExtras, kind: type[AgentPlanning | AgentExecution]
    ) -> AsyncGenerator[AgentPlanning | AgentExecution, None]:
        async with aclosing(self.conversation.ask(reply, extras)) as batches:
            async for deltas in batches:
                for delta in deltas:
                    if isinstance(delta, ContentDelta):
                        yield kind(delta.content, self.name, self.call_id)

    async def _keep(self, reply: Reply) -> None:
        """Store a reply without its calls: none were offered, or there is no round left."""
        reply.calls.clear()
        if not reply.is_empty:
            await self.conversation.finish(reply)

    async def _output(self, extras: str = "") -> str:
        """What is handed back, with room for something that is said before it."""
        conversation = self.conversation
        since: list[JSONObject] = []
        with suppress(MochiError):  # the session may be deleted by now; the run ends all the same
            session = await conversation.sessions.get(conversation.session_id)
            count = max(len(session.messages) - self.begin, 0)
            since = list(objects(islice(session.tail(), count)))
        most = self.longest_output - len(extras) - 1
        return transcript(conversation.session_id, reversed(since), most)


def _identify(reply: Reply) -> None:
    """Give the calls of further agents ids of ours, which name their runs in the whole turn.

    Some models count their calls, so the calls of agents that work side by side have the same ids.
    """
    reply.calls = [
        call.model_copy(update={"id": new_call_id()}) if call.name == AGENT_TOOL else call
        for call in reply.calls
    ]
