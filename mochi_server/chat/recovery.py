"""Ends the runs of processes that have died, and keeps what they had said."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ..core.caller import SERVER, serving
from ..errors import RunInterrupted, SessionNotFound, SessionUnreadable
from ..protocol.events import Done, ErrorEvent, Event, MessageComplete
from ..protocol.messages import AssistantMessage, ToolMessage
from ..services.history import objects
from ..sessions import ChatSession, SessionManager
from .confirmations.announcing import announcement_of
from .confirmations.confirmation import StoredConfirmation
from .confirmations.store import ConfirmationStore
from .journal.base import RunWriter
from .journal.journal import RunJournal
from .journal.records import RECOVERY_JUMP, RunHead
from .runs.ending import RunEnding
from .runs.observer import RunObserver
from .runs.progress import ConversationProgress, RunProgress, read_run
from .tool_calls.results import unanswered

logger = logging.getLogger(__name__)


class RunRecovery:
    """Ends runs that no process executes, and keeps in the sessions what they had said."""

    def __init__(
        self,
        journal: RunJournal,
        sessions: SessionManager,
        agent_sessions: SessionManager,
        confirmations: ConfirmationStore,
    ) -> None:
        self._journal = journal
        self._sessions = sessions
        self._agent_sessions = agent_sessions
        self._confirmations = confirmations
        self.observers: Sequence[RunObserver] = ()

    async def recover(
        self, run_id: str, ending: RunEnding | None = None, *, claimed: str | None = None
    ) -> bool:
        """End a run that no process executes; return whether it has ended now.

        Its sessions need no claim: nobody changes their messages before it has ended. But where
        the journal has leases, whoever has claimed one of them may still execute the run.

        Args:
            run_id: The run.
            ending: How it ends. None: its process has died, and it is interrupted; but if a person
                is asked, it goes on waiting.
            claimed: The session that the caller has claimed: the run's, or an agent's.

        Raises:
            SessionBusy: somebody uses the session; the run can be recovered afterwards.
            StorageError: a session cannot be written.
            ConfirmationUnavailable: it is not known whether it waits.
        """
        with serving(SERVER):  # whoever happens to look at the run
            return await self._recover(run_id, ending, claimed)

    async def _recover(self, run_id: str, ending: RunEnding | None, claimed: str | None) -> bool:
        read = await read_run(self._journal, run_id)
        if read is None or read.progress.end:
            return False
        progress = await self._with_number(read.progress)
        asked = await self._asked(run_id)
        if ending is None and progress.is_parked and asked:
            return False
        if self._journal.has_leases and not progress.head.is_queued:
            await self._take_claims(progress, claimed)
        writer = await self._journal.take(run_id)
        if writer is None:
            return False
        try:
            return await self._end_or_park(writer, ending)
        finally:
            await self._journal.close(writer)

    async def _with_number(self, progress: RunProgress) -> RunProgress:
        """Give a run that was queued its number, if its process died after it began.

        The session has its message by then, and knows its number before the journal does.
        """
        head = progress.head
        if head.is_queued:
            with suppress(SessionNotFound, SessionUnreadable):
                metadata = (await self._sessions.get(head.session_id)).metadata
                if metadata.last_run_id == head.run_id:
                    head = replace(head, number=metadata.run_number)
                    return RunProgress(head, head.first_event)
        return progress

    async def _take_claims(self, progress: RunProgress, claimed: str | None) -> None:
        """Make sure that nobody else stores anything of a run any more.

        Raises:
            SessionBusy: somebody uses one of its sessions.
        """
        head = progress.head
        with suppress(SessionNotFound, SessionUnreadable):
            if head.session_id != claimed:
                async with self._sessions.claim(head.session_id):
                    pass
        for session_id in progress.agent_sessions - {claimed}:
            with suppress(SessionNotFound, SessionUnreadable):
                session = await self._agent_sessions.get(session_id)
                if session.metadata.last_run_id == head.run_id:  # else it stores nothing there
                    async with self._agent_sessions.claim(session_id):
                        pass

    async def _end_or_park(self, writer: RunWriter, ending: RunEnding | None) -> bool:
        """End a run that was taken, or let it wait for a person; return whether it has ended."""
        read = await read_run(self._journal, writer.run_id)
        if read is None or read.progress.end:
            return False
        progress = await self._with_number(read.progress)
        if progress.head != read.progress.head:
            writer.begin(progress.head)
        head, main = progress.head, progress.of(progress.head.session_id)
        asked = await self._asked(head.run_id)  # nobody else asks now, or acts on a decision
        if ending is None and asked:
            if progress.is_parked:
                return False
            says_nothing = not (main.now.text or main.now.thinking or main.complete)
            if says_nothing and await self._is_kept(head):
                _announce(writer, progress, asked)
                writer.note("waiting")
                logger.info("Run waits: session=%s run=%s", head.session_id, head.run_id)
                return False
        interrupted = RunEnding("interrupted", RunInterrupted(run_id=head.run_id))
        await self._end(writer, progress, ending or interrupted)
        return True

    async def _asked(self, run_id: str) -> list[StoredConfirmation]:
        """Return what a run has asked that nobody has acted on; not what its tools have asked."""
        stored = await self._confirmations.of_run(run_id)
        return [each for each in stored if each.confirmation.elicitation is None]

    async def _is_kept(self, head: RunHead) -> bool:
        """Return whether the session is there: some last only as long as their process.

        Servers that share a Redis need not have the same sessions.
        """
        if head.is_temporary:
            return False
        if self._journal.has_leases:
            return True
        try:
            await self._sessions.check_exists(head.session_id)
        except SessionNotFound:
            return False
        return True

    async def _end(self, writer: RunWriter, progress: RunProgress, ending: RunEnding) -> None:
        """Store what the run had said, settle its confirmations, and write its last lines."""
        head, last, message_id = progress.head, list[Event](), None
        complete = progress.fold.complete or await self._complete(progress)
        if complete is not None:
            ending, message_id = RunEnding("done"), complete.message_id
            if progress.fold.complete is None:
                last.append(complete)
        elif not head.is_queued:
            message_id = await self._fold(writer, self._sessions, head.session_id, progress)
        for session_id in progress.agent_sessions:
            await self._fold(writer, self._agent_sessions, session_id, progress)
        await self._confirmations.end_run(head.run_id)
        error = ending.error
        if error is not None:
            last.append(ErrorEvent.of(error))
        last.append(Done(session_id=head.session_id))
        code = None if error is None else error.code
        _add_events(writer, progress, last)
        writer.note("end", state=ending.state, code=code, message_id=message_id)
        logger.info("Run %s: session=%s run=%s", ending.state, head.session_id, head.run_id)
        for observer in self.observers:
            observer.on_ended(head, ending.state, error)

    async def _complete(self, progress: RunProgress) -> MessageComplete | None:
        """Return what readers are to be told of the answer, if the session has it whole."""
        session_id = progress.head.session_id
        complete = progress.of(session_id).complete
        if complete is None:
            return None
        try:
            session = await self._sessions.get(session_id)
        except (SessionNotFound, SessionUnreadable):  # deleted or damaged meanwhile
            return None
        last = next(objects(session.tail()), {})
        if last.get("message_id") != complete.message_id:
            return None
        return replace(complete, message=last)

    async def _fold(
        self, writer: RunWriter, manager: SessionManager, session_id: str, progress: RunProgress
    ) -> str | None:
        """Store what was said and done in a session; return the id of the model's last message."""
        done = progress.conversations.get(session_id, ConversationProgress())
        try:
            session = await manager.get(session_id)
            if session.metadata.last_run_id != progress.head.run_id:
                # Another one has begun while the journal could not be reached, or an earlier state
                # of the session was put back.
                return None
            head = progress.head
            if head.has_yet_to_replace(session):
                session.truncate_after_last_user()
            messages = left_over(session, done, head)
            if messages:
                ids = [message.message_id for message in messages]
                until = progress.next_event - 1
                writer.note("storing", session_id=session_id, messages=ids, until=until)
                await self._journal.flush(writer)  # whoever recovers again stores it no second time

                def change(session: ChatSession) -> None:
                    if head.has_yet_to_replace(session):
                        session.set_aside_answer(keep=head.request.keep)
                    session.append(*messages)

                session = await manager.update(session_id, change)
        except (SessionNotFound, SessionUnreadable):  # deleted or damaged meanwhile
            return None
        return _last_reply(session)


def _announce(
    writer: RunWriter, progress: RunProgress, asked: Sequence[StoredConfirmation]
) -> None:
    """Tell readers of what the process had stored, and not announced any more."""
    events = [
        announcement_of(each.confirmation)
        for each in asked
        if each.decision is None
        and each.confirmation.confirmation_id not in progress.fold.confirmations
        and each.confirmation.agent_call_id in {None, *progress.agents}
    ]
    if events:
        _add_events(writer, progress, events)


def _add_events(writer: RunWriter, progress: RunProgress, events: Sequence[Event]) -> None:
    """Add events behind those that readers of the dead process may have."""
    head = progress.head
    if progress.next_event == head.first_event:  # it died before it had said anything
        writer.add(head.first_event, [head.start()])
    writer.add(progress.next_event + RECOVERY_JUMP, events)


def _last_reply(session: ChatSession) -> str | None:
    """Return the id of the model's last message since the user's."""
    for message in objects(session.tail()):
        match message:
            case {"role": "assistant", "message_id": str() as message_id}:
                return message_id
            case {"role": "user"}:
                return None
    return None


def left_over(
    session: ChatSession, done: ConversationProgress, head: RunHead
) -> list[AssistantMessage | ToolMessage]:
    """Return the messages that a run had not stored: results of its calls, and a partial reply."""
    rest = done.unstored(session)
    of_client = head.request.client_functions()
    messages: list[AssistantMessage | ToolMessage] = [
        rest.results.get(message.tool_call_id or "", message)
        for message in unanswered(objects(session.tail()))
        if message.tool_name not in of_client  # its client may answer it yet
    ]
    if (partial := rest.partial_reply(head.model)) is not None:
        messages.append(partial)
    return messages
