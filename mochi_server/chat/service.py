"""Opens turns, runs them, and hands their events on: as they come, or as one reply."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace

from typing_extensions import TypedDict, Unpack

from ..core.caller import current_caller, may_see
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
    RunStopped,
    ServerBusy,
    SessionBusy,
    ShuttingDown,
    StorageError,
    ToolNotFound,
)
from ..protocol.events import ErrorEvent, Event, RunStart
from ..protocol.messages import Message, UserMessage, now
from ..protocol.options import ModelOptions
from ..protocol.response_format import RESPONSE_FORMAT, ResponseFormat
from ..providers.base import Think
from ..services.history import system_of
from ..services.models.resolver import ModelResolver, ModelSetup
from ..services.requests import ChatModel
from ..services.response_format import check_format
from ..services.summarization import SummarizationService
from ..sessions import ChatSession, SessionManager
from ..sessions.attachments import AttachmentStore, NewAttachment, attach
from ..sessions.types import ToolSettings
from ..tools.base import Tool
from ..tools.catalogue import ToolCatalogue
from ..tools.execution import ToolExecutionService
from .confirmations.asking import Confirmations
from .confirmations.inbox import ConfirmationInbox
from .confirmations.store import StoredConfirmation
from .conversation import Conversations, StoredMessages, add_messages, open_reply
from .journal.records import RunHead
from .reply import WholeReply
from .runs.log import LogReader, RunLog
from .runs.registry import RunRegistry, log_failure
from .runs.run import Run
from .tool_calls import SessionAgents, ToolCalls
from .turn import Turn

logger = logging.getLogger(__name__)


class TurnOptions(TypedDict, total=False):
    """Keyword arguments of ``ChatService.open_turn``, which says what they mean."""

    message: str | None
    keep: bool
    new_messages: Sequence[Message] | None
    attachments: Sequence[NewAttachment]
    client_tools: Sequence[JSONObject]
    must_call: bool
    think: Think
    options: ModelOptions | None
    response_format: ResponseFormat | None
    wait: bool
    model: str | None
    selected: Sequence[str] | None
    stored_messages: StoredMessages | None
    continues: bool
    run_id: str | None
    after_run: str | None


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
        *,
        message: str | None = None,
        keep: bool = False,
        new_messages: Sequence[Message] | None = None,
        attachments: Sequence[NewAttachment] = (),
        client_tools: Sequence[JSONObject] = (),
        must_call: bool = False,
        think: Think = False,
        options: ModelOptions | None = None,
        response_format: ResponseFormat | None = None,
        wait: bool = True,
        model: str | None = None,
        selected: Sequence[str] | None = None,
        stored_messages: StoredMessages | None = None,
        continues: bool = False,
        run_id: str | None = None,
        after_run: str | None = None,
        queued: Run | None = None,
    ) -> Turn:
        """Check all that can be checked, claim the session and store the user's message.

        Any error leaves the session as it was. The caller must ``start`` or ``release`` the turn.

        Args:
            session_id: The session.
            message: The user's message; None answers the last one again and drops what follows it.
            keep: Whether what is dropped is kept as a variant.
            new_messages: In its place, what a client adds: messages of the user, and results of
                calls that it has run. Without any, the model goes on after what is stored.
            attachments: Files that belong to the message, or that new messages name.
            client_tools: Schemas of the functions that the client runs:
                ``{"type": "function", "function": {"name", "description", "parameters"}}`` each.
                They come before tools of the same name. A call of one ends the turn.
            must_call: Whether the first reply must call a tool. If the provider cannot demand it,
                ``MessageComplete.ignored_options`` has ``tool_choice``.
            think: Whether the model thinks first.
            options: Options for this turn; those of the session hold for what it does not name.
            response_format: The form of the final answer, which is checked.
            wait: Whether to wait for confirmations; else calls that need one are denied.
            model: Name of a model for this turn only, perhaps of a preset or an agent; the
                session's if None.
            selected: Names of the tools of this turn; those of the session if None, else those of
                its preset or agent.
            stored_messages: Gets every message as it is stored; the reader takes them out.
            continues: Whether the turn goes on when nobody reads it.
            run_id: The id of its run, which is new; made here if None.
            after_run: The run that must be the session's last one until now; None: any.
            queued: Its run, if it has waited in a queue; then ``run_id`` is that of this one.

        Raises:
            SessionNotFound, SessionBusy, SessionUnreadable, EmptyHistory, ModelNotFound,
            PresetNotFound, PresetInvalid, AgentNotFound, AgentInvalid, ThinkingNotSupported,
            ToolsNotSupported, ImagesNotSupported, AttachmentUnsupported, ContextOverflow,
            ProviderUnreachable, ProviderError, ShuttingDown, ServerBusy, StorageError.
            ResponseFormatInvalid: the schema of the format cannot be used.
            ToolNotFound: ``selected`` names a tool that the session cannot have.
            Forbidden: there are tools, and the caller lacks the right to them.
            InvalidRequest: a new message is the result of no call that waits for one; or a call is
                demanded, and there are no tools.
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(self.runs.slot(queued))
            if response_format is not None:
                await check_format(response_format)
            session = await stack.enter_async_context(self.sessions.claim(session_id))
            named = model or session.metadata.model
            run_id = run_id or new_run_id()
            await self.sessions.check_run(session)
            if after_run not in (None, session.metadata.last_run_id):
                raise SessionBusy(session_id=session_id)
            try:
                setup = await self.models.resolve(named, wait=True)
                setup = setup.within(session.metadata)
                stack.enter_context(
                    self.summaries.turn(session_id, setup.model, is_kept=not self.is_temporary)
                )
                chosen = await self.conversations.find_model(setup.model, think=think)
            except ProviderError as error:
                log_failure(session_id, run_id, named, error)
                raise
            tools = await self.offered(setup, selected)
            _check_right(tools)
            if tools or client_tools:
                chosen.check_tools()
            elif must_call:
                raise InvalidRequest(
                    "The tool_choice demands a call of a tool that is not offered."
                )

            if message is not None:
                question = UserMessage(content=message)
                attach(question, attachments)
                new_messages = [question]
            _check_questions(chosen, setup, session, new_messages or ())
            await self.attachments.keep(session_id, attachments)
            number = 0

            def change(session: ChatSession) -> None:
                nonlocal number
                number = session.metadata.begin_run(run_id)
                if new_messages is None:
                    session.truncate_after_last_user(keep=keep)
                else:
                    add_messages(session, new_messages)

            session = await self.sessions.update(session_id, change)
            head = RunHead(
                run_id=run_id,
                session_id=session_id,
                number=number,
                model=setup.model,
                started_at=now(),
                named_model=named,
                think=think,
                options=setup.options.with_changes(options).as_stored(),
                wait=wait,
                selected=selected,
                client_tools=client_tools,
                response_format=None if response_format is None else response_format.as_stored(),
                continues=continues,
                is_temporary=self.is_temporary,
                owner=session.metadata.owner,
            )
            run = queued or self.runs.new(head)
            if queued is not None:
                queued.leave_queue(head)
            return self._turn(
                run,
                session,
                setup,
                chosen,
                tools,
                claim=stack.pop_all(),
                must_call=must_call,
                stored_messages=stored_messages,
            )

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
                setup = await self.models.resolve(head.named_model or head.model, wait=True)
                setup = replace(setup, model=head.model).within(session.metadata)
                chosen = await self.conversations.find_model(head.model, think=head.think)
                tools = await self.offered(setup, head.selected)
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
            *(ProviderUnreachable, StorageError, ConfirmationUnavailable),
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
        must_call: bool = False,
        stored_messages: StoredMessages | None = None,
        earlier: Sequence[StoredConfirmation] = (),
    ) -> Turn:
        """Return the turn of a run; ``earlier`` is what it has asked before, if it was taken up."""
        settings = setup.tool_settings or ToolSettings()
        seconds = settings.seconds_to_confirm
        before = run.before
        client_tools = {function_name(tool): tool for tool in run.head.client_tools}
        asked = run.head.response_format
        response_format = None if asked is None else RESPONSE_FORMAT.validate_python(asked)
        confirmations = Confirmations(
            store=self.inbox.store,
            policies=self.inbox.policies,
            run_id=run.run_id,
            session_id=session.session_id,
            owner=run.head.owner,
            timeout=self.confirmation_timeout if seconds is None else seconds,
            wait=run.head.wait,
            earlier=earlier,
            announced=before.asked if before is not None else (),
            decided=before.decided if before is not None else (),
        )
        return Turn(
            run=run,
            conversation=self.conversations.open(
                session,
                model,
                run,
                sessions=self.sessions,
                setup=setup,
                think=run.head.think,
                options=ModelOptions.read(run.head.options),
                response_format=response_format,
                stored_messages=stored_messages,
            ),
            calls=ToolCalls(
                of_run=run,
                session_id=session.session_id,
                model=model.full_name,
                execution=self.execution,
                confirmations=confirmations,
                sampler=self.conversations,
                tools={name: tool for name, tool in tools.items() if name not in client_tools},
                settings=settings,
                before=(
                    before.of(session.session_id).unstored(session) if before is not None else None
                ),
            ),
            max_rounds=setup.max_tool_rounds or self.max_tool_rounds,
            claim=claim,
            client_tools=client_tools,
            must_call=must_call,
            open_reply=open_reply(session) if before is not None else None,
        )

    async def offered(self, setup: ModelSetup, selected: Sequence[str] | None) -> dict[str, Tool]:
        """Return the tools of a turn by name, the one that calls agents among them.

        Raises:
            ToolNotFound: ``selected`` names one that the setup does not have.
        """
        if selected is not None and not selected:
            return {}
        settings = setup.tool_settings if selected is None else ToolSettings(tools=[*selected])
        tools = {**setup.tools, **(await self.tools.select(settings)).tools, **setup.tools}
        if setup.agent_settings is not None and setup.agent_settings.enabled_agents:
            agent = (await self.agents.offer(setup.agent_settings)).tool
            if agent is not None:
                tools[agent.name] = agent
        if selected is None:
            return tools
        for name in selected:
            if name not in tools:
                raise ToolNotFound(tool=name)
        return {name: tools[name] for name in selected}

    def start(self, turn: Turn) -> RunLog:
        """Run the turn and return its log; the last reader that leaves the log cancels the turn."""
        return self.runs.start(turn)

    async def stream(
        self, session_id: str, **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events as they come, ``Done`` last.

        Closing the generator stops the turn; what the model has said so far is stored.

        Raises:
            MochiError: what ``open_turn`` raises, before the first event; or what ended the turn,
                in the place of the events ``ErrorEvent`` and ``Done``.
        """
        reader = self.start(await self.open_turn(session_id, **options)).reader()
        async with aclosing(events_of(reader)) as events:
            async for event in events:
                yield event

    async def complete(self, session_id: str, **options: Unpack[TurnOptions]) -> JSONObject:
        """Run a turn and return the whole reply, as ``POST /chat/{id}`` answers it.

        ``wait`` is false by default.

        Raises:
            MochiError: what ``open_turn`` raises, or what ended the turn.
        """
        options.setdefault("wait", False)
        async with aclosing(self.stream(session_id, **options)) as events:
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
        pending = await self.inbox.store.pending(session_id=session_id)
        pending = [each for each in pending if may_see(each.owner)]
        return [confirmation.payload() for confirmation in pending]


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


def function_name(tool: JSONObject) -> str:
    """Return the name of a function of the client, by its schema."""
    function = tool["function"]
    return str(function["name"]) if isinstance(function, dict) else ""


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
    fold, run_id = WholeReply(session_id), ""
    async for event in events:
        if isinstance(event, RunStart):
            run_id = event.run_id
        fold.add(event)
    if not fold.is_complete:
        raise RunStopped(run_id=run_id)
    return fold.as_json()
