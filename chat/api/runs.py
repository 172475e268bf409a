"""``/runs``: runs of all sessions, their events, and how to stop one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from mochi_project.openapi import STORE_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, RunId, SessionId, SessionModel, Timestamp
from mochi_server import errors
from mochi_server.chat.journal.records import RunState
from mochi_server.errors import JSONObject
from mochi_server.protocol.messages import AssistantMessage

from ..streaming import EventStreamResponse
from .events import stream

router = Router()

After = Annotated[
    int, Query(ge=0, description="Number of the last event that the reader has.", example=0)
]

_DIGITS = 18
"""Most digits of the number of an event."""


def position_of(request: HttpRequest, after: int) -> int:
    """Return the number of the reader's last event; ``Last-Event-ID`` counts before ``after``."""
    last = request.headers.get("Last-Event-ID", "")
    return int(last) if last.isdecimal() and len(last) <= _DIGITS else after


class RunEntry(ResponseModel):
    """A run in the list."""

    run_id: RunId
    session_id: SessionId
    state: RunState = Field(examples=["running"])
    started_at: Timestamp


class RunList(ResponseModel):
    """The runs, the latest first; those that wait for others at the end."""

    runs: list[RunEntry]


class AcceptedRun(ResponseModel):
    """A run that has begun, or that waits for another one."""

    run_id: RunId
    session_id: SessionId
    state: Literal["running", "queued"] = Field(examples=["running"])


class StoppedRun(ResponseModel):
    """A run that has ended."""

    run_id: RunId
    session_id: SessionId
    state: RunState = Field(
        description="`stopped`, or how it had ended before.", examples=["stopped"]
    )
    message: AssistantMessage | None = Field(
        description="The last message of the model that the run has stored, as the session has "
        "it; null if there is none."
    )


class RunDetail(RunEntry):
    """How far a run has come."""

    model: SessionModel
    position: int = Field(description="Number of its last event.", examples=[42])
    tokens: int = Field(
        description="Pieces of text and thinking so far, about one for each token.", examples=[37]
    )
    code: str | None = Field(description="Code of the error that ended it.", examples=[None])
    message_id: str | None = Field(
        description="The last message of the model that it has stored, once it has ended.",
        examples=["f1e2d3c4b5"],
    )
    confirmations: list[dict[str, Any]] = Field(
        description="Calls that wait for a decision, as `/chat/{session_id}/confirmations` has "
        "them.",
        examples=[[]],
    )


@router.get(
    "",
    response=RunList,
    exclude_unset=True,
    summary="List the runs",
    openapi_extra=documented(errors.InvalidRequest, *STORE_ERRORS, errors.StorageError),
)
async def list_runs(
    request: HttpRequest,
    *,
    session_id: Annotated[str | None, Query(description="Runs of this session.")] = None,
    state: Annotated[RunState | None, Query(description="Runs in this state.")] = None,
) -> dict[str, Any]:
    """Lists the runs of all server processes, as long as they can be read."""
    return {"runs": await get_runtime().run_control.list(session_id=session_id, state=state)}


@router.get(
    "/{run_id}",
    response=RunDetail,
    exclude_unset=True,
    summary="Read how far a run has come",
    openapi_extra=documented(errors.RunNotFound, *STORE_ERRORS, errors.StorageError),
)
async def read_run(request: HttpRequest, run_id: RunId) -> JSONObject:
    """Works in every server process."""
    return await get_runtime().run_control.status(run_id)


@router.get(
    "/{run_id}/events",
    response={200: None, 204: None},
    summary="Read a run as server-sent events",
    openapi_extra=documented(
        errors.RunNotFound, errors.InvalidRequest, errors.StorageError, stream=stream
    ),
)
async def read_events(
    request: HttpRequest, run_id: RunId, after: After = 0
) -> EventStreamResponse | HttpResponse:
    """Reads from its first event, or after the reader's last one: `Last-Event-ID`, else `after`.

    204 if the run has ended and nothing follows, so that an `EventSource` does not come again.
    """
    reader = await get_runtime().run_control.join(run_id, position_of(request, after))
    return (
        HttpResponse(status=204) if reader is None else EventStreamResponse(reader, run_id=run_id)
    )


@router.post(
    "/{run_id}/stop",
    response=StoppedRun,
    exclude_unset=True,
    summary="Stop a run",
    openapi_extra=documented(
        errors.RunNotFound, errors.SessionBusy, *STORE_ERRORS, errors.StorageError
    ),
)
async def stop_run(request: HttpRequest, run_id: RunId) -> JSONObject:
    """Works in every server process. What the model has said is stored; readers get `done`.

    Stopping it again answers the same.
    """
    return await get_runtime().run_control.stop(run_id)
