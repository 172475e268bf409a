"""Streams in the OpenAPI document: the data of each kind of event, and whole streams to see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from mochi_project.openapi import reference
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import (
    AgentComplete,
    AgentExecution,
    AgentPlanning,
    AgentStart,
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ThinkingDelta,
    ToolCallStarted,
    ToolCallWaiting,
    ToolContinuationStart,
    ToolResultReady,
)

from ..wires.events import encode_all
from ..wires.sse import RETRY

_EXAMPLES: tuple[Event, ...] = (
    ContentDelta("The capital"),
    ThinkingDelta("The user asks"),
    ToolCallStarted(
        tool_name="add", arguments={"a": 2, "b": 3}, call_index=0, tool_call_id="call_1"
    ),
    ToolCallWaiting(tool_name="add", tool_call_id="call_1"),
    ConfirmationRequired(
        tool_name="delete_file",
        arguments={"path": "old.txt"},
        call_index=0,
        tool_call_id="call_1",
        confirmation_id="conf_8f14e45fceea167a",
        queue_position=1,
        queue_total=1,
        timeout_seconds=300,
    ),
    ConfirmationDecided(
        confirmation_id="conf_8f14e45fceea167a",
        tool_name="delete_file",
        call_index=0,
        tool_call_id="call_1",
        approved=False,
        arguments={"path": "old.txt"},
        edited=False,
        reason="I still need it.",
    ),
    ToolResultReady(
        tool_name="add",
        success=True,
        result="5",
        error_message=None,
        call_index=0,
        tool_call_id="call_1",
    ),
    AgentStart(
        agent_name="coder",
        instruction="Say what main.py does.",
        session_id="b80fa657b0",
        model="qwen3:14b",
        agent_call_id="call_2",
        parent_call_id=None,
    ),
    AgentPlanning("I read the file", "coder", "call_2"),
    AgentExecution("It prints", "coder", "call_2"),
    ToolCallStarted(
        agent_name="coder",
        tool_name="read_file",
        arguments={"path": "main.py"},
        call_index=0,
        tool_call_id="call_3",
        agent_call_id="call_2",
    ),
    ToolResultReady(
        agent_name="coder",
        tool_name="read_file",
        success=True,
        result="print(1)",
        error_message=None,
        call_index=0,
        tool_call_id="call_3",
        agent_call_id="call_2",
    ),
    AgentComplete(
        agent_name="coder",
        session_id="b80fa657b0",
        output="Session ID: b80fa657b0\n\nIt prints a 1.",
        success=True,
        error_message=None,
        agent_call_id="call_2",
    ),
    ToolContinuationStart(),
    MessageComplete(
        message_id="f1e2d3c4b5",
        model="qwen3:14b",
        eval_count=45,
        prompt_eval_count=120,
        context_window={
            "current_window": 8192,
            "usage_tokens": 165,
            "reason": "initial_setup",
            "dropped_messages": 0,
        },
        finish_reason="stop",
        message={},
    ),
    ErrorEvent(
        code="OLLAMA_UNREACHABLE",
        message="Cannot connect to Ollama at http://localhost:11434.",
        details={"host": "http://localhost:11434"},
    ),
    Done(session_id="a1b2c3d4e5"),
)

EXAMPLES: dict[str, Event] = {event.type: event for event in _EXAMPLES}
"""One example of each kind of event."""


def event_stream(
    description: str, events: Mapping[str, Mapping[str, Any]], examples: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the ``content`` of an answer that is a stream.

    Args:
        description: without the comments, which every stream has.
        events: the JSON Schema of the data of each kind.
        examples: the frames of whole streams, by name.
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


def schema_name(event: str) -> str:
    """Name the schema of an event's data: ``ContentDeltaEvent`` of ``content_delta``."""
    return "".join(word.title() for word in event.split("_")) + "Event"


def reference_to(event: str) -> dict[str, Any]:
    """Refer to the schema of an event's data."""
    return reference(schema_name(event))


@cache
def event_schemas() -> dict[str, Any]:
    """Describe the data of every event, by name, and ``ChatEvent``: any of them."""
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
    """Describe an event's data: its fields, and what its payload has beside them."""
    kind = type(event)
    fields = TypeAdapter(kind).json_schema(ref_template=reference("{model}")["$ref"])
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


def _example(*names: str) -> bytes:
    return encode_all(list(enumerate([EXAMPLES[name] for name in names], start=1)))


_END = ("content_delta", "message_complete", "done")
_AFTER_TOOLS = ("tool_result", "tool_continuation_start", *_END)


@cache
def stream() -> dict[str, Any]:
    """Describe what ``/chat/{session_id}/stream`` answers."""
    return event_stream(
        "Exactly one `done`, always last, also after `error`.",
        {name: reference_to(name) for name in EXAMPLES},
        {
            "reply": _example(*_END),
            "thinking": _example("thinking_delta", *_END),
            "tools": _example("tool_call", *_AFTER_TOOLS),
            "confirmation": _example(
                "tool_call_confirmation_required", "tool_call_confirmation_decided", *_AFTER_TOOLS
            ),
            "agents": _example(
                "tool_call",
                "agent_start",
                "agent_planning",
                "agent_tool_call",
                "agent_tool_result",
                "agent_execution",
                "agent_complete",
                *_AFTER_TOOLS,
            ),
            "failure": _example("content_delta", "error", "done"),
        },
    )
