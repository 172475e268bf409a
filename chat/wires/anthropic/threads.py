"""Threads: conversations that the server keeps, and that go on after one of their answers.

A thread is a session, and an answer of it is kept as OpenAI's API of responses keeps one. When a
request says ``details.error_code``, clients send the whole conversation once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import JsonValue

from mochi_project.http.errors import PAYLOAD, checked
from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import NEW_SESSION, CompletionRequest
from mochi_server.chat.control import StartedRun
from mochi_server.chat.responses import ResponseId
from mochi_server.errors import (
    InvalidRequest,
    JSONObject,
    MochiError,
    RunNotFound,
    SessionBusy,
    SessionNotFound,
)

from .schemas import TOOLS, MessagesRequest, ReplyTurn, ThreadAfter, UserTurn

_NOT_FOUND = "thread_not_found"
_IN_FLIGHT = "thread_continue_in_flight"
_UNSUPPORTED = "thread_unsupported_request"


async def start(
    asked: CompletionRequest, payload: MessagesRequest
) -> tuple[StartedRun, str | None]:
    """Start the run of a request; return it, and the id of its message if that is of a thread.

    Raises:
        MochiError: what ``CompletionService.start`` and ``ResponseService.start`` raise.
    """
    runtime, thread = get_runtime(), payload.thread
    if thread is None:
        return await runtime.completions.start(asked), None
    previous = _read_id(thread.previous_message_id) if isinstance(thread, ThreadAfter) else None
    tools: list[JsonValue] = [
        tool.model_dump(mode="json", exclude_none=True) for tool in payload.tools or ()
    ]
    record: JSONObject = {"model": payload.model, "tools": tools}
    with _errors_of(thread):
        started, kept = await runtime.responses.start(asked, record, previous=previous)
    return started, str(kept).replace("resp_", "msg_", 1)


async def completed(payload: MessagesRequest, session_id: str | None) -> MessagesRequest:
    """Return a request with the tools of the thread that it continues, if it continues one.

    Raises:
        InvalidRequest: it has what a thread cannot take.
        RunNotFound, SessionNotFound: the server does not have the thread.
    """
    thread = payload.thread
    if thread is not None and isinstance(payload.messages[-1], ReplyTurn):
        raise _unsupported("the last message must not be the assistant's")
    if not isinstance(thread, ThreadAfter):
        return payload
    if payload.system is not None or payload.tools is not None:
        raise InvalidRequest("A thread keeps its system prompt and tools: leave them out.")
    if not all(isinstance(turn, UserTurn) for turn in payload.messages):
        raise _unsupported("only messages of the user continue it")
    with _errors_of(thread):
        previous = _read_id(thread.previous_message_id)
        if session_id not in (None, NEW_SESSION, previous.session_id):
            raise InvalidRequest("The thread is not in the session that the request names.")
        record = (await get_runtime().responses.find(previous)).record
    tools = checked(TOOLS.validate_python, record.get("tools", []), *PAYLOAD, "tools")
    return payload.model_copy(update={"tools": tools})


def _read_id(message_id: str) -> ResponseId:
    """Read the id of a message.

    Raises:
        RunNotFound: it is none of a thread.
    """
    return ResponseId.read(message_id.replace("msg_", "resp_", 1))


def _unsupported(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"This cannot be sent in a thread ({reason}): send the whole conversation without one.",
        details={"error_code": _UNSUPPORTED},
    )


@contextmanager
def _errors_of(thread: object) -> Iterator[None]:
    """Let errors of a thread that is continued say what the client can do about it."""
    try:
        yield
    except (RunNotFound, SessionNotFound, SessionBusy) as error:
        if isinstance(thread, ThreadAfter):
            _name(error, _IN_FLIGHT if isinstance(error, SessionBusy) else _NOT_FOUND)
        raise


def _name(error: MochiError, error_code: str) -> None:
    error.details["error_code"] = error_code
