"""``/chat/{session_id}``: decide about the tool calls that a person must confirm."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from chat.schemas.confirmations import ConfirmationList, Confirmed, ConfirmRequest
from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import SessionId
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    JSONObject,
    SessionNotFound,
    StorageError,
    ToolConfirmationTimeout,
)

router = Router()


@router.post(
    "/{session_id}/confirm-tool",
    response=Confirmed,
    summary="Allow or deny a tool call",
    openapi_extra=documented(
        ConfirmationNotFound, ToolConfirmationTimeout, ConfirmationUnavailable
    ),
)
async def confirm_tool(
    request: HttpRequest, session_id: SessionId, payload: ConfirmRequest
) -> JSONObject:
    """The first decision counts, at whichever process it arrives.

    Arguments that do not fit the tool are refused with 422, and the confirmation stays open.
    """
    return await get_runtime().chat.confirm(
        session_id,
        payload.confirmation_id,
        approved=payload.approved,
        reason=payload.reason,
        arguments=payload.arguments,
    )


@router.get(
    "/{session_id}/confirmations",
    response=ConfirmationList,
    exclude_unset=True,
    summary="List the tool calls that wait for a decision",
    openapi_extra=documented(SessionNotFound, ConfirmationUnavailable, StorageError),
)
async def list_confirmations(request: HttpRequest, session_id: SessionId) -> dict[str, Any]:
    """Oldest first; whichever process runs the turn that asks."""
    runtime = get_runtime()
    # A session that is not there is an error; one without confirmations is not.
    await runtime.sessions.check_exists(session_id)
    return {"confirmations": await runtime.chat.confirmations(session_id)}
