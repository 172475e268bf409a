"""``/chat/{session_id}``: decide about the tool calls that a person must confirm."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat.schemas.confirmations import (
    DECIDED,
    DECISION,
    OPEN,
    ConfirmationList,
    Confirmed,
    ConfirmRequest,
)
from mochi_project.openapi import documented
from mochi_project.responses import json_response
from mochi_project.runtime import get_runtime
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    SessionNotFound,
    StorageError,
    ToolConfirmationTimeout,
)

router = Router()

ONE = {"session_id": "a1b2c3d4e5"}


@router.post(
    "/{session_id}/confirm-tool",
    response=Confirmed,
    summary="Allow or deny a tool call",
    openapi_extra=documented(
        ConfirmationNotFound,
        ToolConfirmationTimeout,
        ConfirmationUnavailable,
        example=DECIDED,
        body=DECISION,
        parameters=ONE,
    ),
)
async def confirm_tool(
    request: HttpRequest, session_id: str, payload: ConfirmRequest
) -> HttpResponse:
    """The first decision counts, at whichever process it arrives.

    Arguments that do not fit the tool are refused with 422, and the question stays open.
    """
    answer = await get_runtime().chat.confirm(
        session_id,
        payload.confirmation_id,
        approved=payload.approved,
        reason=payload.reason,
        arguments=payload.arguments,
    )
    return json_response(answer)


@router.get(
    "/{session_id}/confirmations",
    response=ConfirmationList,
    summary="List the tool calls that wait for a decision",
    openapi_extra=documented(
        SessionNotFound,
        ConfirmationUnavailable,
        StorageError,
        example={"confirmations": [OPEN]},
        parameters=ONE,
    ),
)
async def list_confirmations(request: HttpRequest, session_id: str) -> HttpResponse:
    """Oldest first; whichever process runs the turn that asks."""
    runtime = get_runtime()
    await runtime.sessions.check_exists(session_id)  # no session is not the same as no question
    return json_response({"confirmations": await runtime.chat.confirmations(session_id)})
