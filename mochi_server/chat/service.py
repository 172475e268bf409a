"""The door to conversations: open a turn, run it, read it whole or as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from ..config import MochiServerSettings
from ..errors import (
    InvalidRequest,
    JSONObject,
    MochiError,
    ToolNotFound,
)
from ..providers.base import Think
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService
from ..services.summarization import SummarizationService
from ..sessions import ChatSession, SessionManager
from ..sessions.types import (
    ContextWindowConfig,
    SessionMetadata,
    ToolExecutionPolicy,
    ToolSettings,
)
from ..tools.base import InvalidArguments, Tool, ToolFailed
from ..tools.catalogue import ToolCatalogue
from ..tools.execution import ToolExecutionService
from .agent_offer import Agents, NoAgents
from .approvals import ApprovalBroker, ApprovalRequest, Decision
from .asking import Asker
from .checks import check_length, check_thinking, check_tools, learn_window, prepare
from .conversation import Conversation, Limits, Notes, system_of
from .tool_calls import ToolCalls
from .turn import Turn
from .turn_log import TurnLog
from .turns import TurnRegistry
from .whole_reply import WholeReply

ALWAYS = ToolExecutionPolicy.ALWAYS_CONFIRM


class ChatService:
    """Opens turns on sessions, one at a time for each."""

    def __init__(
        self,
        *,
        settings: MochiServerSettings,
        sessions: SessionManager,
        providers: ProviderRegistry,
        windows: DynamicContextWindowService,
        turns: TurnRegistry,
        tools: ToolCatalogue,
        execution: ToolExecutionService,
        approvals: ApprovalBroker,
        agents: Agents | None = None,
        summaries: SummarizationService | None = None,
    ) -> None:
        self._tools = tools
        self._execution = execution
        self._approvals = approvals
        self._agents: Agents = agents if agents is not None else NoAgents()
        self._summaries = summaries
        self._sessions = sessions
        self._providers = providers
        self._windows = windows
        self._turns = turns
        self._limits = Limits(
            max_tool_rounds=settings.max_tool_rounds,
            max_output_tokens=settings.max_output_tokens,
            max_history_tokens=settings.max_history_tokens,
            max_history_messages=settings.max_history_messages,
        )

    async def open_turn(
        self,
        session_id: str,
        *,
        message: str | None = None,
        think: Think = False,
        wait: bool = True,
        model: str | None = None,
        selected: Sequence[str] | None = None,
        notes: Notes | None = None,
    ) -> Turn:
        """Check everything that can be checked, claim the session, store the user's message.

        Without a message the last user message is answered again: what follows it is dropped.
        Any error leaves the session as it was. Whoever gets the turn must ``start`` it or
        ``release`` it. Calls that a person must confirm are waited for, or denied at once.

        Args:
            session_id: which one.
            message: what the person says.
            think: whether the model thinks first.
            wait: for confirmations.
            model: for this turn, in the place of the session's, which stays as it is.
            selected: tools of this turn, in the place of the session's; () for none.
            notes: gets every message as it is stored; the reader takes them out.

        Raises:
            SessionNotFound, SessionBusy, SessionUnreadable, EmptyHistory, ModelNotFound,
            ThinkingNotSupported, ToolsNotSupported, ContextOverflow, ProviderUnreachable,
            ProviderError, ShuttingDown, StorageError.
            ToolNotFound: ``selected`` names a tool that the session cannot have.
        """
        self._turns.check_open()
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._sessions.claim(session_id))
            metadata = session.metadata
            model = model or metadata.model
            if self._summaries is not None:
                stack.enter_context(self._summaries.turn(session_id, model))
            conversation = await self._conversation(session_id, model, think)
            conversation.notes = notes
            info = conversation.info
            tools = await self._offered(metadata, selected)
            if tools:
                check_tools(model, info, conversation.provider)

            def change(session: ChatSession) -> None:
                check_length(conversation.model, info, session, message)
                prepare(session, message)

            conversation.session = await self._sessions.update(session_id, change)
            settings = metadata.tool_settings
            calls = ToolCalls(
                session_id=session_id,
                model=model,
                execution=self._execution,
                asker=Asker(broker=self._approvals, session_id=session_id, wait=wait),
                tools=tools,
                policy=settings.execution_policy if settings else ALWAYS,
            )
            return Turn(conversation=conversation, calls=calls, claim=stack.pop_all())

    async def _conversation(self, session_id: str, model: str, think: Think) -> Conversation:
        """A session with a model that is there and can do what is asked."""
        provider, name = self._providers.resolve(model)
        info = await provider.show_model(name)
        check_thinking(model, info, think)
        await learn_window(self._windows, model, provider, name)
        return Conversation(
            session_id=session_id,
            model=model,
            name=name,
            info=info,
            provider=provider,
            think=think,
            limits=self._limits,
            sessions=self._sessions,
            windows=self._windows,
            make_way=self._summaries.make_way if self._summaries is not None else None,
        )

    async def _offered(
        self, metadata: SessionMetadata, selected: Sequence[str] | None
    ) -> dict[str, Tool]:
        """The tools that the session enables, and the one for its agents; else those selected.

        Raises:
            ToolNotFound: one that is selected is neither a tool nor that of the session's agents.
        """
        if selected is not None and not selected:
            return {}
        settings = metadata.tool_settings if selected is None else ToolSettings(tools=[*selected])
        tools = dict((await self._tools.select(settings)).tools)
        if metadata.agent_settings is not None and metadata.agent_settings.enabled_agents:
            agent = (await self._agents.offer(metadata.agent_settings)).tool
            if agent is not None and (selected is None or agent.name in selected):
                tools[agent.name] = agent
        for name in selected or ():
            if name not in tools:
                raise ToolNotFound(tool=name)
        return tools

    def start(self, turn: Turn) -> TurnLog:
        """Run the turn; read its log at once, for the last reader that leaves cancels it."""
        return self._turns.start(turn)

    async def complete(
        self,
        session_id: str,
        *,
        message: str | None = None,
        think: Think = False,
        wait: bool = False,
        model: str | None = None,
        selected: Sequence[str] | None = None,
    ) -> JSONObject:
        """The whole reply in one piece: ``POST /chat/{id}`` in docs/reference/http-api.md.

        Raises:
            MochiError: what ``open_turn`` raises, or what ended the turn.
        """
        turn = await self.open_turn(
            session_id, message=message, think=think, wait=wait, model=model, selected=selected
        )
        log = self.start(turn)
        reader = log.reader()
        fold = WholeReply(session_id)
        try:
            while (batch := await reader.next()) is not None:
                for _, event in batch:
                    fold.add(event)
        finally:
            reader.leave()
        if log.error is not None:
            raise log.error
        return fold.as_json()

    async def confirm(
        self,
        session_id: str,
        confirmation_id: str,
        *,
        approved: bool,
        reason: str | None = None,
        arguments: JSONObject | None = None,
    ) -> JSONObject:
        """Decide about a call: ``POST /chat/{id}/confirm-tool`` in docs/reference/http-api.md.

        Raises:
            ConfirmationNotFound, ToolConfirmationTimeout: nothing waits for this decision.
            InvalidRequest: the changed arguments do not fit the tool; the question stays open.
        """
        if approved and arguments is not None:
            for request in await self._approvals.pending(session_id):
                if request.confirmation_id == confirmation_id:
                    await self._check_arguments(request, arguments)
        decision = Decision(
            approved=approved, reason=reason, arguments=arguments if approved else None
        )
        await self._approvals.decide(session_id, confirmation_id, decision)
        return {"confirmation_id": confirmation_id, "approved": approved}

    async def confirmations(self, session_id: str) -> list[JSONObject]:
        """What waits for a decision: ``GET /chat/{id}/confirmations``, oldest first."""
        return [request.payload() for request in await self._approvals.pending(session_id)]

    async def _check_arguments(self, request: ApprovalRequest, arguments: JSONObject) -> None:
        """Refuse what the tool would not take.

        Raises:
            InvalidRequest: it would not.
        """
        tool = await self._agents.tool_of(request.tool_source, request.tool_name)
        if tool is None:
            tool = (await self._tools.all()).get(request.tool_name)
        if tool is None or tool.source != request.tool_source:
            return  # gone meanwhile; the turn that asks still has it, and validates
        try:
            await tool.validate(arguments)
        except (InvalidArguments, ToolFailed) as error:
            text = f"The arguments do not fit {request.tool_name!r}: {error}"
            raise InvalidRequest(text, details={"tool": request.tool_name}) from error

    async def status(self, session_id: str) -> JSONObject:
        """``GET /sessions/{id}/status`` in docs/reference/http-api.md.

        Raises:
            SessionNotFound, SessionUnreadable.
        """
        session = await self._sessions.get(session_id)
        metadata = session.metadata
        tools = metadata.tool_settings
        selection = await self._tools.select(tools)
        missing = self._missing(selection.unknown)
        agents = await self._agents.offer(metadata.agent_settings)
        config = metadata.context_window_config or ContextWindowConfig()
        system = system_of(session)
        summary = metadata.summary
        return {
            "session_id": session_id,
            "model": metadata.model,
            "message_count": len(session.messages),
            "turn_running": self._turns.log_of(session_id) is not None,
            "context_window": {
                "dynamic_enabled": self._windows.enabled and config.dynamic_enabled,
                "current_window": config.current_window,
                "model_max_context": await self._context_length(metadata.model),
                "last_adjustment_reason": config.last_adjustment,
                "manual_override": config.manual_override,
            },
            "tools_enabled": bool(tools and (tools.tools or tools.tool_group)),
            "active_tools": list(selection.tools),
            "unknown_tools": [name for name in selection.unknown if name not in missing],
            "unknown_tool_group": selection.unknown_group,
            "missing_tools": missing,
            "execution_policy": tools.execution_policy.value if tools else None,
            "agents_enabled": bool(agents.enabled),
            "enabled_agents": list(agents.enabled),
            "unknown_agents": list(agents.unknown),
            "invalid_agents": dict(agents.invalid),
            "system_prompt_file": system.get("source_file") if system else None,
            "summary": summary.model_dump(mode="json") if summary else None,
            "summary_model": metadata.summary_model,
        }

    def _missing(self, names: Sequence[str]) -> JSONObject:
        """Why tools that a session enables could not be loaded, where that is known."""
        return {
            problem.tool: problem.reason
            for problem in self._tools.problems()
            if problem.tool is not None and problem.tool in names
        }

    async def _context_length(self, model: str) -> int | None:
        """The model's longest context; null when its provider does not say now."""
        try:
            return (await self._providers.show_model(model)).context_length
        except MochiError:
            return None
