"""What an agent does when it is called: plan without tools, then work with them.

Docs: docs/explanation/agents.md. It is the same engine as the chat's, over the agent's own session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from ..chat.conversation import Conversation, Conversations
from ..chat.model import ChatModel
from ..chat.stored import add_question, system_of
from ..chat.tool_calls import CallContext, ToolCalls
from ..errors import MochiError, ModelNotFound, ProviderNotConfigured, ToolsNotSupported
from ..protocol.events import Event
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
            model = await self._model(definition, context.model)
            if session_id is None:
                session_id = await self._new_session(definition, model.full_name)
            async with self._sessions.claim(session_id) as session:
                check_owner(session, definition)
                told = await self._instruct(session_id, definition, model, instruction)
                conversation = self._conversations.open(told, model, sessions=self._sessions)
                run = self._run(definition, tools, conversation, context, len(told.messages))
                async with aclosing(run.events(instruction)) as events:
                    async for event in events:
                        yield event
        except MochiError as error:
            reason = f"agent {definition.name!r} cannot work now: {error.message}"
            raise ToolFailed(reason) from error

    async def _model(self, definition: AgentDefinition, fallback: str) -> ChatModel:
        """The agent's model, or the caller's where that is not there or cannot call tools."""
        tools = bool(definition.tools)
        if definition.model is not None:
            with suppress(ModelNotFound, ProviderNotConfigured, ToolsNotSupported):
                return await self._conversations.find_model(definition.model, tools=tools)
        return await self._conversations.find_model(fallback, tools=tools)

    async def _new_session(self, definition: AgentDefinition, model: str) -> str:
        session = await self._sessions.create(model, system_prompt=definition.system_prompt)

        def name(session: ChatSession) -> None:
            extra = session.metadata.model_extra
            assert extra is not None  # noqa: S101 - the model keeps keys that it does not know
            extra[AGENT_KEY] = definition.name

        await self._sessions.update(session.session_id, name)
        return session.session_id

    async def _instruct(
        self, session_id: str, definition: AgentDefinition, model: ChatModel, instruction: str
    ) -> ChatSession:
        """Refresh model and system prompt, store the instruction."""

        def change(session: ChatSession) -> None:
            session.metadata.model = model.full_name
            system = system_of(session)
            if system is None or system.get("content") != definition.system_prompt:
                session.set_system_prompt(definition.system_prompt)
            add_question(session, instruction)

        return await self._sessions.update(session_id, change)

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
                model=conversation.model.full_name,
                execution=self._execution,
                asker=asker,
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
