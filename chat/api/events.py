"""Streams in the OpenAPI document: the data of each kind of event, and whole streams to see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter

from mochi_project.openapi import reference
from mochi_server.chat import StoredMessages
from mochi_server.chat.confirmations import Confirmation, ConfirmationDecision
from mochi_server.chat.confirmations.store import ConfirmationChange
from mochi_server.errors import JSONObject
from mochi_server.protocol import events
from mochi_server.protocol.events import Event
from mochi_server.protocol.messages import AssistantMessage, ToolMessage
from mochi_server.services.models.pulls import PullEvent
from mochi_server.tools.mcp.servers.feed import ChangeKind, McpChange
from mochi_server.tools.mcp.servers.server import State

from ..wires.chunks import (
    CONFIRMATIONS,
    CallingMessage,
    ChunkEvent,
    Chunks,
    FinalMessage,
    Iterations,
    ResultMessage,
)
from ..wires.confirmations import encode_changes
from ..wires.events import encode_all
from ..wires.mcp import encode_mcp_changes
from ..wires.pulls import encode_pull_events
from ..wires.sse import RETRY

SESSION = "0b6a8a5e-3f0c-4b1e-9d55-6f1c2a7e8d90"
MODEL = "qwen3:14b"

_CALL: dict[str, Any] = {"call_index": 0, "tool_call_id": "call_1"}
_ADD = {"tool_name": "add", **_CALL}
_DELETE = {
    "tool_name": "delete_file",
    "arguments": {"path": "old.txt"},
    "confirmation_id": "conf_8f14e45fceea167a",
    **_CALL,
}
_READ: dict[str, Any] = {
    "agent_name": "coder",
    "tool_name": "read_file",
    "call_index": 0,
    "tool_call_id": "call_3",
    "agent_call_id": "call_2",
}
_USED_WINDOW: JSONObject = {
    "current_window": 8192,
    "usage_tokens": 165,
    "reason": "initial_setup",
    "dropped_messages": 0,
}

_EXAMPLES: tuple[Event, ...] = (
    events.RunStart(
        run_id="run_0123456789abcdef",
        session_id="a1b2c3d4e5",
        model=MODEL,
        started_at="2026-01-15T10:35:00.000000Z",
    ),
    events.HistoryShortened(dropped_messages=2),
    events.ContentDelta("The capital"),
    events.ThinkingDelta("The user asks"),
    events.ToolCallStarted(arguments={"a": 2, "b": 3}, **_ADD),
    events.ToolCallWaiting(tool_name="add", tool_call_id="call_1"),
    events.ToolProgress(tool_call_id="call_1", progress=3, total=10, message="page 3"),
    events.ConfirmationRequired(
        queue_position=1,
        queue_total=1,
        timeout_seconds=300,
        shown='{\n  "path": "old.txt"\n}',
        **_DELETE,
    ),
    events.ConfirmationDecided(approved=False, edited=False, reason="I still need it.", **_DELETE),
    events.ToolInputRequired(
        tool_name="travel__book",
        elicitation={
            "message": "Where to?",
            "requested_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
        call_index=0,
        tool_call_id="call_1",
        confirmation_id="conf_0123456789abcdef",
        timeout_seconds=300,
        shown='{\n  "message": "Where to?",\n  …',
    ),
    events.ToolInputReceived(
        confirmation_id="conf_0123456789abcdef",
        tool_name="travel__book",
        call_index=0,
        tool_call_id="call_1",
        approved=True,
        content={"city": "Rome"},
        reason=None,
    ),
    events.ToolSampling(
        tool_name="travel__book",
        tool_call_id="call_1",
        model=MODEL,
        prompt_eval_count=210,
        eval_count=40,
    ),
    events.ToolResultReady(success=True, result="5", error_message=None, **_ADD),
    events.AgentStart(
        agent_name="coder",
        instruction="Say what main.py does.",
        session_id="b80fa657b0",
        model=MODEL,
        agent_call_id="call_2",
        parent_call_id=None,
    ),
    events.AgentPlanning("I read the file", "coder", "call_2"),
    events.AgentExecution("It prints", "coder", "call_2"),
    events.ToolCallStarted(arguments={"path": "main.py"}, **_READ),
    events.ToolResultReady(success=True, result="print(1)", error_message=None, **_READ),
    events.AgentComplete(
        agent_name="coder",
        session_id="b80fa657b0",
        output="Session ID: b80fa657b0\n\nIt prints a 1.",
        success=True,
        error_message=None,
        agent_call_id="call_2",
    ),
    events.ToolContinuationStart(),
    events.ReplyRetry(problem="it is not JSON (Expecting value: line 1 column 1 (char 0))"),
    events.MessageComplete(
        message_id="f1e2d3c4b5",
        model=MODEL,
        eval_count=45,
        prompt_eval_count=120,
        context_window=_USED_WINDOW,
        finish_reason="stop",
        timestamp="2026-01-02T03:04:05.678901Z",
        message={"content": "2 + 3 is 5.", "prompt_eval_count": 160, "eval_count": 9},
    ),
    events.ErrorEvent(
        code="OLLAMA_UNREACHABLE",
        message="Cannot connect to Ollama at http://localhost:11434.",
        details={"host": "http://localhost:11434"},
    ),
    events.Done(session_id="a1b2c3d4e5"),
)

EXAMPLES: dict[str, Event] = {event.type: event for event in _EXAMPLES}
"""One example of each kind of event."""


def _content_of(
    description: str, kinds: Mapping[str, Mapping[str, Any]], examples: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the ``content`` of an answer that is a stream.

    Args:
        description: without the comments, which every stream has.
        kinds: the JSON Schema of the data of each kind.
        examples: the frames of whole streams, by name.
    """
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


def _numbered(*names: str) -> list[tuple[int, Event]]:
    return list(enumerate([EXAMPLES[name] for name in names], start=1))


_END = ("content_delta", "message_complete", "done")
_AFTER_TOOLS = ("tool_result", "tool_continuation_start", *_END)
_AGENT = (
    *("agent_start", "agent_planning", "agent_tool_call", "agent_tool_result"),
    *("agent_execution", "agent_complete"),
)
_STREAMS = {
    "reply": ("run_start", *_END),
    "thinking": ("run_start", "thinking_delta", *_END),
    "tools": ("run_start", "tool_call", *_AFTER_TOOLS),
    "confirmation": (
        "run_start",
        *("tool_call_confirmation_required", "tool_call_confirmation_decided"),
        *_AFTER_TOOLS,
    ),
    "repaired": ("run_start", "content_delta", "reply_retry", *_END),
    "agents": ("run_start", "tool_call", *_AGENT, *_AFTER_TOOLS),
    "failure": ("run_start", "content_delta", "error", "done"),
}


@cache
def stream() -> dict[str, Any]:
    """Describe what ``/chat/{session_id}/stream`` and ``/runs/{run_id}/events`` answer."""
    return _content_of(
        "`run_start` first, if the stream is read from its begin. Exactly one `done`, always last, "
        "also after `error`.",
        {name: _reference_to(name) for name in EXAMPLES},
        {name: encode_all(_numbered(*shown)) for name, shown in _STREAMS.items()},
    )


CONFIRMATION = Confirmation(
    confirmation_id="conf_8f14e45fceea167a",
    run_id="run_45c48cce2e2d7fbd",
    session_id="a1b2c3d4e5",
    tool_name="delete_file",
    tool_source="directory",
    arguments={"path": "old.txt"},
    call_index=0,
    tool_call_id="call_1",
    queue_position=1,
    queue_total=1,
    asked_at="2026-01-15T10:35:00.000000Z",
    expires_at="2026-01-15T10:40:00.000000Z",
)
DENIAL = ConfirmationDecision(
    approved=False,
    reason="I still need it.",
    decided_by="loopback",
    decided_at="2026-01-15T10:35:10.000000Z",
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
        {"added": encode_mcp_changes(list(enumerate(changes, start=1)))},
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
        {"pulled": encode_pull_events(list(enumerate(shown, start=1)))},
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
            "without_tools": Chunks(SESSION)(_numbered(*_END)),
            "with_tools": _example_with_tools(),
            "failure": Chunks(SESSION)(_numbered("content_delta", "error")),
        },
    )


def _example_with_tools() -> bytes:
    """Encode a turn with one call as the route does."""
    call = {"id": "call_1", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    stored = StoredMessages(
        [
            AssistantMessage(tool_calls=[call], prompt_eval_count=120, eval_count=20),
            ToolMessage(content="5", tool_name="add", tool_call_id="call_1"),
        ]
    )
    shown = _numbered("tool_call", "tool_continuation_start", "message_complete", "done")
    return Iterations(SESSION, MODEL, stored)(shown)
