"""Opens turns, runs them, and hands their events on: as they come, or as one reply."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..core.caller import current_caller
from ..core.ids import new_run_id
from ..errors import (
    ConfirmationUnavailable,
    Forbidden,
    InvalidRequest,
    JSONObject,
    MochiError,
    ProviderError,
    ProviderUnreachable,
    RunInterrupted,
    ServerBusy,
    SessionBusy,
    ShuttingDown,
    StorageError,
    ToolNotFound,
)
from ..protocol.events import ErrorEvent, Event
from ..protocol.messages import Message, UserMessage, now
from ..protocol.turn_request import TurnRequest
from ..providers.registry import NobodyHasModel
from ..services.chat_model import ChatModel
from ..services.history import system_of
from ..services.models.resolver import ModelResolver, ModelSetup
from ..services.response_format import check_format
from ..services.summarization import SummarizationService
from ..sessions import ChatSession, SessionManager
from ..sessions.attachments import AttachmentStore
from ..sessions.types import ToolSettings
from ..tools.base import Tool
from ..tools.catalogue import ToolCatalogue
from ..tools.execution import ToolExecutionService
from .confirmations.asking import Confirmations
from .confirmations.confirmation import StoredConfirmation
from .confirmations.inbox import ConfirmationFilter, ConfirmationInbox
from .conversation import add_messages, open_reply
from .conversations import Conversations
from .journal.records import RunHead
from .reply import WholeReply
from .runs.log import LogReader, RunLog
from .runs.registry import RunRegistry, log_failure
from .runs.run import Run
from .session_agents import SessionAgents
from .tool_calls.handling import ToolCalls
from .turn import Turn

logger = logging.getLogger(__name__)


class _Checked(NamedTuple):
    """What a turn works with that may begin."""

    request: TurnRequest
    """What was asked, without the messages; model, options and thinking are settled."""
    setup: ModelSetup
    model: ChatModel
    tools: dict[str, Tool]
    added: Sequence[Message] | None
    """The messages that it adds; None: it answers the last one again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatService:
    """Opens turns on sessions, one at a time for each."""

    sessions: SessionManager
    conversations: Conversations
    runs: RunRegistry
    tools: ToolCatalogue
    execution: ToolExecutionService
    inbox: ConfirmationInbox
    agents: SessionAgents
    summaries: SummarizationService
    attachments: AttachmentStore
    """The files of messages."""
    models: ModelResolver
    """Finds out what names of models stand for."""
    max_tool_rounds: int
    confirmation_timeout: float
    """Seconds after which a confirmation expires where a session does not say it; 0: never."""
    is_temporary: bool = False
    """Whether its sessions last as long as their turns: they are not summarised."""

    async def open_turn(
        self,
        session_id: str,
        request: TurnRequest,
        *,
        run_id: str | None = None,
        queued: Run | None = None,
    ) -> Turn:
        """Check all that can be checked, claim the session and store the user's message.

        Any error leaves the session as it was. The caller must ``start`` or ``release`` the turn.
        ``run_id`` is that of its run, which is new; ``queued`` is its run, if it has waited in a
        queue.

        Raises:
            SessionNotFound, SessionBusy, SessionUnreadable, EmptyHistory, ModelNotFound,
            PresetNotFound, PresetInvalid, AgentNotFound, AgentInvalid, ThinkingNotSupported,
            ToolsNotSupported, ImagesNotSupported, AttachmentUnsupported, ContextOverflow,
            ProviderUnreachable, ProviderError, ShuttingDown, ServerBusy, StorageError,
            SpaceUsedUp.
            ResponseFormatInvalid: the schema of the format cannot be used.
            ToolNotFound: ``selected`` names a tool that the session cannot have.
            Forbidden: there are tools, and the caller lacks the right to them.
            InvalidRequest: a new message is the result of no call that waits for one; or a call is
                demanded, and there are no tools.
        """
        run_id = (queued.run_id if queued is not None else run_id) or new_run_id()
        async with AsyncExitStack() as stack:
            stack.enter_context(self.runs.slot(queued))
            if request.response_format is not None:
                await check_format(request.response_format)
            session = await stack.enter_async_context(self.sessions.claim(session_id))
            await self.sessions.check_run(session)
            if request.after_run not in (None, session.metadata.run_number):
                raise SessionBusy(session_id=session_id)
            checked = await self._check(session, request, run_id)
            setup, added = checked.setup, checked.added
            stack.enter_context(
                self.summaries.turn(session_id, setup.model, is_kept=not self.is_temporary)
            )
            await self.sessions.take_space_for(added or ())
            await self.attachments.keep(session_id, request.attachments)
            session = await self._begin_run(session_id, run_id, added)
            head = RunHead(
                run_id=run_id,
                session_id=session_id,
                number=session.metadata.run_number,
                model=setup.model,
                started_at=now(),
                request=checked.request,
                follows=session.last_message_id,
                replaces=_without_answer(session) if added is None else None,
                is_temporary=self.is_temporary,
                owner=session.metadata.owner,
            )
            run = queued or self.runs.new(head)
            if queued is not None:
                queued.leave_queue(head)
            claim = stack.pop_all()
            return self._turn(run, session, setup, checked.model, checked.tools, claim=claim)

    async def _begin_run(
        self, session_id: str, run_id: str, added: Sequence[Message] | None
    ) -> ChatSession:
        """Store that a run begins, with the messages that it adds, and return the session."""

        def change(session: ChatSession) -> None:
            session.metadata.begin_run(run_id)
            if added is not None:
                add_messages(session, added)

        return await self.sessions.update(session_id, change)

    async def check_turn(self, session_id: str, request: TurnRequest) -> None:
        """Check all of a turn that can be checked while another one goes on; raises its errors."""
        if request.response_format is not None:
            await check_format(request.response_format)
        await self._check(await self.sessions.get(session_id), request)

    async def _check(
        self, session: ChatSession, request: TurnRequest, run_id: str = ""
    ) -> _Checked:
        """Check a turn of a session, and return what it will work with."""
        named = request.model or session.metadata.model
        try:
            setup = await self.models.resolve(named, wait=True)
            setup = setup.within(session.metadata)
            chosen = await self.conversations.find_model(setup.model)
        except ProviderError as error:
            log_failure(session.session_id, run_id, named, error)
            raise
        think = setup.think if request.think is None else request.think
        think = chosen.decide_thinking(think, unasked=request.thinks_unasked)
        tools = await self.offered(setup, request)
        _check_right(tools)
        if tools or request.client_functions():
            settings = setup.tool_settings
            if not request.must_call and (settings is None or not settings.is_prompted):
                chosen.check_tools()
        elif request.must_call:
            raise InvalidRequest("The tool_choice demands a call of a tool that is not offered.")
        added = request.added()
        _check_questions(chosen, setup, session, added or ())
        if added is None:
            session.set_aside_answer(keep=request.keep)  # in memory: it may be impossible
        options = setup.options.with_changes(request.options)
        settled = replace(request.without_messages(), model=named, think=think, options=options)
        return _Checked(settled, setup, chosen, tools, added)

    async def reopen_turn(self, run_id: str) -> Turn | None:
        """Open the turn of a run that waits and that no process executes, where it stands.

        The caller must ``start`` or ``release`` the turn. None if the run does not wait any more,
        or could not be taken up and was ended.

        Raises:
            SessionBusy, ServerBusy, ProviderUnreachable, StorageError, ConfirmationUnavailable,
            ShuttingDown: it still waits, and can be taken up later.
        """
        self.runs.check_open()
        before = await self.runs.waiting(run_id)
        if before is None:
            return None
        head = before.head
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(self.runs.slot())
                session = await stack.enter_async_context(self.sessions.claim(head.session_id))
                if session.metadata.last_run_id != run_id:  # begun while the journal was away
                    raise RunInterrupted(run_id=run_id)
                stack.enter_context(self.summaries.turn(head.session_id, head.model))
                setup = await self.models.resolve(head.request.model or head.model, wait=True)
                setup = replace(setup, model=head.model).within(session.metadata)
                chosen = await self.conversations.find_model(head.model, think=head.request.think)
                tools = await self.offered(setup, head.request)
                earlier = await self.inbox.store.of_run(run_id)
                run = await self.runs.take(run_id)
                if run is None:
                    return None
                stack.push_async_callback(self._end_confirmations, run)
                return self._turn(
                    run, session, setup, chosen, tools, claim=stack.pop_all(), earlier=earlier
                )
        except (
            *(SessionBusy, ServerBusy, ShuttingDown),
            *(ProviderUnreachable, NobodyHasModel, StorageError, ConfirmationUnavailable),
        ):
            raise
        except MochiError as error:
            log_failure(head.session_id, run_id, head.model, error)
            await self.runs.fail(run_id, error)
            return None

    async def _end_confirmations(self, run: Run) -> None:
        """Settle what was asked before, and is not asked any more, as where a tool is gone."""
        if not run.is_let_go:
            try:
                await self.inbox.store.end_run(run.run_id)
            except ConfirmationUnavailable as error:
                logger.warning("%s", error.message)

    def _turn(
        self,
        run: Run,
        session: ChatSession,
        setup: ModelSetup,
        model: ChatModel,
        tools: Mapping[str, Tool],
        *,
        claim: AsyncExitStack,
        earlier: Sequence[StoredConfirmation] = (),
    ) -> Turn:
        """Return the turn of a run; ``earlier`` is what it has asked before, if it was taken up."""
        settings = setup.tool_settings or ToolSettings()
        before, request = run.before, run.head.request
        client_tools = request.client_functions()
        conversation = self.conversations.open(
            session,
            model,
            run,
            sessions=self.sessions,
            settings=settings,
            request=request,
            setup=setup,
        )
        claim.push_async_callback(conversation.compact_if_full)
        return Turn(
            run=run,
            conversation=conversation,
            calls=ToolCalls(
                of_run=run,
                session_id=session.session_id,
                model=model.full_name,
                execution=self.execution,
                confirmations=self._confirmations(run, settings, earlier),
                sampler=self.conversations,
                tools={name: tool for name, tool in tools.items() if name not in client_tools},
                settings=settings,
                text_calls=settings.text_calls_or(self.conversations.text_calls),
                before=(
                    before.of(session.session_id).unstored(session) if before is not None else None
                ),
            ),
            max_rounds=setup.max_tool_rounds or self.max_tool_rounds,
            claim=claim,
            client_tools=client_tools,
            must_call=request.must_call,
            open_reply=open_reply(session) if before is not None else None,
        )

    def _confirmations(
        self, run: Run, settings: ToolSettings, earlier: Sequence[StoredConfirmation]
    ) -> Confirmations:
        """Return what asks a person about the calls of a run."""
        seconds = settings.seconds_to_confirm
        questions = run.before.fold.confirmations if run.before is not None else {}
        return Confirmations(
            store=self.inbox.store,
            rule_places=self.inbox.rule_places,
            run_id=run.run_id,
            session_id=run.head.session_id,
            owner=run.head.owner,
            timeout=self.confirmation_timeout if seconds is None else seconds,
            wait=run.head.request.wait is not False,
            earlier=earlier,
            announced=questions,
            decided={name for name, (_, waits) in questions.items() if not waits},
        )

    async def offered(self, setup: ModelSetup, request: TurnRequest) -> dict[str, Tool]:
        """Return the tools of a turn by name, the one that calls agents among them.

        Raises:
            ToolNotFound: ``request.selected`` names one that the setup does not have.
        """
        selected = request.selected
        if any(names is not None and not names for names in (selected, request.allowed)):
            return {}
        settings = setup.tool_settings if selected is None else ToolSettings(tools=[*selected])
        tools = {**setup.tools, **(await self.tools.select(settings)).tools, **setup.tools}
        if setup.agent_settings is not None and setup.agent_settings.enabled_agents:
            agent = (await self.agents.offer(setup.agent_settings)).tool
            if agent is not None:
                tools[agent.name] = agent
        for name in selected or ():
            if name not in tools:
                raise ToolNotFound(tool=name)
        return {
            name: tools[name]
            for name in (tools if selected is None else selected)
            if request.allows(name)
        }

    def start(self, turn: Turn) -> RunLog:
        """Run the turn and return its log; the last reader that leaves the log cancels the turn."""
        return self.runs.start(turn)

    async def stream(self, session_id: str, request: TurnRequest) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events as they come, ``Done`` last.

        Closing the generator stops the turn; what the model has said so far is stored.

        Raises:
            MochiError: what ``open_turn`` raises, before the first event; or what ended the turn,
                in the place of the events ``ErrorEvent`` and ``Done``.
        """
        reader = self.start(await self.open_turn(session_id, request)).reader()
        async with aclosing(events_of(reader)) as events:
            async for event in events:
                yield event

    async def complete(self, session_id: str, request: TurnRequest) -> JSONObject:
        """Run a turn and return the whole reply, as ``POST /chat/{id}`` answers it.

        Raises:
            MochiError: what ``open_turn`` raises, or what ended the turn.
        """
        request = replace(request, wait=request.wait is True)
        async with aclosing(self.stream(session_id, request)) as events:
            return await whole_reply(session_id, events)

    async def confirm(
        self,
        session_id: str,
        confirmation_id: str,
        *,
        approved: bool,
        reason: str | None = None,
        arguments: JSONObject | None = None,
    ) -> JSONObject:
        """Decide about a call of a session; see ``ConfirmationInbox.decide``."""
        return await self.inbox.decide(
            confirmation_id,
            session_id=session_id,
            approved=approved,
            reason=reason,
            arguments=arguments,
        )

    async def confirmations(self, session_id: str) -> list[JSONObject]:
        """Return what waits for a decision, oldest first: ``GET /chat/{id}/confirmations``."""
        pending = await self.inbox.pending(ConfirmationFilter(session_id=session_id))
        return [confirmation.payload() for confirmation in pending]


def _without_answer(session: ChatSession) -> str | None:
    """Remove from a session in memory what follows its last question.

    Return the id of its last message, empty if that has none; None if nothing follows.
    """
    count, last = len(session.messages), session.last_message_id
    session.truncate_after_last_user()
    return None if len(session.messages) == count else last or ""


def _check_questions(
    model: ChatModel, setup: ModelSetup, session: ChatSession, new: Sequence[Message]
) -> None:
    """Refuse what the user asks, in new messages or else in the last one, if it is sure to fail."""
    questions = [each for each in new if isinstance(each, UserMessage)]
    asked = questions[-1].as_stored() if questions else session.last_user_message
    if asked is not None:
        model.check_attachments(asked)
    system = setup.system_message(system_of(session))
    for question in questions:
        model.check_length(system, question)


def _check_right(tools: Mapping[str, Tool]) -> None:
    """Refuse a turn with tools to those who have no right to them: without, it would be another.

    Raises:
        Forbidden: the caller lacks the right ``tools``.
    """
    if tools and "tools" not in current_caller().rights:
        text = "This turn has tools, and the token of this request lacks the right 'tools'."
        raise Forbidden(text, details={"right": "tools"})


async def events_of(reader: LogReader) -> AsyncGenerator[Event, None]:
    """Yield what a reader reads, which leaves at the end.

    Raises:
        MochiError: what ended the run, in the place of ``ErrorEvent`` and ``Done``.
    """
    try:
        while (batch := await reader.next()) is not None:
            for _, event in batch:
                if isinstance(event, ErrorEvent) and reader.failure is not None:
                    raise reader.failure
                yield event
        if reader.failure is not None:  # the run waits, and its process ends
            raise reader.failure
    finally:
        reader.leave()


async def whole_reply(session_id: str, events: AsyncIterable[Event]) -> JSONObject:
    """Return the events of a run as one reply.

    Raises:
        RunStopped: a person has stopped it.
    """
    reply = WholeReply(session_id)
    async for event in events:
        reply.add(event)
    return reply.as_json()
