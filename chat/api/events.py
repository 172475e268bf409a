"""Streams in the OpenAPI document: the data of each kind of event, and whole streams to see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter

from mochi_project.openapi import reference
from mochi_server.chat.confirmations.confirmation import ConfirmationChange
from mochi_server.errors import JSONObject
from mochi_server.protocol import events
from mochi_server.protocol.events import Event
from mochi_server.services.models.pulls import PullEvent
from mochi_server.tools.mcp.servers.feed import ChangeKind, McpChange
from mochi_server.tools.mcp.servers.server import State

from ..wires.chunks import (
    CONFIRMATIONS,
    CallingMessage,
    ChunkEvent,
    Chunks,
    FinalMessage,
    ResultMessage,
)
from ..wires.events import encode_all
from ..wires.sse import RETRY, encode_changes
from .examples import (
    CONFIRMATION,
    DENIAL,
    END,
    EXAMPLES,
    SESSION,
    STREAMS,
    example_with_tools,
    numbered,
)


def _content_of(
    description: str, kinds: Mapping[str, Mapping[str, Any]], examples: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the ``content`` of an answer that is a stream."""
    event = {
        "type": "object",
        "required": ["id", "event", "data"],
        "properties": {"id": {"type": "string", "description": "Grows over all runs of it."}},
        "oneOf": [_event(name, data) for name, data in kinds.items()],
    }
    return {
        "text/event-stream": {
            "schema": {
                "type": "string",
                "description": f"Server-sent events. {description} Comments (`: ping`) in silence.",
            },
            "x-itemSchema": event,  # OpenAPI 3.2 calls it itemSchema
            "examples": {
                name: {"value": (RETRY + frames).decode()} for name, frames in examples.items()
            },
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


def _schema_name(event: str) -> str:
    """Name the schema of an event's data: ``ContentDeltaEvent`` of ``content_delta``."""
    return "".join(word.title() for word in event.split("_")) + "Event"


def _reference_to(event: str) -> dict[str, Any]:
    return reference(_schema_name(event))


_CHANGES: Mapping[str, Any] = {
    "ConfirmationChange": {
        "description": "What happened to a confirmation.",
        "type": "object",
        "required": ["confirmation", "decision"],
        "properties": {
            "confirmation": reference("OpenConfirmation"),
            "decision": {
                "description": "Null while there is none.",
                "anyOf": [reference("DecisionOnRecord"), {"type": "null"}],
            },
        },
    },
    "McpChange": {
        "description": "What happened to an MCP server.",
        "type": "object",
        "required": ["server", "state", "last_error"],
        "properties": {
            "server": {"type": "string"},
            "state": {
                "description": "In this process; null: it was removed.",
                "anyOf": [{"type": "string", "enum": [*get_args(State)]}, {"type": "null"}],
            },
            "last_error": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    },
    "PullProgress": {
        "description": "How far a model is fetched: a line for a person, or bytes.",
        "type": "object",
        "required": ["model", "message", "completed", "total"],
        "properties": {
            "model": {"type": "string"},
            "message": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "completed": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "total": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
    },
    "PullDone": {
        "description": "The pull has ended.",
        "type": "object",
        "required": ["model"],
        "properties": {"model": {"type": "string"}},
    },
}
"""What streams tell of that are not of a turn, by the name of its schema."""


@cache
def event_schemas() -> dict[str, Any]:
    """Describe the data of every event, by name, and ``ChatEvent``, any of a session's turn."""
    whole_messages = (CallingMessage, ResultMessage, FinalMessage)
    schemas: dict[str, Any] = {
        **{_schema_name(name): _data_of(event) for name, event in EXAMPLES.items()},
        "ChatEvent": {
            "description": "An event with its data.",
            "oneOf": [_with_data(name) for name in EXAMPLES],
        },
        **_CHANGES,
        "MessageEvent": {
            "description": "A whole message.",
            "oneOf": [reference(kind.__name__) for kind in whole_messages],
        },
    }
    for kind in (ChunkEvent, *whole_messages):
        schema = _json_schema(kind)
        schemas |= schema.pop("$defs", {})
        schemas[kind.__name__] = schema
    return schemas


def _json_schema(kind: type) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema(ref_template=reference("{model}")["$ref"])


def _with_data(event: str) -> JSONObject:
    return {
        "title": f"Streamed{_schema_name(event)}",
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"type": "string", "const": event},
            "data": _reference_to(event),
        },
    }


def _data_of(event: Event) -> dict[str, Any]:
    """Describe an event's data: its fields, and what its payload has beside them."""
    kind = type(event)
    fields = _json_schema(kind)
    example = event.payload()
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


@cache
def stream() -> dict[str, Any]:
    """Describe what ``/chat/{session_id}/stream`` and ``/runs/{run_id}/events`` answer."""
    return _content_of(
        "`run_start` first, if the stream is read from its begin. Exactly one `done`, always last, "
        "also after `error`.",
        {name: _reference_to(name) for name in EXAMPLES},
        {name: encode_all(numbered(*shown)) for name, shown in STREAMS.items()},
    )


@cache
def confirmation_stream() -> dict[str, Any]:
    """Describe what ``/confirmations/events`` answers."""
    changes = [
        ConfirmationChange("asked", CONFIRMATION),
        ConfirmationChange("decided", CONFIRMATION, DENIAL),
    ]
    return _content_of(
        "What happens to confirmations, in any process. Without end: it is closed for a reader "
        "that does not keep up.",
        dict.fromkeys(("asked", "decided", "expired"), reference("ConfirmationChange")),
        {"denied": encode_changes(list(enumerate(changes, start=1)))},
    )


@cache
def mcp_stream() -> dict[str, Any]:
    """Describe what ``/mcp/events`` answers."""
    changes = [
        McpChange("mcp_added", "time", "stopped"),
        McpChange("mcp_state", "time", "ready"),
        McpChange("tools_changed", "time", "ready"),
    ]
    return _content_of(
        "What happens to MCP servers. Without end: it is closed for a reader that does not keep "
        "up.",
        dict.fromkeys(get_args(ChangeKind), reference("McpChange")),
        {"added": encode_changes(list(enumerate(changes, start=1)))},
    )


@cache
def pull_stream() -> dict[str, Any]:
    """Describe what ``POST /models/pull`` answers."""
    model = "local/smollm2:135m"
    shown = [
        PullEvent("pull_progress", {"model": model, "message": "Fetching …", **_NO_BYTES}),
        PullEvent(
            "pull_progress",
            {"model": model, "message": None, "completed": 49_000_000, "total": 98_362_432},
        ),
        PullEvent("done", {"model": model}),
    ]
    return _content_of(
        "How far the model is fetched. Exactly one `done`, always last, also after `error`.",
        {
            "pull_progress": reference("PullProgress"),
            "error": _reference_to("error"),
            "done": reference("PullDone"),
        },
        {"pulled": encode_changes(list(enumerate(shown, start=1)))},
    )


_NO_BYTES: JSONObject = {"completed": None, "total": None}


@cache
def simple_stream() -> dict[str, Any]:
    """Describe what ``/chat/stream`` answers."""
    return _content_of(
        "Without tools `chunk`, with tools `message` and confirmations. The last one is "
        "finished, or it is an `error`. After `reply_retry`, which comes without tools, the text "
        "begins anew.",
        {
            "chunk": reference("ChunkEvent"),
            "message": reference("MessageEvent"),
            **{
                kind.type: _reference_to(kind.type)
                for kind in (*CONFIRMATIONS, events.ReplyRetry, events.ErrorEvent)
            },
        },
        {
            "without_tools": Chunks(SESSION)(numbered(*END)),
            "with_tools": example_with_tools(),
            "failure": Chunks(SESSION)(numbered("content_delta", "error")),
        },
    )
