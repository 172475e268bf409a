"""``POST /api/v1/agui``."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest
from mochi_server.chat.runs.control import StartedRun
from mochi_server.errors import InvalidRequest

from ..common.answers import WireStreamResponse
from ..common.api import WireAPI, session_of
from ..common.approvals import ApprovalId, asked, decide
from ..common.body import read_body
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
    else:
        started = await _start(payload, session_id)
        session_id = started.kept_session_id
    encoder = EventEncoder(started, session_id, payload, answered)
    return WireStreamResponse(started, encoder, request.path_info, session_id)


async def _start(payload: RunAgentInput, session_id: str | None) -> StartedRun:
    runtime, props = get_runtime(), payload.forwarded_props
    if props.model is None:
        raise InvalidRequest("forwardedProps.model must name a model.")
    messages, files = await read_history(payload, runtime.attachment_reader)
    return await runtime.completions.start(
        CompletionRequest(
            model=props.model,
            messages=messages,
            tells_all_calls=True,
            attachments=files,
            options=props.options,
            think=props.think,
            response_format=props.response_format,
            client_tools=[tool.schema_for_model() for tool in payload.tools],
            tools=props.tools,
            session_id=session_id,
            continues=session_id is not None and runtime.settings.on_disconnect == "continue",
        )
    )


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
