"""``POST /api/v1/agui``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.control import StartedRun
from mochi_server.errors import InvalidRequest

from ..common.answers import WireStreamResponse
from ..common.api import WireAPI, session_of
from ..common.approvals import ApprovalId, asked, decide
from ..common.body import read_body
from ..common.interfaces import start_run
from ..common.tools import offered
from .encoder import EventEncoder
from .history import read_history
from .schemas import ResumeEntry, RunAgentInput

api = WireAPI("agui")

CANCELLED = "The user has not answered."


@api.post("/agui")
async def run_agent(request: HttpRequest) -> HttpResponseBase:
    """Answer a conversation, or go on with a run that has asked."""
    payload = await read_body(request, RunAgentInput)
    session_id = session_of(request, {"session_id": payload.forwarded_props.session_id})
    answered: ApprovalId | None = None
    if payload.resume:
        if len(payload.resume) > 1:
            raise InvalidRequest("A run has one interrupt: resume must have one entry.")
        answered = ApprovalId.read(payload.resume[0].interrupt_id)
        started = await _resume(answered, payload.resume[0])
        started = replace(started, is_kept=session_id is not None)
    else:
        started = await _start(payload, session_id)
    encoder = EventEncoder(started, payload, answered)
    return WireStreamResponse(started, encoder, request.path_info)


async def _start(payload: RunAgentInput, session_id: str | None) -> StartedRun:
    props = payload.forwarded_props
    history = await read_history(payload, get_runtime().attachment_reader)
    client_tools, tools = offered(payload.tools)
    if props.tools is not None:
        tools = [*props.tools, *(tools or ())]
    return await start_run(props, history, session_id, client_tools=client_tools, tools=tools)


async def _resume(approval: ApprovalId, entry: ResumeEntry) -> StartedRun:
    if entry.status == "cancelled":
        return await decide(approval, approved=False, reason=CANCELLED)
    stored = await asked(approval)
    payload: dict[str, Any] = entry.payload or {}
    if stored is not None and stored.confirmation.elicitation is not None:
        return await decide(approval, approved=True, arguments=payload)
    approved, arguments = payload.get("approved"), payload.get("editedArgs")
    reason = payload.get("reason")
    if not isinstance(approved, bool):
        raise InvalidRequest("The payload of an answer must have approved, true or false.")
    if not isinstance(arguments, dict | None) or not isinstance(reason, str | None):
        raise InvalidRequest("editedArgs must be an object, and reason a text.")
    return await decide(approval, approved=approved, reason=reason, arguments=arguments)
