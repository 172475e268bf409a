"""Starts, joins, lists and stops runs, whichever process executes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import anyio

from ..core.caller import current_caller, may_see, serving
from ..core.ids import new_run_id
from ..errors import JSONObject, RunNotFound, ServerBusy, SessionBusy, SessionNotFound
from ..protocol.turn_request import TurnRequest
from ..services.history import objects
from .journal.records import RunHead, RunState
from .runs.log import LogReader
from .runs.queue import RunQueue
from .runs.run import Run
from .runs.status import RunStatus
from .service import ChatService
from .turn import Turn

WhenBusy = Literal["refuse", "queue", "interrupt"]
"""What becomes of a message while another run of its session goes on."""

INTERRUPT_TRIES = 20
"""How often a turn is opened after the session's run was stopped: others may be faster."""

INTERRUPT_PAUSE = 0.05
"""Seconds between two tries to open the turn."""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was started, or that waits in the queue."""

    run_id: str
    session_id: str
    state: RunState
    reader: LogReader
    """Reads it from its first event."""
    model: str
    is_kept: bool = True
    """Whether its session outlives it."""


class RunControl:
    """All that clients can do with runs."""

    def __init__(self, chat: ChatService) -> None:
        self._chat = chat
        self._runs = chat.runs
        self._sessions = chat.sessions
        self._confirmations = chat.inbox.store
        self._queue = RunQueue(chat.runs)

    async def start(
        self,
        session_id: str,
        request: TurnRequest,
        *,
        when_busy: WhenBusy = "refuse",
        run_id: str | None = None,
        whole_messages: bool = False,
    ) -> StartedRun:
        """Start a run, or let it wait; the caller must let the reader ``leave``.

        ``run_id`` is that of the run, which is new. With ``whole_messages`` the reader gets the
        messages that are stored, too.

        Raises:
            MochiError: what ``ChatService.open_turn`` raises. A run that waits gets the error as
                an event.
        """
        if current_caller().owner is not None:  # that another's session is busy is not told
            await self._sessions.check_exists(session_id)
        open_turn = partial(self._chat.open_turn, session_id, request, run_id=run_id)
        turn: Turn | None = None
        if when_busy == "queue":
            if not (self._queue.has(session_id) or await self._runs.is_awaited(session_id)):
                with suppress(SessionBusy, ServerBusy):
                    turn = await open_turn()
            if turn is None:
                return await self._enqueue(
                    session_id, request, open_turn, whole_messages=whole_messages
                )
        elif when_busy == "interrupt":
            turn = await self._interrupt(session_id, request, open_turn)
        elif self._queue.has(session_id):
            raise SessionBusy(session_id=session_id)
        else:
            turn = await open_turn()
        return await self.begin(turn, whole_messages=whole_messages)

    async def begin(
        self, turn: Turn, *, is_kept: bool = True, whole_messages: bool = False
    ) -> StartedRun:
        """Start the run of a turn; return when other processes know it by its id.

        ``is_kept``: its session outlives it. With ``whole_messages`` the reader gets the messages
        that are stored, too.
        """
        run = turn.run
        reader = run.log.reader(whole_messages=whole_messages)
        self._chat.start(turn)
        await run.begun.wait()
        return StartedRun(run.run_id, turn.session_id, "running", reader, turn.model, is_kept)

    async def _enqueue(
        self,
        session_id: str,
        request: TurnRequest,
        open_turn: Callable[..., Awaitable[Turn]],
        *,
        whole_messages: bool,
    ) -> StartedRun:
        metadata = (await self._sessions.get(session_id)).metadata
        model = request.model or metadata.model
        caller = current_caller()

        async def open_queued(run: Run) -> Turn:
            with serving(caller):
                return await open_turn(queued=run)

        head = RunHead(
            run_id=new_run_id(),
            session_id=session_id,
            number=0,
            model=model,
            started_at=await self._queue.next_time(session_id),
            request=request.without_messages(),
            owner=metadata.owner,
        )
        run = self._runs.new(head)
        reader = run.log.reader(whole_messages=whole_messages)
        await self._queue.add(run, open_queued)
        return StartedRun(run.run_id, session_id, "queued", reader, model)

    async def _interrupt(
        self, session_id: str, request: TurnRequest, open_turn: Callable[..., Awaitable[Turn]]
    ) -> Turn:
        for _ in range(INTERRUPT_TRIES):
            try:
                return await open_turn()
            except SessionBusy:
                run_id = await self._last_run(session_id)
                if run_id is None:
                    raise
            await self._chat.check_turn(session_id, request)  # else the other one goes on
            try:
                await self.stop(run_id)
            except RunNotFound:  # somebody else uses the session, or the run has just begun
                await anyio.sleep(INTERRUPT_PAUSE)
        raise SessionBusy(session_id=session_id)

    async def join(self, run_id: str, after: int = 0) -> LogReader | None:
        """Return a reader of a run's events after a number.

        None if the run has ended, and has no event after that number.

        Raises:
            RunNotFound: there is no such run, or none any more.
        """
        if current_caller().owner is not None:
            await self.find(run_id)
        return await self._runs.join(run_id, after)

    async def find(self, run_id: str) -> RunStatus:
        """Return how far a run has come that the caller may know of.

        Raises:
            RunNotFound: it is of a session that belongs to somebody else, or there is none.
        """
        status = await self._runs.status(run_id)
        if not may_see(status.owner):
            raise RunNotFound(run_id=run_id)
        return status

    async def join_session(self, session_id: str, after: int = 0) -> tuple[str, LogReader] | None:
        """Return the id and a reader of the session's present or last run; None if it has none.

        Raises:
            SessionNotFound, SessionUnreadable, StorageError.
        """
        run_id = await self._last_run(session_id)
        if run_id is None:
            return None
        try:
            reader = await self.join(run_id, after)
        except RunNotFound:  # it has ended too long ago, or an imported file names another's
            return None
        return None if reader is None else (run_id, reader)

    async def status(self, run_id: str) -> JSONObject:
        """Return what ``GET /runs/{run_id}`` answers.

        Raises:
            RunNotFound: there is no such run, or none any more.
        """
        status = await self.find(run_id)
        answer: JSONObject = asdict(status)
        pending = []
        if status.state in {"running", "waiting"}:
            pending = await self._confirmations.pending(session_id=status.session_id)
        if pending:
            answer["state"] = "waiting"
        answer["confirmations"] = [request.payload() for request in pending]
        return answer

    async def list(
        self, *, session_id: str | None = None, state: RunState | None = None
    ) -> Sequence[JSONObject]:
        """Return what ``GET /runs`` answers: runs, the latest first, those that wait at the end."""
        runs: list[JSONObject] = []
        pending = await self._confirmations.pending(session_id=session_id)
        asking = {each.run_id for each in pending}
        for run in await self._runs.all_runs(None if session_id is None else {session_id}):
            if not may_see(run.owner):
                continue
            shown = "waiting" if run.state == "running" and run.run_id in asking else run.state
            if state is None or shown == state:
                answer = asdict(run)
                del answer["is_held"]
                runs.append({**answer, "state": shown})
        return runs

    async def stop(self, run_id: str) -> JSONObject:
        """Stop a run, and return how it has ended and the message that it stored last.

        Raises:
            RunNotFound: there is no such run, or none any more.
            SessionBusy, StorageError, ConfirmationUnavailable: a waiting run cannot be ended now.
        """
        await self.find(run_id)
        status = await self._runs.stop(run_id)
        return {
            "run_id": run_id,
            "session_id": status.session_id,
            "state": status.state,
            "message": await self._message(status),
        }

    async def stop_session(self, session_id: str) -> JSONObject:
        """Stop the session's present run, as ``stop`` does.

        Raises:
            SessionNotFound, SessionUnreadable, StorageError.
            RunNotFound: it has none, and no last one any more.
        """
        run_id = await self._last_run(session_id)
        if run_id is None:
            text = f"Session {session_id!r} has no run."
            raise RunNotFound(text, details={"session_id": session_id})
        return await self.stop(run_id)

    def refuse_new(self) -> None:
        """Let no run begin any more; runs that wait in queues end."""
        self._runs.refuse_new()
        self._queue.stop_all()

    def stop_all(self) -> None:
        """End all runs of this process and refuse new ones: the server is stopping."""
        self._queue.stop_all()
        self._runs.stop_all()

    async def _last_run(self, session_id: str) -> str | None:
        if current_caller().owner is not None:
            await self._sessions.check_exists(session_id)
        running = self._runs.running_of(session_id)
        if running is not None:
            return running
        return (await self._sessions.get(session_id)).metadata.last_run_id

    async def _message(self, status: RunStatus) -> JSONObject | None:
        if status.message_id is None:
            return None
        try:
            session = await self._sessions.get(status.session_id)
        except SessionNotFound:
            return None
        for message in objects(session.tail()):
            if message.get("message_id") == status.message_id:
                return message
        return None
