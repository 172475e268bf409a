"""Responses as they are now, of what is stored and of runs that go on."""

from __future__ import annotations

from typing import Any, TypeVar

import anyio

from mochi_project.runtime import get_runtime
from mochi_server.chat.confirmations.inbox import ConfirmationFilter
from mochi_server.chat.responses import ResponseId, StoredResponse
from mochi_server.chat.runs.status import RunStatus
from mochi_server.errors import JSONObject, RunNotFound
from mochi_server.protocol.events import ConfirmationDecided, ConfirmationRequired

from ..common.approvals import join
from ..openai.errors import code_of
from .items import approval_item, output_items, seconds_of, wants_summary
from .resource import response_of, usage_of

QUESTION_SECONDS = 5.0
"""Longest wait for the event of a confirmation, which is in the run before it can be decided."""

_Asks = TypeVar("_Asks", ConfirmationRequired, ConfirmationDecided)

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


async def decision_before(response_id: ResponseId) -> ConfirmationDecided | None:
    """Return the decision after which a part of a run begins."""
    run_id, after = response_id.run_id, response_id.part - 1
    asked = await first_asked(run_id, ConfirmationRequired, after=after)
    if asked is None:
        return None
    decided = await first_asked(run_id, ConfirmationDecided, asked[1].confirmation_id, after=after)
    return decided[1] if decided is not None else None


async def first_asked(
    run_id: str, kind: type[_Asks], confirmation_id: str | None = None, *, after: int = 0
) -> tuple[int, _Asks] | None:
    """Return the first such event of a run, with its number; the run may say it only now."""
    reader = await join(run_id, after)
    try:
        with anyio.move_on_after(QUESTION_SECONDS):
            while (batch := await reader.next()) is not None:
                for number, event in batch:
                    if isinstance(event, kind) and event.confirmation_id == (
                        confirmation_id or event.confirmation_id
                    ):
                        return number, event
    finally:
        reader.leave(abandon=False)
    return None


async def response_as_stored(stored: StoredResponse, response_id: ResponseId) -> dict[str, Any]:
    response = response_of(stored.record, response_id)
    status = await _status_of(response_id.run_id)
    response["status"] = _status(stored) if status is None else STATUS[status.state]
    if response["status"] == "failed":
        code = (status.code if status is not None else None) or "PROVIDER_ERROR"
        response["error"] = {"code": code_of(code), "message": f"The run failed: {code}."}
    is_ended = response["status"] not in {"queued", "in_progress"}
    response["output"] = output_items(
        stored.output,
        response_id,
        _functions(stored),
        as_summary=wants_summary(stored.record),
        is_ended=is_ended,
    )
    pending = []
    if not is_ended:
        chosen = ConfirmationFilter(session_id=response_id.session_id)
        pending = await get_runtime().inbox.pending(chosen)
    for each in pending:
        if question := await first_asked(
            response_id.run_id, ConfirmationRequired, each.confirmation_id
        ):
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
        return await get_runtime().run_control.find(run_id)
    except RunNotFound:
        return None


def _status(stored: StoredResponse) -> str:
    """Return the status of a response whose run has ended too long ago."""
    if not stored.output:
        return "failed"
    return "incomplete" if stored.output[-1].get("interrupted") else "completed"
