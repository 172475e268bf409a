"""Server-sent events in the OpenAPI document: what each kind carries, and whole streams to see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import orjson
from pydantic import TypeAdapter

from mochi_server.errors import JSONObject
from mochi_server.events import Event

from .schemas import EVENTS


def frames(*events: tuple[str, JSONObject]) -> str:
    """Some events, as they are on the wire."""
    lines = ["retry: 3000", ""]
    for number, (name, data) in enumerate(events, start=1):
        lines += [f"id: {number}", f"event: {name}", f"data: {orjson.dumps(data).decode()}", ""]
    return "\n".join(lines) + "\n"


def event_stream(
    description: str, events: Mapping[str, Mapping[str, Any]], examples: Mapping[str, str]
) -> dict[str, Any]:
    """``content`` of an answer that is a stream.

    Args:
        description: of the stream; that there are comments is told here.
        events: the JSON Schema of the data of each kind.
        examples: whole streams by name.
    """
    schema = {  # of each event: so are streams described before OpenAPI 3.2
        "type": "object",
        "description": f"One of the server-sent events. {description} Comments (`: ping`) in "
        "silence.",
        "required": ["id", "event", "data"],
        "properties": {"id": {"type": "string", "description": "Grows within the stream."}},
        "oneOf": [_event(name, data) for name, data in events.items()],
    }
    return {
        "text/event-stream": {
            "schema": schema,
            "examples": {name: {"value": text} for name, text in examples.items()},
        }
    }


def _event(name: str, data: Mapping[str, Any]) -> JSONObject:
    return {
        "title": name,
        "properties": {
            "event": {"const": name},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": dict(data),
            },
        },
    }


@cache
def data_of(kind: type[Event]) -> dict[str, Any]:
    """The JSON Schema of an event's data: its fields, and what its payload says beside them."""
    fields = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    example = EVENTS[kind.type]
    known = {
        name: field
        for name, field in fields["properties"].items()
        if name in example or "default" in field
    }
    fixed = {name: {"const": value} for name, value in example.items() if name not in known}
    return {"type": "object", "required": list(example), "properties": {**known, **fixed}}


def _of(*names: str) -> str:
    return frames(*((name, EVENTS[name]) for name in names))


_END = ("content_delta", "message_complete", "done")
_AFTER_TOOLS = ("tool_result", "tool_continuation_start", *_END)


@cache
def stream() -> dict[str, Any]:
    """What ``/chat/{session_id}/stream`` answers; made with the document, which few ask for."""
    return event_stream(
        "Exactly one `done`, always last, also after `error`.",
        {kind.type: data_of(kind) for kind in get_args(Event)},
        {
            "reply": _of(*_END),
            "thinking": _of("thinking_delta", *_END),
            "tools": _of("tool_call", *_AFTER_TOOLS),
            "confirmation": _of(
                "tool_call_confirmation_required", "tool_call_confirmation_decided", *_AFTER_TOOLS
            ),
            "agents": _of(
                "tool_call",
                "agent_start",
                "agent_planning",
                "agent_tool_call",
                "agent_tool_result",
                "agent_execution",
                "agent_complete",
                *_AFTER_TOOLS,
            ),
            "failure": _of("content_delta", "error", "done"),
        },
    )
