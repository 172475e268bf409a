"""Responses, as OpenAI's API of this name has them: runs whose answers sessions keep.

A response is a run. The first message that its request adds to the session says what else the
request had, under the key ``response``, so that the response can be read again as long as the
session is there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from typing_extensions import Self

from ..core.aio import in_thread
from ..core.ids import new_run_id
from ..errors import InvalidRequest, JSONObject, RunNotFound
from ..protocol.messages import Message, SystemMessage
from ..protocol.turn_request import TurnRequest
from ..services.history import objects
from ..sessions import ChatSession, SessionManager
from ..sessions.attachments import AttachmentStore
from ..sessions.codec import id_of
from ..sessions.fork import fork_session, lines_until
from .completions import NEW_SESSION, CompletionRequest, CompletionService
from .control import StartedRun

RECORD = "response"
"""Key of a message under which the response is, to which it belongs."""

BEGINS_SESSION = "begins_session"
"""Key of a record that says that its request has sent all messages before it."""

_ID = re.compile(r"resp_(?:(?P<session>.+)_)?(?P<run>[0-9a-f]{16})(?:p(?P<part>\d{1,18}))?")
_ITEM = re.compile(r"[a-z]+_(?P<response>(?:.+?_)?[0-9a-f]{16}(?:p\d{1,18})?)_.+")


@dataclass(frozen=True, slots=True)
class ResponseId:
    """The id of a response: its run, and its session if that is kept."""

    run_id: str
    session_id: str | None = None
    part: int = 0
    """Number of the event after which it begins, where a person has decided; else 0."""

    def __str__(self) -> str:
        session = "" if self.session_id is None else f"{self.session_id}_"
        part = f"p{self.part}" if self.part else ""
        return f"resp_{session}{self.run_id.removeprefix('run_')}{part}"

    def item(self, kind: str, name: str | int) -> str:
        """Return the id of one of its items: the same in a stream and of what is stored."""
        return f"{kind}_{str(self).removeprefix('resp_')}_{name}"

    @classmethod
    def of_item(cls, item_id: str) -> str:
        """Return the id of the response that has an item.

        Raises:
            RunNotFound: it is the id of no item.
        """
        found = _ITEM.fullmatch(item_id)
        if found is None:
            raise RunNotFound(f"There is no item {item_id!r}.", details={"item_id": item_id})
        return f"resp_{found['response']}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the id of a response.

        Raises:
            RunNotFound: it is none.
        """
        found = _ID.fullmatch(text)
        if found is None:
            message = f"There is no response {text!r}."
            raise RunNotFound(message, details={"response_id": text})
        return cls(f"run_{found['run']}", found["session"], int(found["part"] or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """What a session has of a response."""

    record: JSONObject
    """What the request had beside its messages."""
    input: Sequence[JSONObject]
    """Messages that the request has added; all of them, where it has begun the session."""
    output: Sequence[JSONObject]
    """Messages of the model and results of the server's tools, so far."""
    is_last: bool
    """Whether nothing follows it in the session."""

    @property
    def last_message_id(self) -> str | None:
        """The id of its last message, so far."""
        return id_of((*self.input, *self.output)[-1])


def stored_response(session: ChatSession, run_id: str) -> StoredResponse:
    """Find a response in its session.

    Raises:
        RunNotFound: the session does not have it, or not any more.
    """
    messages = [*objects(session.stored_messages())]
    begin = next((n for n, each in enumerate(messages) if run_of(each) == run_id), None)
    if begin is None:
        message = f"There is no response of the run {run_id!r} in session {session.session_id!r}."
        raise RunNotFound(message, details={"run_id": run_id})
    answer = begin
    while answer < len(messages) and messages[answer].get("role") != "assistant":
        answer += 1
    end = answer
    while end < len(messages) and not begins_another(messages[end]):
        end += 1
    record = messages[begin][RECORD]
    return StoredResponse(
        record=record if isinstance(record, dict) else {},
        input=messages[0 if _begins_session(messages[begin]) else begin : answer],
        output=messages[answer:end],
        is_last=end == len(messages),
    )


def _begins_session(message: JSONObject) -> bool:
    record = message.get(RECORD)
    return isinstance(record, dict) and record.get(BEGINS_SESSION) is True


def run_of(message: JSONObject) -> object:
    """Return the run of the response that begins with a message; None if none does."""
    record = message.get(RECORD)
    return record.get("run_id") if isinstance(record, dict) else None


def begins_another(message: JSONObject) -> bool:
    """Return whether what follows a message is no part of the response before it."""
    return message.get("role") == "user" or RECORD in message


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseService:
    """Starts and finds responses."""

    completions: CompletionService
    sessions: SessionManager
    attachments: AttachmentStore

    async def start(
        self,
        request: CompletionRequest,
        record: JSONObject,
        *,
        previous: ResponseId | None = None,
        stored: bool = True,
    ) -> tuple[StartedRun, ResponseId]:
        """Start the run of a response; the caller must let its reader ``leave``.

        Args:
            request: What is asked; its session is the conversation that it continues, if any.
            record: What is kept of it beside the messages.
            previous: The response after which it comes. If others follow that one, the session is
                forked: they stay as they are.
            stored: Whether it is kept, in a new session where none is continued.

        Raises:
            InvalidRequest: it adds no message.
            RunNotFound, SessionNotFound: what it continues is not there.
            MochiError: what ``CompletionService.start`` raises.
        """
        run_id = new_run_id()
        session_id, after_run = request.session_id, None
        if previous is not None:
            session_id, after_run = await self._session_after(previous)
        elif session_id is None and stored:
            session_id = NEW_SESSION
        if session_id == NEW_SESSION:
            record = {**record, BEGINS_SESSION: True}
        request = replace(
            request,
            messages=_recorded(request.messages, {"run_id": run_id, **record}),
            session_id=session_id,
            is_private=not stored,
            run_id=run_id,
            turn=replace(request.turn, after_run=after_run),
        )
        started = await self.completions.start(request)
        return started, ResponseId(run_id, started.session_id if started.is_kept else None)

    async def _session_after(self, previous: ResponseId) -> tuple[str, int | None]:
        """Return the session in which a response can follow another one.

        And which one of its runs must still be its last one when that begins, unless it is a fork.
        """
        session, found = await self._load(previous)
        if found.is_last:
            return session.session_id, session.metadata.run_number
        fork = await fork_session(
            self.sessions, self.attachments, session.session_id, found.last_message_id
        )
        return fork.session_id, None

    async def find(self, response_id: ResponseId) -> StoredResponse:
        """Return what is kept of a response.

        Raises:
            RunNotFound, SessionNotFound, SessionUnreadable, StorageError.
        """
        return (await self._load(response_id))[1]

    async def history(self, response_id: ResponseId) -> ChatSession:
        """Return the session of a response without what follows it; raises what ``find`` does."""
        session, found = await self._load(response_id)
        if found.is_last:
            return session
        lines, _ = await in_thread(lines_until, session, found.last_message_id)
        until = ChatSession(session.metadata)
        until.extend(lines)
        return until

    async def _load(self, response_id: ResponseId) -> tuple[ChatSession, StoredResponse]:
        if response_id.session_id is None:
            raise RunNotFound(f"The response {str(response_id)!r} was not stored.")
        session = await self.sessions.get(response_id.session_id)
        return session, stored_response(session, response_id.run_id)

    async def delete(self, response_id: ResponseId) -> None:
        """Delete the session of a response that is all that it has.

        Raises:
            InvalidRequest: there are other messages, which would lose their sense.
            SessionBusy: its run goes on.
            RunNotFound, SessionNotFound, SessionUnreadable, StorageError.
        """
        found = await self.find(response_id)
        session_id = response_id.session_id or ""

        def is_alone(session: ChatSession) -> bool:
            prompts = sum(isinstance(each, SystemMessage) for each in session.messages)
            own = sum(each.get("role") != "system" for each in (*found.input, *found.output))
            return len(session.messages) - prompts == own

        if not await self.sessions.delete(session_id, only_if=is_alone):
            text = "The response is part of a longer conversation: delete that one."
            raise InvalidRequest(text, details={"session_id": session_id})


def _recorded(messages: Sequence[Message], record: JSONObject) -> list[Message]:
    """Return the messages of a request, whose first new one has the record."""
    new = CompletionRequest(messages=messages, turn=TurnRequest()).split()[2]
    first = next((each for each in new if not isinstance(each, SystemMessage)), None)
    if first is None:
        raise InvalidRequest("The input has no new message.")
    index = next(n for n, each in enumerate(messages) if each is first)
    changed = first.model_copy(update={RECORD: record})
    return [*messages[:index], changed, *messages[index + 1 :]]
