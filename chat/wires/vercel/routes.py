"""``POST /api/v1/ui/chat``."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import NEW_SESSION
from mochi_server.chat.control import StartedRun
from mochi_server.errors import InvalidRequest

from ..common.answers import WireStreamResponse
from ..common.api import WireAPI, session_of
from ..common.approvals import ApprovalId, decide
from ..common.body import read_body
from ..common.interfaces import start_run
from ..common.tools import offered
from .encoder import UIChunkEncoder
from .history import read_history
from .schemas import UIApproval, UIChatRequest, UIMessage, UIToolPart

api = WireAPI("vercel")

PROTOCOL = "x-vercel-ai-ui-message-stream"
"""Header with the version of the stream."""


@api.post("/ui/chat")
async def chat(request: HttpRequest) -> HttpResponseBase:
    """Answer a conversation, or go on with a run that has asked."""
    payload = await read_body(request, UIChatRequest)
    session_id = session_of(request, {"session_id": payload.session_id})
    last = payload.messages[-1]
    answered: ApprovalId | None = None
    if approvals := _approvals(last):
        answered, approval = max(approvals, key=lambda each: each[0].number)
        approved = approval.approved is True
        started = await decide(answered, approved=approved, reason=approval.reason)
        started = replace(started, is_kept=session_id is not None)
    else:
        started = await _start(payload, session_id)
    message_id = last.id if last.role == "assistant" else None
    encoder = UIChunkEncoder(started, message_id, answered)
    response = WireStreamResponse(started, encoder, request.path_info)
    response[PROTOCOL] = "v1"
    return response


def _approvals(message: UIMessage) -> list[tuple[ApprovalId, UIApproval]]:
    """Return the decisions of an answer whose calls have no result yet; the last is the new one."""
    return [
        (ApprovalId.read(part.approval.id), part.approval)
        for part in message.parts
        if isinstance(part, UIToolPart)
        and part.state == "approval-responded"
        and part.approval is not None
    ]


async def _start(payload: UIChatRequest, session_id: str | None) -> StartedRun:
    if payload.trigger == "regenerate-message" and session_id not in (None, NEW_SESSION):
        raise InvalidRequest("An answer of a session is regenerated with its own route.")
    history = await read_history(payload.messages, get_runtime().attachment_reader)
    client_tools, tools = offered(payload.tools)
    return await start_run(payload, history, session_id, client_tools=client_tools, tools=tools)
