"""Opens turns, runs them, and hands their events on: as they come, or as one reply."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace

from ..core.ids import new_run_id
from ..errors import (
    ConfirmationUnavailable,
    JSONObject,
    MochiError,
    ProviderUnreachable,
    RunInterrupted,
    ServerBusy,
    SessionBusy,
    ShuttingDown,
    StorageError,
)
from ..protocol.events import ErrorEvent, Event
from ..protocol.messages import now
from ..protocol.turn_request import TurnRequest
from ..providers.registry import NobodyHasModel
from ..services.response_format import check_format
from ..services.summarization import SummarizationService
from ..sessions import ChatSession, SessionManager
from ..sessions.types import ToolSettings
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
from .tool_calls.handling import ToolCalls
from .turn import Turn
from .turn_checks import CheckedTurn, TurnChecks

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatService:
    """Opens turns on sessions, one at a time for each."""

    sessions: SessionManager
    conversations: Conversations
    runs: RunRegistry
    checks: TurnChecks
    execution: ToolExecutionService
    inbox: ConfirmationInbox
    summaries: SummarizationService
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
            await check_format(request.response_format)
            session = await stack.enter_async_context(self.sessions.claim(session_id))
            await self.sessions.check_run(session)
            if request.after_run not in (None, session.metadata.run_number):
                raise SessionBusy(session_id=session_id)
            checked = await self.checks.check(session, request, run_id)
            model, added = checked.setup.model, checked.added or ()
            stack.enter_context(
                self.summaries.turn(session_id, model, is_kept=not self.is_temporary)
            )
            await self.sessions.take_space_for(added)
            await self.conversations.attachments.keep(session_id, request.attachments)
            session, run = await self._begin_run(session_id, run_id, checked, queued)
            return self._turn(run, session, checked, claim=stack.pop_all())

    async def _begin_run(
        self, session_id: str, run_id: str, checked: CheckedTurn, queued: Run | None
    ) -> tuple[ChatSession, Run]:
        """Store that a run begins, with the messages that it adds; return the session and it."""
        added = checked.added

        def change(session: ChatSession) -> None:
            session.metadata.begin_run(run_id)
            if added is not None:
                add_messages(session, added)

        session = await self.sessions.update(session_id, change)
        head = RunHead(
            run_id=run_id,
            session_id=session_id,
            number=session.metadata.run_number,
            model=checked.setup.model,
            started_at=now(),
            request=checked.request,
            follows=session.last_message_id,
            replaces=_without_answer(session) if added is None else None,
            is_temporary=self.is_temporary,
            owner=session.metadata.owner,
        )
        if queued is None:
            return session, self.runs.new(head)
        queued.leave_queue(head)
        return session, queued

    async def check_turn(self, session_id: str, request: TurnRequest) -> None:
        """Check all of a turn that can be checked while another one goes on; raises its errors."""
        await check_format(request.response_format)
        await self.checks.check(await self.sessions.get(session_id), request)

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
                checked = await self._check_again(head, session)
                earlier = await self.inbox.store.of_run(run_id)
                run = await self.runs.take(run_id)
                if run is None:
                    return None
                stack.push_async_callback(self._end_confirmations, run)
                return self._turn(run, session, checked, claim=stack.pop_all(), earlier=earlier)
        except (
            *(SessionBusy, ServerBusy, ShuttingDown),
            *(ProviderUnreachable, NobodyHasModel, StorageError, ConfirmationUnavailable),
        ):
            raise
        except MochiError as error:
            log_failure(head.session_id, run_id, head.model, error)
            await self.runs.fail(run_id, error)
            return None

    async def _check_again(self, head: RunHead, session: ChatSession) -> CheckedTurn:
        """Find what the turn of a run needs that was checked when it began."""
        request = head.request
        setup = await self.checks.models.resolve(request.model or head.model, wait=True)
        setup = replace(setup, model=head.model).within(session.metadata)
        model = await self.conversations.find_model(head.model, think=request.think)
        return CheckedTurn(request, setup, model, await self.checks.offered(setup, request))

    async def _end_confirmations(self, run: Run) -> None:
        """Settle what was asked before, and is not asked any more, as where a tool is gone."""

        async def end() -> None:
            if not await run.is_surely_given_up():
                await self.inbox.store.end_run(run.run_id)

        if not run.is_let_go:
            await self.inbox.store.eventually(end)

    def _turn(
        self,
        run: Run,
        session: ChatSession,
        checked: CheckedTurn,
        *,
        claim: AsyncExitStack,
        earlier: Sequence[StoredConfirmation] = (),
    ) -> Turn:
        """Return the turn of a run; ``earlier`` is what it has asked before, if it was taken up."""
        setup, request = checked.setup, run.head.request
        settings = setup.tool_settings or ToolSettings()
        conversation = self.conversations.open(
            session,
            checked.model,
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
            calls=self._calls(run, session, checked, settings, earlier),
            max_rounds=setup.max_tool_rounds or self.max_tool_rounds,
            claim=claim,
            client_tools=request.client_functions(),
            must_call=request.must_call,
            open_reply=open_reply(session) if run.before is not None else None,
        )

    def _calls(
        self,
        run: Run,
        session: ChatSession,
        checked: CheckedTurn,
        settings: ToolSettings,
        earlier: Sequence[StoredConfirmation],
    ) -> ToolCalls:
        before, of_clients = run.before, run.head.request.client_functions()
        return ToolCalls(
            of_run=run,
            session_id=session.session_id,
            model=checked.model.full_name,
            execution=self.execution,
            confirmations=self._confirmations(run, settings, earlier),
            sampler=self.conversations,
            tools={name: tool for name, tool in checked.tools.items() if name not in of_clients},
            settings=settings,
            text_calls=settings.text_calls_or(self.conversations.text_calls),
            before=None if before is None else before.of(session.session_id).unstored(session),
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
            session_kept=not self.is_temporary,
            timeout=self.confirmation_timeout if seconds is None else seconds,
            wait=run.head.request.wait is not False,
            is_given_up=run.is_surely_given_up,
            earlier=earlier,
            announced=questions,
            decided={name for name, (_, waits) in questions.items() if not waits},
        )

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
