"""Runs agents: each plans without tools, then works with them (docs/explanation/agents.md).

It is the engine of the chat, over the agent's own session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import islice

from ..chat.conversation import Conversation, add_messages, calls_of, open_reply
from ..chat.conversations import Conversations
from ..chat.reply import Reply
from ..chat.tool_calls.context import CallContext
from ..chat.tool_calls.handling import ToolCalls
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
from ..protocol.messages import AssistantMessage, Message, ToolCall, UserMessage
from ..services.chat_model import ChatModel
from ..services.history import objects, system_of
from ..services.requests import RequestExtras
from ..sessions import ChatSession, SessionManager
from ..sessions.types import TextCallMode
from ..tools.base import Tool, ToolFailed, ToolOutput
from ..tools.execution import ToolExecutionService
from .definition import AgentDefinition
from .discovery import AGENT_TOOL
from .prompt_loader import PromptLoader
from .transcript import transcript_of

AGENT_KEY = "agent_name"
"""Key in the metadata of an agent's session: the agent's name."""


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
        self.max_rounds = max_rounds
        self._sessions = sessions
        self._conversations = conversations
        self.execution = execution
        self.prompts = prompts

    @property
    def text_calls(self) -> TextCallMode:
        """What becomes of calls as text, where the person's conversation does not say."""
        return self._conversations.text_calls

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
            context: The call that started it; its ``before`` says where an earlier process stopped.

        Raises:
            ToolFailed: it could not begin, or not go on.
        """
        try:
            is_native = not context.settings.is_prompted
            needs_tools = bool(definition.tools) and is_native
            model = await self._find_model(definition, context.model, tools=needs_tools)
            instruct = partial(
                _instruct, definition, instruction, model.full_name, context.run.run_id
            )
            before = context.before
            is_new = session_id is None and before is None
            if before is not None:
                session_id = before.session_id
            elif session_id is None:
                session_id = await self._create_session(definition, model, instruct)
            async with self._sessions.claim(session_id) as session:
                if before is None and not is_new:
                    check_owner(session, definition)
                    await self._sessions.check_run(session)
                    session = await self._sessions.update(session_id, instruct)  # noqa: PLW2901
                run = await self._open_run(definition, tools, session, model, context)
                try:
                    async with aclosing(run.events(instruction)) as events:
                        async for event in events:
                            yield event
                finally:
                    await run.conversation.compact_if_full()
        except MochiError as error:
            reason = f"agent {definition.name!r} cannot work now: {error.message}"
            raise ToolFailed(reason) from error

    async def _open_run(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        session: ChatSession,
        model: ChatModel,
        context: CallContext,
    ) -> AgentRun:
        """Return the work of an agent in its session, which begins or goes on there."""
        before = context.before
        begin = len(session.messages) if before is None else before.begin
        conversation = self._conversations.open(
            session, model, context.run, sessions=self._sessions, settings=context.settings
        )
        run = AgentRun(self, definition, tools, conversation, context, begin=begin)
        if before is None:
            context.run.agent(context.tool_call_id, session.session_id, begin)
        else:
            await run.resume(session)
        return run

    async def _find_model(
        self, definition: AgentDefinition, fallback: str, *, tools: bool
    ) -> ChatModel:
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
        def prepare(session: ChatSession) -> None:
            session.metadata.set_optional(AGENT_KEY, definition.name)
            instruct(session)

        return (await self._sessions.create(model.full_name, prepare=prepare)).session_id


def _instruct(
    definition: AgentDefinition, instruction: str, model: str, run_id: str, session: ChatSession
) -> None:
    """Let a session begin a run with an instruction.

    If the session ends with it, an earlier process has stored it, and died before it could note so.
    """
    last = next(objects(session.tail()), {})
    is_last = last.get("role") == "user" and last.get("content") == instruction
    if is_last and session.metadata.last_run_id == run_id:
        return
    session.metadata.model = model
    session.metadata.begin_run(run_id)
    system = system_of(session)
    if system is None or system.get("content") != definition.system_prompt:
        session.set_system_prompt(definition.system_prompt)
    add_messages(session, [UserMessage(content=instruction)])


def check_owner(session: ChatSession, definition: AgentDefinition) -> None:
    owner = session.metadata.optional(AGENT_KEY)
    if owner is not None and owner != definition.name:
        raise ToolFailed(f"session {session.session_id} belongs to agent {owner!r}.")


ANNOUNCED = 2
"""Replies of an agent that has planned and announced what it does; the next one may answer."""


def _is_whole_reply(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.interrupted


class AgentRun:
    """An agent at work: its session is claimed, its instruction stored."""

    def __init__(
        self,
        service: AgentExecutionService,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        conversation: Conversation,
        context: CallContext,
        *,
        begin: int,
    ) -> None:
        self.name = definition.name
        self.call_id = context.tool_call_id
        self.parent_call_id = context.confirmations.agent_call_id
        self.conversation = conversation
        self.calls = ToolCalls(
            of_run=context.run,
            session_id=conversation.session_id,
            model=conversation.model.full_name,
            execution=service.execution,
            confirmations=context.confirmations.for_agent(self.name, self.call_id),
            sampler=context.sampler,
            tools={tool.name: tool for tool in tools},
            settings=context.settings,
            text_calls=context.settings.text_calls_or(service.text_calls),
            depth=context.depth + 1,
        )
        self.planning = service.prompts.planning(tools)
        self.execution = service.prompts.execution(tools)
        self.max_rounds = service.max_rounds
        self.begin = begin
        """Number of messages in the session before the agent's first."""
        self.is_resumed = False
        self.replies = 0
        """Number of whole replies that an earlier process has stored."""
        self.open_calls: Sequence[ToolCall] = ()
        """Calls of the last of them, without results."""
        self.is_finished = False
        """Whether the last of them was the answer."""

    async def resume(self, session: ChatSession) -> None:
        """Find out where an earlier process stopped, and store what it had said last."""
        assert self.calls.of_run.before is not None  # noqa: S101 - the run was resumed
        before = self.calls.of_run.before.of(session.session_id).unstored(session)
        self.is_resumed = True
        reply = open_reply(session)
        self.open_calls = [] if reply is None else calls_of(reply)
        self.calls.before = before
        messages = session.messages[self.begin :]
        self.replies = sum(map(_is_whole_reply, messages))
        if self.replies > ANNOUNCED:
            self.is_finished = _is_whole_reply(messages[-1]) and not self.open_calls
        if (partial := before.partial_reply(self.conversation.model.full_name)) is not None:
            await self.conversation.store(partial)

    async def events(self, instruction: str) -> AsyncGenerator[Event | ToolOutput, None]:
        if not self.is_resumed:
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
        if self.replies == 0:
            reply = Reply()
            planning = self._ask(reply, self._extras(self.planning), AgentPlanning)
            async with aclosing(planning) as deltas:
                async for delta in deltas:
                    yield delta
            await self._keep(reply)
        if self.open_calls:
            calls = self.conversation.run_stored_calls(self.open_calls, self.calls)
            async with aclosing(_each(calls)) as events:
                async for event in events:
                    yield event
        if not self.is_finished:
            async with aclosing(self._execute(max(self.replies, 1))) as events:
                async for event in events:
                    yield event

    async def _execute(self, first: int) -> AsyncGenerator[Event, None]:
        """Work with the tools, from this round on."""
        has_results = bool(self.open_calls)
        for number in range(first, self.max_rounds + 1):
            reply = Reply()
            last = number == self.max_rounds or self.calls.must_answer
            extras = self._extras(self.execution, tools=not last)
            async with aclosing(self._ask(reply, extras, AgentExecution)) as deltas:
                async for delta in deltas:
                    yield delta
            if reply.calls and not last:
                _renew_agent_call_ids(reply)
                calls = self.conversation.run_calls(reply, self.calls)
                async with aclosing(_each(calls)) as events:
                    async for event in events:
                        yield event
                has_results = True
                continue
            if has_results and not last and not reply.has_answer:
                self.calls.must_answer = True
                continue
            await self._keep(reply)
            if number > 1:  # many models first announce what they are going to do
                return

    def _extras(self, prompt: str, *, tools: bool = False) -> RequestExtras:
        """Return the phase's prompt, as a user's message: every chat template knows that role."""
        schemas = self.calls.offer()
        return RequestExtras(
            tools=schemas if tools else (),
            messages=[{"role": "user", "content": prompt}],
            withheld=() if tools else schemas,
        )

    async def _ask(
        self, reply: Reply, extras: RequestExtras, kind: type[AgentPlanning | AgentExecution]
    ) -> AsyncGenerator[AgentPlanning | AgentExecution, None]:
        async with aclosing(self.conversation.ask(reply, extras)) as batches:
            async for deltas in batches:
                for delta in deltas:
                    if isinstance(delta, ContentDelta):
                        yield kind(delta.content, self.name, self.call_id)

    async def _keep(self, reply: Reply) -> None:
        """Store a reply without its calls: no tools were offered, or no round is left."""
        reply.calls.clear()
        if reply.has_answer:
            await self.conversation.store_answer(reply)

    async def _output(self, text_before: str = "") -> str:
        conversation = self.conversation
        since: list[JSONObject] = []
        with suppress(MochiError):  # the session may be deleted by now; the run ends all the same
            session = await conversation.sessions.get(conversation.session_id)
            count = max(len(session.messages) - self.begin, 0)
            since = list(objects(islice(session.tail(), count)))
        most = self.calls.execution.result_characters - len(text_before) - 1
        return transcript_of(conversation.session_id, reversed(since), most)


async def _each(batches: AsyncGenerator[list[Event], None]) -> AsyncGenerator[Event, None]:
    async with aclosing(batches):
        async for events in batches:
            for event in events:
                yield event


def _renew_agent_call_ids(reply: Reply) -> None:
    """Give calls of further agents new ids, which identify their runs in the whole turn.

    Some models count their calls, so agents that work side by side would have the same ids.
    """
    reply.calls = [
        call.model_copy(update={"id": new_call_id()}) if call.name == AGENT_TOOL else call
        for call in reply.calls
    ]
