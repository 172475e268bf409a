"""The object of a response, and what is kept of its request."""

from __future__ import annotations

import time
from typing import Any

from mochi_server.chat.responses import ResponseId
from mochi_server.errors import JSONObject

from .conversations import CONVERSATION
from .schemas import OtherTool, ResponseRequest, ignored_items

_ECHOED = (
    "model",
    "instructions",
    "previous_response_id",
    "background",
    "max_output_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "prompt_cache_key",
    "safety_identifier",
)
"""Fields of a request that its response repeats as they are."""

_DEFAULTS: JSONObject = {
    "instructions": None,
    "previous_response_id": None,
    "background": False,
    "max_output_tokens": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "metadata": {},
}
"""What a response says where its request said nothing; clients refuse one without numbers."""


def record_of(payload: ResponseRequest) -> JSONObject:
    """Return what is kept of a request beside its messages."""
    tools = payload.tools or ()
    record: JSONObject = {name: getattr(payload, name) for name in _ECHOED}
    record |= {
        "created_at": int(time.time()),
        "metadata": dict(payload.metadata or {}),
        "tools": [tool.model_dump(mode="json") for tool in payload.usable_tools],
        "ignored_items": [*ignored_items(payload.items)],
        "ignored_tools": [tool.name or tool.type for tool in tools if isinstance(tool, OtherTool)],
        "format": None if payload.text is None else payload.text.format,
    }
    if payload.tool_choice is not None:
        chosen = payload.tool_choice
        record["tool_choice"] = (
            chosen if isinstance(chosen, str) else chosen.model_dump(mode="json")
        )
    if not payload.parallel_tool_calls:
        record["parallel_tool_calls"] = False
    if payload.reasoning is not None:
        record["effort"] = payload.reasoning.effort
        record["summary"] = payload.reasoning.summary
    empty: tuple[object, ...] = (None, {}, [])
    return {key: value for key, value in record.items() if value not in empty}


def response_of(
    record: JSONObject, response_id: ResponseId, *, store: bool = True
) -> dict[str, Any]:
    """Return a response without output."""
    session_id = response_id.session_id
    mochi: JSONObject = {"run_id": response_id.run_id}
    if session_id is not None:
        mochi["session_id"] = session_id
    for name in ("ignored_tools", "ignored_items"):
        if ignored := record.get(name):
            mochi[name] = ignored
    return {
        "id": str(response_id),
        "object": "response",
        "created_at": record.get("created_at"),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "max_tool_calls": None,
        "output": [],
        "conversation": None if session_id is None else {"id": f"{CONVERSATION}{session_id}"},
        "reasoning": {"effort": record.get("effort"), "summary": record.get("summary")},
        "service_tier": "default",
        "store": store,
        "text": {"format": _format(record.get("format"))},
        "top_logprobs": 0,
        "truncation": "auto",
        "usage": None,
        "user": None,
        "model": record.get("model"),
        **{name: record.get(name, default) for name, default in _DEFAULTS.items()},
        "mochi": mochi,
    }


def _format(asked: object) -> JSONObject:
    """Return the form of the answer, with all fields that it has at the vendor's."""
    if not isinstance(asked, dict):
        return {"type": "text"}
    if asked.get("type") != "json_schema":
        return asked
    return {"description": None, "strict": False, **asked}


def usage_of(prompt: int, generated: int) -> dict[str, Any]:
    """Return the tokens of the prompt and of the last reply as the vendor has them."""
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": generated,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + generated,
    }
