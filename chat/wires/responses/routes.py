"""``/v1/responses`` and ``/v1/conversations``."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from ninja import Query

from mochi_project.runtime import get_runtime
from mochi_server.chat.completions import NEW_SESSION, CompletionRequest
from mochi_server.chat.control import StartedRun
from mochi_server.chat.responses import ResponseId, ResponseService
from mochi_server.chat.runs.log import LogReader
from mochi_server.core.ids import new_run_id
from mochi_server.errors import InvalidRequest, JSONObject
from mochi_server.protocol.events import ConfirmationRequired
from mochi_server.protocol.messages import SystemMessage
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.services.history import objects
from mochi_server.sessions import ChatSession

from ..common.answers import WireStreamResponse, headers_of
from ..common.api import WireAPI, continues, format_of, options_of, session_of
from ..common.approvals import join
from ..common.body import read_body
from ..common.schemas import THINK
from ..common.tools import calls_of_choice, offered
from .compaction import compaction_item, user_items
from .conversations import Limit, Order, default_model, page_of, session_of_conversation, shown
from .encoder import ResponseEncoder, events_until
from .history import read_items
from .items import decision_item, input_items, said_by_user
from .resource import record_of, response_of, usage_of
from .schemas import (
    CompactRequest,
    InputApproval,
    InputItem,
    InputReference,
    InputTokensRequest,
    ResponseQuestion,
    ResponseRequest,
)
from .stored import decision_before, first_asked, response_as_stored

api = WireAPI("responses")

_APPROVAL = re.compile(r"mcpr_(?P<confirmation>conf_[0-9a-f]+)_(?P<event>\d{1,18})")


def _service() -> ResponseService:
    return get_runtime().responses


@api.post("/responses")
async def create_response(request: HttpRequest) -> HttpResponseBase:
    """Answer, in one piece, as a stream, or in the background."""
    payload = await read_body(request, ResponseRequest)
    items = payload.items
    last = items[-1] if items else None
    named = _session_of(request, payload)
    if isinstance(last, InputApproval):  # earlier ones are of a history that is sent whole
        started, response_id, record = await _decide(payload, last, named)
    else:
        record = record_of(payload)
        started, response_id = await _start(payload, items, record, named)
    response = response_of(record, response_id, store=payload.store)
    encoder = ResponseEncoder(
        response,
        started.reader,
        response_id,
        asks=started.is_kept,
        is_whole=not payload.stream,
    )
    if payload.stream:
        return WireStreamResponse(started, encoder, request.path_info)
    if payload.background:
        started.reader.leave(abandon=False)
        response["status"] = "queued" if started.state == "queued" else "in_progress"
        return JsonResponse(response, headers=headers_of(started))
    await _read_all(started.reader, encoder)
    dropped = response["mochi"].get("dropped_messages", 0)
    return JsonResponse(response, headers=headers_of(started, dropped))


@api.post("/responses/input_tokens")
async def count_input_tokens(request: HttpRequest) -> HttpResponseBase:
    """Estimate the tokens of a request, with those of the session that it continues."""
    payload = await read_body(request, InputTokensRequest)
    asked, session = await _read_unasked(request, payload, payload.items)
    tokens = await get_runtime().completions.count_tokens(asked, session)
    return JsonResponse({"object": "response.input_tokens", "input_tokens": tokens})


@api.post("/responses/compact")
async def compact(request: HttpRequest) -> HttpResponseBase:
    """Return what the user has said, and an item in the place of the whole conversation."""
    payload = await read_body(request, CompactRequest)
    items = payload.items
    asked, session = await _read_unasked(request, payload, items)
    stored = () if session is None else objects(session.stored_messages())
    completions = get_runtime().completions
    summary, waiting = await completions.compact(asked, session)
    tokens = await completions.count_tokens(asked, session)
    return JsonResponse(
        {
            "id": f"resp_{new_run_id().removeprefix('run_')}",
            "object": "response.compaction",
            "created_at": int(time.time()),
            "model": payload.model,
            "output": [
                *(*said_by_user([*stored]), *user_items(items), compaction_item(summary)),
                *(item for _, item in input_items(waiting)),
            ],
            "usage": usage_of(tokens, summary.tokens),
        }
    )


async def _read_unasked(
    request: HttpRequest, payload: ResponseQuestion, items: Sequence[InputItem]
) -> tuple[CompletionRequest, ChatSession | None]:
    """Read a request that asks no model, and the session that it continues, as far as it does.

    Its model is that of the session, else the first one that there is.

    Raises:
        RunNotFound: the response that it names is not there.
    """
    session_id, session = _session_of(request, payload), None
    if (follows := _followed(payload, items, session_id)) is not None:
        session = await _service().history(follows)
    elif session_id not in (None, NEW_SESSION):
        session = await get_runtime().sessions.get(str(session_id))
    if payload.model is None:
        payload.model = await default_model() if session is None else session.metadata.model
    return await _read(payload, items, session_id), session


async def _read_all(reader: LogReader, encoder: ResponseEncoder) -> None:
    """Read a run until its response has ended.

    Raises:
        MochiError: it failed before it had said anything.
    """
    try:
        while (batch := await reader.next()) is not None:
            encoder(batch)
    finally:
        reader.leave()
    if reader.failure is not None and not encoder.fold.parts:
        raise reader.failure


async def _start(
    payload: ResponseRequest, items: Sequence[InputItem], record: JSONObject, session_id: str | None
) -> tuple[StartedRun, ResponseId]:
    is_kept = payload.store or session_id is not None
    follows = _followed(payload, items, session_id)
    asked = await _read(payload, items, session_id)
    goes_on = payload.background or continues(is_kept=is_kept)
    asked = replace(asked, turn=replace(asked.turn, continues=goes_on))
    return await _service().start(asked, record, previous=follows, stored=payload.store)


async def _read(
    payload: ResponseQuestion, items: Sequence[InputItem], session_id: str | None
) -> CompletionRequest:
    messages, files = await read_items(items, get_runtime().attachment_reader)
    if payload.instructions is not None:
        messages.insert(0, SystemMessage(content=payload.instructions))
    client_tools, tools = offered(payload.usable_tools)
    allowed, must_call = calls_of_choice(payload.tool_choice)
    return CompletionRequest(
        messages=messages,
        turn=TurnRequest(
            model=payload.model or "",
            attachments=files,
            options=options_of(payload.options),
            think=THINK[payload.reasoning.effort if payload.reasoning else None],
            response_format=format_of(payload.text.response_format, "text")
            if payload.text
            else None,
            client_tools=client_tools,
            must_call=must_call,
            selected=tools,
            allowed=allowed,
            thinks_unasked=True,
        ),
        session_id=session_id,
    )


def _followed(
    payload: ResponseQuestion, items: Sequence[InputItem], session_id: str | None
) -> ResponseId | None:
    """Return the response after which a request comes; None: it names none.

    Raises:
        InvalidRequest: it names another session as well.
        RunNotFound: it is the id of no response.
    """
    previous = payload.previous_response_id
    references = [item.id for item in items if isinstance(item, InputReference)]
    if references and previous is None and session_id is None:  # its session has what is before
        previous = ResponseId.of_item(references[-1])
    if previous is None:
        return None
    follows = ResponseId.read(previous)
    _check_same(session_id, follows.session_id)
    return follows


def _session_of(request: HttpRequest, payload: ResponseQuestion) -> str | None:
    """Return the session that the request names: as on all wires, or as a conversation.

    Raises:
        InvalidRequest: it names two.
    """
    session_id, conversation = session_of(request, payload.metadata), payload.conversation
    if conversation is None:
        return session_id
    if payload.previous_response_id is not None:
        raise InvalidRequest("Name previous_response_id or conversation, not both.")
    named = conversation if isinstance(conversation, str) else conversation.id
    _check_same(session_id, session_of_conversation(named))
    return session_of_conversation(named)


def _check_same(named: str | None, continued: str | None) -> None:
    """Refuse a request that names another session than that of the answer that it continues."""
    if named is not None and named != continued:
        text = f"The request names the session {named!r}, and continues another one."
        raise InvalidRequest(text, details={"session_id": named})


async def _decide(
    payload: ResponseRequest, approval: InputApproval, session_id: str | None
) -> tuple[StartedRun, ResponseId, JSONObject]:
    """Decide about a call that a response has asked about; go on with its run."""
    runtime = get_runtime()
    found = _APPROVAL.fullmatch(approval.approval_request_id)
    if found is None:
        raise InvalidRequest("There is no such approval_request_id.")
    if payload.previous_response_id is not None:
        asked = ResponseId.read(payload.previous_response_id)
    elif (pending := await runtime.inbox.find(found["confirmation"])) is not None:
        asked = ResponseId(pending.confirmation.run_id, pending.confirmation.session_id)
    else:
        raise InvalidRequest("There is no such approval_request_id.")
    _check_same(session_id, asked.session_id)
    stored = await _service().find(asked)
    question = await first_asked(asked.run_id, ConfirmationRequired, found["confirmation"])
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
    started = StartedRun(asked.run_id, asked.session_id or "", "running", reader, model)
    return started, ResponseId(asked.run_id, asked.session_id, after), dict(stored.record)


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
        return JsonResponse(await response_as_stored(stored, found_id))
    response = response_of(stored.record, found_id)
    begin = await _first_event(found_id) + events_until(starting_after)
    reader = await join(found_id.run_id, begin - 1)
    encoder = ResponseEncoder(response, reader, found_id, after=starting_after, begin=begin)
    session_id = found_id.session_id or ""
    started = StartedRun(found_id.run_id, session_id, "running", reader, response["model"])
    return WireStreamResponse(started, encoder, request.path_info)


async def _first_event(response_id: ResponseId) -> int:
    """Return the number of the first event of a response."""
    reader = await join(response_id.run_id, response_id.part)
    try:
        batch = await reader.next()
    finally:
        reader.leave(abandon=False)
    return batch[0][0] if batch else response_id.part + 1


@api.post("/responses/{response_id}/cancel")
async def cancel_response(request: HttpRequest, response_id: str) -> HttpResponseBase:
    """Stop the run of a response; what it has said is kept."""
    found_id = ResponseId.read(response_id)
    await _service().find(found_id)
    await get_runtime().run_control.stop(found_id.run_id)
    return JsonResponse(await response_as_stored(await _service().find(found_id), found_id))


@api.delete("/responses/{response_id}")
async def delete_response(request: HttpRequest, response_id: str) -> HttpResponseBase:
    """Delete a response and its session, which has nothing else."""
    await _service().delete(ResponseId.read(response_id))
    return JsonResponse({"id": response_id, "object": "response", "deleted": True})


@api.get("/responses/{response_id}/input_items")
async def list_input_items(
    request: HttpRequest,
    response_id: str,
    order: Order = "desc",
    limit: Limit = 20,
    after: str | None = None,
) -> HttpResponseBase:
    """List the items of the request."""
    found_id = ResponseId.read(response_id)
    stored = await _service().find(found_id)
    if found_id.part:
        decision = await decision_before(found_id)
        decided = [] if decision is None else [decision_item(decision, found_id.part)]
        return page_of(decided, order, limit, after)
    placed = input_items(stored.input, stored.record.get("instructions"))
    items = await shown(request, found_id.session_id or "", stored.input, placed)
    return page_of(items, order, limit, after)
