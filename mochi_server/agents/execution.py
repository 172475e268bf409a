"""What an agent does when it is called: plan without tools, then work with them.

Docs: docs/explanation/agents.md. It is the same engine as the chat's, over the agent's own session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress

from ..chat.checks import check_tools, learn_window
from ..chat.conversation import Conversation, Limits, objects, system_of
from ..chat.tool_calls import CallContext, ToolCalls, unanswered
from ..errors import MochiError, ModelNotFound, ProviderNotConfigured, ToolsNotSupported
from ..events import Event
from ..messages import UserMessage
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService
from ..sessions import ChatSession, SessionManager
from ..tools.base import Tool, ToolFailed, ToolOutput
from ..tools.execution import ToolExecutionService
from .definition import AgentDefinition
from .prompt_loader import PromptLoader
from .run import AgentRun

AGENT_KEY = "agent_name"
"""In an agent session's metadata: whose it is."""


class AgentExecutionService:
    """Runs agents, each on a session of its own."""

    def __init__(
        self,
        *,
        max_rounds: int,
        limits: Limits,
        sessions: SessionManager,
        providers: ProviderRegistry,
        windows: DynamicContextWindowService,
        execution: ToolExecutionService,
        prompts: PromptLoader,
        make_way: Callable[[str], None] | None = None,
    ) -> None:
        self._max_rounds = max_rounds
        self._limits = limits
        self._sessions = sessions
        self._providers = providers
        self._windows = windows
        self._execution = execution
        self._prompts = prompts
        self._make_way = make_way

    async def run(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        instruction: str,
        session_id: str | None,
        context: CallContext,
    ) -> AsyncGenerator[Event | ToolOutput, None]:
        """The agent's events, and its output, last: ``Session ID: …`` and all that it did.

        Closing it ends the agent's model call and its tools; what it did is stored.

        Args:
            definition: A valid agent.
            tools: What it may call, the ``agent`` tool included where it may call others.
            instruction: What it is to do.
            session_id: An earlier session of this agent to go on with; None begins a new one.
            context: Who calls.

        Raises:
            ToolFailed: it could not begin, or not go on.
        """
        try:
            conversation = await self._conversation(definition, context.model)
            if session_id is None:
                session_id = await self._new_session(definition, conversation.model)
            conversation.session_id = session_id
            async with AsyncExitStack() as stack:
                session = await stack.enter_async_context(self._sessions.claim(session_id))
                check_owner(session, definition)
                begin = await self._instruct(conversation, definition, instruction)
                run = self._run(definition, tools, conversation, context, begin)
                async with aclosing(run.events(instruction)) as events:
                    async for event in events:
                        yield event
        except MochiError as error:
            reason = f"agent {definition.name!r} cannot work now: {error.message}"
            raise ToolFailed(reason) from error

    async def _conversation(self, definition: AgentDefinition, fallback: str) -> Conversation:
        """The agent's model, or the caller's where that is not there or cannot call tools."""
        names = [name for name in (definition.model, fallback) if name]
        for model in names[:-1]:
            with suppress(ModelNotFound, ProviderNotConfigured, ToolsNotSupported):
                return await self._with_model(model, definition)
        return await self._with_model(names[-1], definition)

    async def _with_model(self, model: str, definition: AgentDefinition) -> Conversation:
        provider, name = self._providers.resolve(model)
        info = await provider.show_model(name)
        if definition.tools:
            check_tools(model, info, provider)
        await learn_window(self._windows, model, provider, name)
        return Conversation(
            session_id="",
            model=model,
            name=name,
            info=info,
            provider=provider,
            think=False,
            limits=self._limits,
            sessions=self._sessions,
            windows=self._windows,
            make_way=self._make_way,
        )

    async def _new_session(self, definition: AgentDefinition, model: str) -> str:
        session = await self._sessions.create(model, system_prompt=definition.system_prompt)

        def name(session: ChatSession) -> None:
            extra = session.metadata.model_extra
            assert extra is not None  # noqa: S101 - the model keeps keys that it does not know
            extra[AGENT_KEY] = definition.name

        await self._sessions.update(session.session_id, name)
        return session.session_id

    async def _instruct(
        self, conversation: Conversation, definition: AgentDefinition, instruction: str
    ) -> int:
        """Refresh the system prompt, store the instruction; the number of messages then."""

        def change(session: ChatSession) -> None:
            session.metadata.model = conversation.model
            system = system_of(session)
            if system is None or system.get("content") != definition.system_prompt:
                session.set_system_prompt(definition.system_prompt)
            session.append(*unanswered(objects(session.tail())), UserMessage(content=instruction))

        conversation.session = await self._sessions.update(conversation.session_id, change)
        return len(conversation.session.messages)

    def _run(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        conversation: Conversation,
        context: CallContext,
        begin: int,
    ) -> AgentRun:
        asker = context.asker.for_agent(definition.name, context.tool_call_id)
        return AgentRun(
            name=definition.name,
            call_id=context.tool_call_id,
            parent_call_id=context.asker.agent_call_id,
            conversation=conversation,
            calls=ToolCalls(
                session_id=conversation.session_id,
                model=conversation.model,
                execution=self._execution,
                asker=asker,
                tools={tool.name: tool for tool in tools},
                policy=context.policy,
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
