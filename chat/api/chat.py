"""``/chat/{session_id}``: one turn, in one piece or as a stream, and confirming its calls."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status
from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from mochi_project.openapi import MODEL_ERRORS, NAME_ERRORS, STORE_ERRORS, ErrorTypes, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionId
from mochi_server import errors
from mochi_server.chat.control import StartedRun, WhenBusy
from mochi_server.chat.service import events_of, whole_reply
from mochi_server.errors import JSONObject
from mochi_server.protocol.messages import AssistantMessage
from mochi_server.protocol.options import NO_OPTIONS, ModelOptions
from mochi_server.protocol.response_format import ResponseFormat
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions.attachments import NewAttachment

from ..streaming import RUN_ID, EventStreamResponse
from .attachments import ATTACHMENT_ERRORS, Attachments, read_attachments
from .confirmations import DECISION_ERRORS, Confirmed, DecisionBody, OpenConfirmation
from .events import stream
from .examples import USED_WINDOW
from .runs import AcceptedRun, After, StoppedRun, position_of

router = Router()

OnDisconnect = Annotated[
    Literal["cancel", "continue"] | None,
    Field(
        description="What the run does when its last reader has left. Absent or null: what "
        "`MOCHI_ON_DISCONNECT` says."
    ),
]
WhenBusyField = Annotated[
    WhenBusy,
    Field(
        description="While another run of the session goes on: `refuse` answers `SESSION_BUSY`, "
        "`queue` runs after it, `interrupt` stops it, keeps what it has said, and runs."
    ),
]


OptionsOfTurn = Annotated[
    ModelOptions | None,
    Field(description="For this turn; what it does not name is as the session has it."),
]
AnswerFormat = Annotated[
    ResponseFormat | None,
    Field(
        description="The form of the final answer: JSON of a schema, or any JSON object. A reply "
        "that does not have it is asked for once more."
    ),
]
IgnoredOptions = Annotated[
    list[str],
    Field(
        description="Options that the model's provider does not take, `response_format` among "
        "them; only where there are some.",
        examples=[["min_p"]],
    ),
]


def continues(on_disconnect: str | None) -> bool:
    """Return whether a run goes on without a reader."""
    return (on_disconnect or get_runtime().settings.on_disconnect) == "continue"


class ChatRequest(BaseModel):
    """One user message, or none to answer the last one anew."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"message": "What is the capital of France?", "think": False},
            "not": {
                "anyOf": [
                    {
                        "required": ["attachments"],
                        "properties": {"attachments": {"minItems": 1}, "message": {"type": "null"}},
                    },
                    {
                        "required": ["keep", "message"],
                        "properties": {"keep": {"const": True}, "message": {"type": "string"}},
                    },
                ]
            },
        },
    )

    message: str | None = Field(
        default=None,
        pattern=r"\S",
        description="Not only white space. Absent: the last user message is answered again; what "
        "follows it stays until another answer comes.",
    )
    attachments: Attachments = []
    keep: StrictBool = Field(
        default=False,
        description="Only without `message`: what is replaced is kept as a variant.",
    )
    think: StrictBool | Literal["low", "medium", "high", "max"] | None = Field(
        default=None,
        description="Let the model think first. Absent or null: as the preset says; else false.",
    )
    options: OptionsOfTurn = None
    response_format: AnswerFormat = None
    confirmations: Literal["wait", "deny"] | None = Field(
        default=None,
        description="Whether calls that a person must confirm are waited for, or denied at once. "
        "Absent: a stream waits, a reply in one piece denies.",
    )
    on_disconnect: OnDisconnect = None
    when_busy: WhenBusyField = "refuse"

    @model_validator(mode="after")
    def _attached_to_a_message(self) -> ChatRequest:
        if self.attachments and self.message is None:
            raise ValueError("attachments need a message: the last one keeps its own")
        if self.keep and self.message is not None:
            raise ValueError("keep is for answering the last message again, without a new one")
        return self


class UsedWindow(ResponseModel):
    """The context window that an answer was made with."""

    current_window: int | None = Field(
        description="Tokens; null when it is not known.", examples=[8192]
    )
    usage_tokens: int = Field(description="Tokens of prompt and reply together.", examples=[165])
    reason: str = Field(description="Why it is so large.", examples=["initial_setup"])
    dropped_messages: int = Field(
        description="Messages that did not fit and were not sent.", examples=[0]
    )
    summarised_messages: int = Field(
        description="Messages in whose place a summary was sent.", examples=[0]
    )
    shortened_results: int = Field(
        description="Old results of tools that were sent without their middle.", examples=[0]
    )
    tool_tokens: int = Field(
        description="Tokens of the tools that were offered last, estimated.", examples=[0]
    )


class ExecutedToolCall(ResponseModel):
    """A call of the turn, and what became of it."""

    tool_name: str
    arguments: dict[str, Any] = Field(description="What ran: as the model or a person has them.")
    call_index: int = Field(description="Position in the model's reply, from 0.")
    tool_call_id: str
    success: bool
    result: str | None
    error_message: str | None
    code: str | None = Field(default=None, description="Only where the failure has a name.")
    confirmation_id: str | None = Field(default=None, description="Only if a person was asked.")
    approved: bool | None = Field(default=None, description="Only if a person was asked.")
    edited: bool | None = Field(default=None, description="Only if a person was asked.")
    agent_events: list[dict[str, Any]] = Field(
        default=[], description="Only of the tool `agent`: what it did, a `ChatEvent` each."
    )


class ChatReply(ResponseModel):
    """The whole answer."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "session_id": "a1b2c3d4e5",
                "message": {
                    "role": "assistant",
                    "content": "The capital of France is Paris.",
                    "model": "qwen3:14b",
                    "message_id": "f1e2d3c4b5",
                    "timestamp": "2026-01-15T10:35:00.000000Z",
                    "eval_count": 45,
                    "prompt_eval_count": 120,
                },
                "tool_calls_executed": [],
                "context_window": USED_WINDOW,
                "finish_reason": "stop",
            }
        }
    )

    session_id: SessionId
    message: AssistantMessage
    tool_calls_executed: list[ExecutedToolCall]
    context_window: UsedWindow
    finish_reason: str | None = Field(description="`stop`, `length`, … as the provider says it.")
    tool_rounds_exhausted: bool = Field(
        default=False, description="Only when true: the limit of tool rounds forced this answer."
    )
    ignored_options: IgnoredOptions = Field(default=[])


class _OfConfirmation(BaseModel):
    confirmation_id: str = Field(description="As the event, or the list, has it.")


class ConfirmRequest(DecisionBody, _OfConfirmation):  # the id comes first
    """A decision about a call."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"confirmation_id": "conf_0123456789abcdef", "approved": True}
        },
    )


class ConfirmationList(ResponseModel):
    """Every call of the session that waits for a decision, oldest first."""

    confirmations: list[OpenConfirmation]


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
