"""``/chat/{session_id}``: one turn, in one piece or as a stream, and confirming its calls."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status

from mochi_project.openapi import MODEL_ERRORS, NAME_ERRORS, STORE_ERRORS, ErrorTypes, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionId
from mochi_server import errors
from mochi_server.chat.control import StartedRun
from mochi_server.chat.service import events_of, whole_reply
from mochi_server.errors import JSONObject
from mochi_server.protocol.options import NO_OPTIONS
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions.attachments import NewAttachment

from ..streaming import RUN_ID, EventStreamResponse
from .attachments import ATTACHMENT_ERRORS, read_attachments
from .chat_bodies import ChatReply, ChatRequest, ConfirmationList, ConfirmRequest
from .confirmations import DECISION_ERRORS, Confirmed
from .events import stream
from .runs import AcceptedRun, After, StoppedRun, position_of

router = Router()


def continues(on_disconnect: str | None) -> bool:
    """Return whether a run goes on without a reader."""
    return (on_disconnect or get_runtime().settings.on_disconnect) == "continue"


ERRORS: ErrorTypes = (
    errors.EmptyHistory,
    errors.ThinkingNotSupported,
    errors.ToolsNotSupported,
    errors.ResponseFormatInvalid,
    errors.SpaceUsedUp,
    *ATTACHMENT_ERRORS,
    *NAME_ERRORS,
    *MODEL_ERRORS,
)


@router.post(
    "/{session_id}",
    response=ChatReply,
    exclude_unset=True,
    summary="Send a message and wait for the whole reply",
    openapi_extra=documented(*ERRORS, errors.ResponseFormatNotMet, errors.RunStopped),
)
async def chat(
    request: HttpRequest,
    response: HttpResponse,
    session_id: SessionId,
    payload: ChatRequest | None = None,
) -> JSONObject:
    """Without `message`, the last user message is answered again."""
    payload = payload or ChatRequest()
    started = await begin_run(session_id, payload, wait=payload.confirmations == "wait")
    response[RUN_ID] = started.run_id
    async with aclosing(events_of(started.reader)) as events:
        return await whole_reply(session_id, events)


async def begin_run(
    session_id: str,
    payload: ChatRequest,
    *,
    wait: bool,
    goes_on: bool = False,
    model: str | None = None,
) -> StartedRun:
    """Begin the run of a request; the caller must let its reader ``leave``.

    ``wait``: calls that a person must confirm are waited for; ``goes_on``: without a reader,
    whatever the request says.
    """
    runtime = get_runtime()
    attachments: list[NewAttachment] = []
    if payload.attachments:
        await runtime.sessions.check_exists(session_id)
        attachments = await read_attachments(session_id, payload.attachments)
    return await runtime.run_control.start(
        session_id,
        TurnRequest(
            message=payload.message,
            keep=payload.keep,
            attachments=attachments,
            think=payload.think,
            options=payload.options or NO_OPTIONS,
            response_format=payload.response_format,
            wait=wait,
            model=model,
            continues=goes_on or continues(payload.on_disconnect),
        ),
        when_busy=payload.when_busy,
    )


@router.post(
    "/{session_id}/stream",
    response={200: None},
    summary="Send a message and get the reply as server-sent events",
    openapi_extra=documented(*ERRORS, stream=stream),
)
async def stream_chat(
    request: HttpRequest, session_id: SessionId, payload: ChatRequest | None = None
) -> EventStreamResponse:
    """What can fail before the first byte is answered as JSON with its status.

    Later an `error` event carries the same code. The run goes on while anybody reads it, here or at
    `/runs/{run_id}/events`; then `on_disconnect` says what happens. What was said is kept.
    """
    payload = payload or ChatRequest()
    started = await begin_run(session_id, payload, wait=payload.confirmations != "deny")
    return EventStreamResponse(started.reader, run_id=started.run_id)


@router.get(
    "/{session_id}/stream",
    response={200: None, 204: None},
    summary="Read the present or last run of a session as server-sent events",
    openapi_extra=documented(
        errors.SessionNotFound,
        errors.SessionUnreadable,
        errors.InvalidRequest,
        errors.StorageError,
        stream=stream,
    ),
)
async def stream_session(
    request: HttpRequest, session_id: SessionId, after: After = 0
) -> EventStreamResponse | HttpResponse:
    """204 where there is no run, or it has ended and nothing follows the reader's last event."""
    joined = await get_runtime().run_control.join_session(session_id, position_of(request, after))
    if joined is None:
        return HttpResponse(status=204)
    run_id, reader = joined
    return EventStreamResponse(reader, run_id=run_id)


@router.post(
    "/{session_id}/stop",
    response=StoppedRun,
    exclude_unset=True,
    summary="Stop the present run of a session",
    openapi_extra=documented(
        errors.SessionNotFound,
        errors.RunNotFound,
        errors.SessionBusy,
        errors.SessionUnreadable,
        *STORE_ERRORS,
        errors.StorageError,
    ),
)
async def stop_session(request: HttpRequest, session_id: SessionId) -> JSONObject:
    """Works in every server process. What the model has said is stored; readers get `done`."""
    return await get_runtime().run_control.stop_session(session_id)


@router.post(
    "/{session_id}/runs",
    response={202: AcceptedRun},
    summary="Start a run that nobody need read",
    openapi_extra=documented(*ERRORS),
)
async def start_run(
    request: HttpRequest,
    response: HttpResponse,
    session_id: SessionId,
    payload: ChatRequest | None = None,
) -> Status[JSONObject]:
    """The run goes on to its end, unless somebody stops it; `/runs/{run_id}/events` reads it."""
    payload = payload or ChatRequest()
    wait = payload.confirmations != "deny"
    started = await begin_run(session_id, payload, wait=wait, goes_on=True)
    started.reader.leave()
    response[RUN_ID] = started.run_id
    answer: JSONObject = {
        "run_id": started.run_id,
        "session_id": session_id,
        "state": started.state,
    }
    return Status(202, answer)


@router.post(
    "/{session_id}/confirm-tool",
    response=Confirmed,
    exclude_unset=True,
    summary="Allow or deny a tool call",
    openapi_extra=documented(*DECISION_ERRORS),
)
async def confirm_tool(
    request: HttpRequest, session_id: SessionId, payload: ConfirmRequest
) -> JSONObject:
    """The first decision counts, at whichever process it arrives.

    Arguments that do not fit the tool are refused with 422, and the confirmation stays open.
    """
    return await get_runtime().inbox.decide(
        payload.confirmation_id, session_id=session_id, **payload.as_options()
    )


@router.get(
    "/{session_id}/confirmations",
    response=ConfirmationList,
    exclude_unset=True,
    summary="List the tool calls that wait for a decision",
    openapi_extra=documented(errors.SessionNotFound, *STORE_ERRORS, errors.StorageError),
)
async def list_confirmations(request: HttpRequest, session_id: SessionId) -> dict[str, Any]:
    """Lists those of all server processes, oldest first."""
    runtime = get_runtime()
    # A session that is not there is an error; one without confirmations is not.
    await runtime.sessions.check_exists(session_id)
    return {"confirmations": await runtime.chat.confirmations(session_id)}
