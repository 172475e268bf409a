"""Streams in the OpenAPI document: what each kind of event carries, and whole streams to see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from pydantic import TypeAdapter

from mochi_project.openapi import reference
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import Event

from .chat import EVENTS, EXAMPLES


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
    event = {
        "type": "object",
        "required": ["id", "event", "data"],
        "properties": {"id": {"type": "string", "description": "Grows within the stream."}},
        "oneOf": [_event(name, data) for name, data in events.items()],
    }
    return {
        "text/event-stream": {
            "schema": {
                "type": "string",
                "description": f"Server-sent events. {description} Comments (`: ping`) in silence.",
            },
            "x-itemSchema": event,  # OpenAPI 3.2 calls it itemSchema
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


def schema_name(event: str) -> str:
    """The name of the schema of an event's data: ``ContentDeltaEvent`` of ``content_delta``."""
    return "".join(word.title() for word in event.split("_")) + "Event"


def reference_to(event: str) -> dict[str, Any]:
    """A reference to the schema of an event's data."""
    return reference(schema_name(event))


@cache
def event_schemas() -> dict[str, Any]:
    """The schema of the data of every event, by name, and ``ChatEvent``: any of them."""
    return {
        **{schema_name(name): _data_of(event) for name, event in EXAMPLES.items()},
        "ChatEvent": {
            "description": "An event with its data.",
            "oneOf": [_with_data(name) for name in EXAMPLES],
        },
    }


def _with_data(event: str) -> JSONObject:
    return {
        "title": f"Streamed{schema_name(event)}",
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"type": "string", "const": event},
            "data": reference_to(event),
        },
    }


def _data_of(event: Event) -> dict[str, Any]:
    """The JSON Schema of an event's data: its fields, and what its payload says beside them."""
    kind = type(event)
    fields = TypeAdapter(kind).json_schema(ref_template=reference("{model}")["$ref"])
    example = EVENTS[event.type]
    known = {
        name: field
        for name, field in fields["properties"].items()
        if name in example or "default" in field
    }
    if not isinstance(kind.type, str):  # the type tells whether an agent owns the event
        for name in ("agent_name", "agent_call_id"):
            field = known.pop(name)
            if name in example:
                known[name] = {"title": field["title"], "type": "string"}
    if "context_window" in known:
        known["context_window"] = reference("UsedWindow")
    fixed = {
        name: {"type": "string", "const": value}
        for name, value in example.items()
        if name not in known
    }
    return {
        "description": (kind.__doc__ or "").strip().splitlines()[0],
        "type": "object",
        "required": list(example),
        "properties": {**known, **fixed},
    }


def _of(*names: str) -> str:
    return frames(*((name, EVENTS[name]) for name in names))


_END = ("content_delta", "message_complete", "done")
_AFTER_TOOLS = ("tool_result", "tool_continuation_start", *_END)


@cache
def stream() -> dict[str, Any]:
    """What ``/chat/{session_id}/stream`` answers; made with the document, which few ask for."""
    return event_stream(
        "Exactly one `done`, always last, also after `error`.",
        {name: reference_to(name) for name in EXAMPLES},
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
