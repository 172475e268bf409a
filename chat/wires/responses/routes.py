"""``/v1/responses`` and ``/v1/conversations``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import anyio
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from ninja import Query

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import CompletionRequest
from mochi_server.chat.responses import ResponseId, ResponseService, StoredResponse
from mochi_server.chat.runs.control import StartedRun
from mochi_server.chat.runs.log import LogReader
from mochi_server.chat.runs.status import RunStatus
from mochi_server.core.caller import may_see
from mochi_server.errors import InvalidRequest, JSONObject, RunNotFound
from mochi_server.protocol.events import ConfirmationRequired, ContentDelta, ThinkingDelta
from mochi_server.protocol.messages import SystemMessage

from ..common.answers import WireStreamResponse, headers_of
from ..common.api import WireAPI, format_of, options_of
from ..common.approvals import join
from ..common.body import read_body
from ..common.schemas import THINK
from ..common.tools import offered
from ..openai.errors import code_of
from .conversations import listed, session_of_conversation
from .encoder import ResponseEncoder, events_until
from .items import approval_item, input_items, output_items, read_items
from .resource import record_of, response_of, seconds_of, usage_of
from .schemas import (
    InputApproval,
    InputItem,
    InputMessage,
    InputReference,
    ResponseRequest,
)

api = WireAPI("responses")

_APPROVAL = re.compile(r"mcpr_(?P<confirmation>conf_[0-9a-f]+)_(?P<event>\d{1,18})")

QUESTION_SECONDS = 5.0
"""Longest wait for the event of a confirmation, which is in the run before it can be decided."""

STATUS = {
    "queued": "queued",
    "running": "in_progress",
    "waiting": "in_progress",
    "done": "completed",
    "failed": "failed",
    "stopped": "cancelled",
    "interrupted": "incomplete",
}
"""Statuses of responses by the states of their runs."""


def _service() -> ResponseService:
    return get_runtime().responses


@api.post("/responses")
async def create_response(request: HttpRequest) -> HttpResponseBase:
    """Answer, in one piece, as a stream, or in the background."""
    payload = await read_body(request, ResponseRequest)
    items = (
        [InputMessage(role="user", content=payload.input)]
        if isinstance(payload.input, str)
        else payload.input
    )
    last = items[-1] if items else None
    if isinstance(last, InputApproval):  # earlier ones are of a history that is sent whole
        started, response_id, record = await _decide(payload, last)
    else:
        record = record_of(payload)
        started, response_id = await _start(payload, items, record)
    response = response_of(record, response_id, store=payload.store)
    asks = response_id.session_id is not None
    encoder = ResponseEncoder(response, started.reader, response_id, asks=asks)
    session_id = response_id.session_id
    if payload.stream:
        return WireStreamResponse(started, encoder, request.path_info, session_id)
    if payload.background:
        started.reader.leave(abandon=False)
        response["status"] = "queued" if started.state == "queued" else "in_progress"
    else:
        await _read_all(started.reader, encoder)
    return JsonResponse(response, headers=headers_of(started, session_id))


async def _read_all(reader: LogReader, encoder: ResponseEncoder) -> None:
    """Read a run until its response has ended.

    Raises:
        MochiError: it failed before it had said anything.
    """
    has_text = False
    try:
        while (batch := await reader.next()) is not None:
            has_text = has_text or any(
                isinstance(event, ContentDelta | ThinkingDelta) for _, event in batch
            )
            encoder(batch)
    finally:
        reader.leave()
    if reader.failure is not None and not has_text:
        raise reader.failure


async def _start(
    payload: ResponseRequest, items: Sequence[InputItem], record: JSONObject
) -> tuple[StartedRun, ResponseId]:
    runtime = get_runtime()
    messages, files = await read_items(items, runtime.attachment_reader)
    if payload.instructions is not None:
        messages.insert(0, SystemMessage(content=payload.instructions))
    choice = payload.tool_choice
    client_tools, tools = offered(
        payload.usable_tools,
        none=payload.calls_no_tool,
        only=None if choice is None or isinstance(choice, str) else choice.names,
    )
    asked = CompletionRequest(
        model=payload.model,
        messages=messages,
        attachments=files,
        options=options_of(payload.options),
        think=THINK[payload.reasoning.effort if payload.reasoning else None],
        response_format=format_of(payload.text.response_format, "text") if payload.text else None,
        client_tools=client_tools,
        must_call=payload.must_call_tool,
        tools=tools,
        session_id=_session_of(payload),
        continues=payload.background,
    )
    previous = payload.previous_response_id
    references = [item.id for item in items if isinstance(item, InputReference)]
    if references and previous is None:  # what comes before it is in its session
        previous = ResponseId.of_item(references[-1])
    return await _service().start(
        asked,
        record,
        previous=None if previous is None else ResponseId.read(previous),
        stored=payload.store,
    )


def _session_of(payload: ResponseRequest) -> str | None:
    """Return the session of the conversation that the request names."""
    named = payload.conversation
    if named is None:
        return None
    if payload.previous_response_id is not None:
        raise InvalidRequest("Name previous_response_id or conversation, not both.")
    return session_of_conversation(named if isinstance(named, str) else named.id)


async def _decide(
    payload: ResponseRequest, approval: InputApproval
) -> tuple[StartedRun, ResponseId, JSONObject]:
    """Decide about a call that a response has asked about; go on with its run."""
    runtime = get_runtime()
    found = _APPROVAL.fullmatch(approval.approval_request_id)
    if found is None:
        raise InvalidRequest("There is no such approval_request_id.")
    if payload.previous_response_id is not None:
        asked = ResponseId.read(payload.previous_response_id)
    elif (pending := await runtime.inbox.store.find(found["confirmation"])) is not None and may_see(
        pending.confirmation.owner
    ):
        asked = ResponseId(pending.confirmation.run_id, pending.confirmation.session_id)
    else:
        raise InvalidRequest("There is no such approval_request_id.")
    stored = await _service().find(asked)
    question = await _question(asked, found["confirmation"])
    if question is None or question[0] != int(found["event"]):
        raise InvalidRequest("There is no such approval_request_id.")
    after = question[0]
    reader = await join(asked.run_id, after)
    try:
        await runtime.inbox.decide(
            found["confirmation"],
            approved=approval.approve,
            reason=approval.reason,
            session_id=asked.session_id,
        )
    except BaseException:
        reader.leave(abandon=False)
        raise
    model = str(stored.record.get("model"))
    session_id = asked.session_id or ""
    started = StartedRun(asked.run_id, session_id, "running", reader, model)
    return started, ResponseId(asked.run_id, asked.session_id, after), dict(stored.record)


async def _question(
    response_id: ResponseId, confirmation_id: str
) -> tuple[int, ConfirmationRequired] | None:
    """Return the event by which a response, or its run before, has asked for a decision."""
    reader = await join(response_id.run_id)
    try:
        with anyio.move_on_after(QUESTION_SECONDS):
            while (batch := await reader.next()) is not None:
                for number, event in batch:
                    if (
                        isinstance(event, ConfirmationRequired)
                        and event.confirmation_id == confirmation_id
                    ):
                        return number, event
    finally:
        reader.leave(abandon=False)
    return None


@api.get("/responses/{response_id}")
async def read_response(
    request: HttpRequest,
    response_id: str,
    stream: bool = False,  # noqa: FBT001, FBT002 - of the query
    starting_after: Annotated[int, Query(ge=-1, le=10**15)] = -1,
) -> HttpResponseBase:
    """Return a response as it is now, or its events after one that the client has."""
    found_id = ResponseId.read(response_id)
    stored = await _service().find(found_id)
    if not stream:
        return JsonResponse(await _as_stored(stored, found_id))
    response = response_of(stored.record, found_id)
    begin = await _first_event(found_id) + events_until(starting_after)
    reader = await join(found_id.run_id, begin - 1)
    encoder = ResponseEncoder(response, reader, found_id, after=starting_after, begin=begin)
    session_id = found_id.session_id or ""
    started = StartedRun(found_id.run_id, session_id, "running", reader, response["model"])
    return WireStreamResponse(started, encoder, request.path_info, session_id)


async def _first_event(response_id: ResponseId) -> int:
    """Return the number of the first event of a response."""
    reader = await join(response_id.run_id, response_id.part)
    try:
        batch = await reader.next()
    finally:
        reader.leave(abandon=False)
    return batch[0][0] if batch else response_id.part + 1


async def _as_stored(stored: StoredResponse, response_id: ResponseId) -> dict[str, Any]:
    response = response_of(stored.record, response_id)
    status = await _status_of(response_id.run_id)
    response["status"] = _status(stored) if status is None else STATUS[status.state]
    if response["status"] == "failed":
        code = (status.code if status is not None else None) or "PROVIDER_ERROR"
        response["error"] = {"code": code_of(code), "message": f"The run failed: {code}."}
    is_ended = response["status"] not in {"queued", "in_progress"}
    response["output"] = output_items(
        stored.output, response_id, _functions(stored), is_ended=is_ended
    )
    pending = []
    if not is_ended:
        pending = await get_runtime().confirmations.pending(session_id=response_id.session_id)
    for each in pending:
        if question := await _question(response_id, each.confirmation_id):
            number, event = question
            response["output"].append(approval_item(event, number))
            response["status"] = "completed"  # of what it says; a decision goes on with the run
    if stored.output:
        last = stored.output[-1]
        response["usage"] = usage_of(_count(last, "prompt_eval_count"), _count(last, "eval_count"))
        if response["status"] == "completed" and not pending:
            response["completed_at"] = seconds_of(last.get("timestamp"))
    return response


def _count(message: JSONObject, key: str) -> int:
    value = message.get(key)
    return value if isinstance(value, int) else 0


def _functions(stored: StoredResponse) -> list[str]:
    """Return the names of the functions that the client runs."""
    tools = stored.record.get("tools")
    return [
        str(tool.get("name"))
        for tool in (tools if isinstance(tools, list) else [])
        if isinstance(tool, dict) and tool.get("type") == "function"
    ]


async def _status_of(run_id: str) -> RunStatus | None:
    """Return how far a run has come; None if it has ended too long ago, or is somebody else's."""
    try:
        status = await get_runtime().runs.status(run_id)
    except RunNotFound:
        return None
    return status if may_see(status.owner) else None


def _status(stored: StoredResponse) -> str:
    """Return the status of a response whose run has ended too long ago."""
    if not stored.output:
        return "failed"
    return "incomplete" if stored.output[-1].get("interrupted") else "completed"


@api.post("/responses/{response_id}/cancel")
async def cancel_response(request: HttpRequest, response_id: str) -> HttpResponseBase:
    """Stop the run of a response; what it has said is kept."""
    found_id = ResponseId.read(response_id)
    await _service().find(found_id)
    await get_runtime().run_control.stop(found_id.run_id)
    return JsonResponse(await _as_stored(await _service().find(found_id), found_id))


@api.delete("/responses/{response_id}")
async def delete_response(request: HttpRequest, response_id: str) -> HttpResponseBase:
    """Delete a response and its session, which has nothing else."""
    await _service().delete(ResponseId.read(response_id))
    return JsonResponse({"id": response_id, "object": "response", "deleted": True})


@api.get("/responses/{response_id}/input_items")
async def list_input_items(request: HttpRequest, response_id: str) -> HttpResponseBase:
    """List the items of the request."""
    stored = await _service().find(ResponseId.read(response_id))
    return listed(input_items(stored.input))
