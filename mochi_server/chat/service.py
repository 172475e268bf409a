"""Opens turns, runs them, and hands their events on: as they come, or as one reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from typing_extensions import TypedDict, Unpack

from ..core.ids import new_run_id
from ..errors import InvalidRequest, JSONObject, ProviderError, ToolNotFound
from ..protocol.events import ErrorEvent, Event
from ..providers.base import Think
from ..services.summarization import SummarizationService
from ..sessions import ChatSession, SessionManager
from ..sessions.types import SessionMetadata, ToolSettings
from ..tools.base import InvalidArguments, Tool, ToolFailed
from ..tools.catalogue import ToolCatalogue
from ..tools.execution import ToolExecutionService
from .confirmations import (
    ConfirmationBroker,
    ConfirmationDecision,
    ConfirmationRequest,
    Confirmations,
)
from .conversation import Conversations, StoredMessages, add_question
from .log import TurnLog
from .reply import WholeReply
from .tool_calls import SessionAgents, ToolCalls
from .turn import Turn, TurnRegistry, log_failure


class TurnOptions(TypedDict, total=False):
    """Keyword arguments of ``ChatService.open_turn``, which says what they mean."""

    message: str | None
    think: Think
    wait: bool
    model: str | None
    selected: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatService:
    """Opens turns on sessions, one at a time for each."""

    sessions: SessionManager
    conversations: Conversations
    turns: TurnRegistry
    tools: ToolCatalogue
    execution: ToolExecutionService
    broker: ConfirmationBroker
    agents: SessionAgents
    summaries: SummarizationService
    max_tool_rounds: int

    async def open_turn(
        self,
        session_id: str,
        *,
        message: str | None = None,
        think: Think = False,
        wait: bool = True,
        model: str | None = None,
        selected: Sequence[str] | None = None,
        stored_messages: StoredMessages | None = None,
    ) -> Turn:
        """Check all that can be checked, claim the session and store the user's message.

        Any error leaves the session as it was. The caller must ``start`` or ``release`` the turn.

        Args:
            session_id: The session.
            message: The user's message; None answers the last one again and drops what follows it.
            think: Whether the model thinks first.
            wait: Whether to wait for confirmations; else calls that need one are denied.
            model: Full name of a model for this turn only; the session's if None.
            selected: Names of the tools of this turn; those of the session if None.
            stored_messages: Gets every message as it is stored; the reader takes them out.

        Raises:
            SessionNotFound, SessionBusy, SessionUnreadable, EmptyHistory, ModelNotFound,
            ThinkingNotSupported, ToolsNotSupported, ContextOverflow, ProviderUnreachable,
            ProviderError, ShuttingDown, StorageError.
            ToolNotFound: ``selected`` names a tool that the session cannot have.
        """
        self.turns.check_open()
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self.sessions.claim(session_id))
            metadata = session.metadata
            full_name = model or metadata.model
            stack.enter_context(self.summaries.turn(session_id, full_name))
            run_id = new_run_id()
            try:
                chosen = await self.conversations.find_model(full_name, think=think)
            except ProviderError as error:
                log_failure(session_id, run_id, full_name, error)
                raise
            tools = await self._offered(metadata, selected)
            if tools:
                chosen.check_tools()

            def change(session: ChatSession) -> None:
                chosen.check_length(session, message)
                if message is None:
                    session.truncate_after_last_user()
                else:
                    add_question(session, message)

            session = await self.sessions.update(session_id, change)
            calls = ToolCalls(
                session_id=session_id,
                model=full_name,
                execution=self.execution,
                confirmations=Confirmations(broker=self.broker, session_id=session_id, wait=wait),
                tools=tools,
                settings=metadata.tool_settings or ToolSettings(),
            )
            return Turn(
                run_id=run_id,
                conversation=self.conversations.open(
                    session,
                    chosen,
                    sessions=self.sessions,
                    think=think,
                    stored_messages=stored_messages,
                ),
                calls=calls,
                max_rounds=self.max_tool_rounds,
                claim=stack.pop_all(),
            )

    async def _offered(
        self, metadata: SessionMetadata, selected: Sequence[str] | None
    ) -> dict[str, Tool]:
        """Return the tools of the turn by name, the one that calls agents among them."""
        if selected is not None and not selected:
            return {}
        settings = metadata.tool_settings if selected is None else ToolSettings(tools=[*selected])
        tools = dict((await self.tools.select(settings)).tools)
        if metadata.agent_settings is not None and metadata.agent_settings.enabled_agents:
            agent = (await self.agents.offer(metadata.agent_settings)).tool
            if agent is not None and (selected is None or agent.name in selected):
                tools[agent.name] = agent
        for name in selected or ():
            if name not in tools:
                raise ToolNotFound(tool=name)
        return tools

    def start(self, turn: Turn) -> TurnLog:
        """Run the turn and return its log; the last reader that leaves the log cancels the turn."""
        return self.turns.start(turn)

    async def stream(
        self, session_id: str, **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events as they come, ``Done`` last.

        Closing the generator stops the turn; what the model has said so far is stored.

        Raises:
            MochiError: what ``open_turn`` raises, before the first event; or what ended the turn,
                in the place of the events ``ErrorEvent`` and ``Done``.
        """
        log = self.start(await self.open_turn(session_id, **options))
        reader = log.reader()
        try:
            while (batch := await reader.next()) is not None:
                for _, event in batch:
                    if isinstance(event, ErrorEvent) and log.error is not None:
                        raise log.error
                    yield event
        finally:
            reader.leave()

    async def complete(self, session_id: str, **options: Unpack[TurnOptions]) -> JSONObject:
        """Run a turn and return the whole reply, as ``POST /chat/{id}`` answers it.

        ``wait`` is false by default.

        Raises:
            MochiError: what ``open_turn`` raises, or what ended the turn.
        """
        fold = WholeReply(session_id)
        options.setdefault("wait", False)
        async with aclosing(self.stream(session_id, **options)) as events:
            async for event in events:
                fold.add(event)
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
        """Decide about a call, as ``POST /chat/{id}/confirm-tool`` does.

        Raises:
            ConfirmationNotFound, ToolConfirmationTimeout: nothing waits for this decision.
            InvalidRequest: the changed arguments do not fit the tool; the call still waits.
        """
        if approved and arguments is not None:
            for request in await self.broker.pending(session_id):
                if request.confirmation_id == confirmation_id:
                    await self._check_arguments(request, arguments)
        decision = ConfirmationDecision(
            approved=approved, reason=reason, arguments=arguments if approved else None
        )
        await self.broker.decide(session_id, confirmation_id, decision)
        return {"confirmation_id": confirmation_id, "approved": approved}

    async def confirmations(self, session_id: str) -> list[JSONObject]:
        """Return what waits for a decision, oldest first: ``GET /chat/{id}/confirmations``."""
        return [request.payload() for request in await self.broker.pending(session_id)]

    async def _check_arguments(self, request: ConfirmationRequest, arguments: JSONObject) -> None:
        tool = await self.agents.tool_of(request.tool_source, request.tool_name)
        if tool is None:
            tool = (await self.tools.inventory()).tools.get(request.tool_name)
        if tool is None or tool.source != request.tool_source:
            return  # gone meanwhile; the waiting turn still has it, and validates
        try:
            await tool.validate(arguments)
        except (InvalidArguments, ToolFailed) as error:
            text = f"The arguments do not fit {request.tool_name!r}: {error}"
            raise InvalidRequest(text, details={"tool": request.tool_name}) from error
