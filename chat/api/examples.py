"""Examples of streams, for the OpenAPI document: events, and in which order they come."""

from __future__ import annotations

from typing import Any

from mochi_server.chat import StoredMessages
from mochi_server.chat.confirmations import Confirmation, ConfirmationDecision
from mochi_server.errors import JSONObject
from mochi_server.protocol import events
from mochi_server.protocol.events import Event
from mochi_server.protocol.messages import AssistantMessage, ToolMessage

from ..wires.chunks import Iterations

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
SUGGESTIONS: list[JSONObject] = [
    {
        "patterns": {"path": "old.txt"},
        "allows": "this call again, with exactly the same arguments",
    },
    {"patterns": {"path": "*"}, "allows": "path: any name without “/”"},
    {"patterns": {}, "allows": "every call of delete_file, whatever its arguments are"},
]
_READ: dict[str, Any] = {
    "agent_name": "coder",
    "tool_name": "read_file",
    "call_index": 0,
    "tool_call_id": "call_3",
    "agent_call_id": "call_2",
}
USED_WINDOW: JSONObject = {
    "current_window": 8192,
    "usage_tokens": 165,
    "reason": "initial_setup",
    "dropped_messages": 0,
    "summarised_messages": 0,
    "shortened_results": 0,
    "tool_tokens": 0,
}

_EXAMPLES: tuple[Event, ...] = (
    events.RunStart(
        run_id="run_0123456789abcdef",
        session_id="a1b2c3d4e5",
        model=MODEL,
        started_at="2026-01-15T10:35:00.000000Z",
    ),
    events.HistoryCompacted(summarised_messages=12, through_message_id="f1e2d3c4b5"),
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
        suggestions=SUGGESTIONS,
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
        context_window=USED_WINDOW,
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
    suggestions=SUGGESTIONS,
    asked_at="2026-01-15T10:35:00.000000Z",
    expires_at="2026-01-15T10:40:00.000000Z",
)
DENIAL = ConfirmationDecision(
    approved=False,
    reason="I still need it.",
    decided_by="loopback",
    decided_at="2026-01-15T10:35:10.000000Z",
)


def numbered(*names: str) -> list[tuple[int, Event]]:
    return list(enumerate([EXAMPLES[name] for name in names], start=1))


END = ("content_delta", "message_complete", "done")
_AFTER_TOOLS = ("tool_result", "tool_continuation_start", *END)
_AGENT = (
    *("agent_start", "agent_planning", "agent_tool_call", "agent_tool_result"),
    *("agent_execution", "agent_complete"),
)
STREAMS = {
    "reply": ("run_start", *END),
    "thinking": ("run_start", "thinking_delta", *END),
    "tools": ("run_start", "tool_call", *_AFTER_TOOLS),
    "confirmation": (
        "run_start",
        *("tool_call_confirmation_required", "tool_call_confirmation_decided"),
        *_AFTER_TOOLS,
    ),
    "repaired": ("run_start", "content_delta", "reply_retry", *END),
    "agents": ("run_start", "tool_call", *_AGENT, *_AFTER_TOOLS),
    "failure": ("run_start", "content_delta", "error", "done"),
}


def example_with_tools() -> bytes:
    """Encode a turn with one call as the route does."""
    call = {"id": "call_1", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    stored = StoredMessages(
        [
            AssistantMessage(tool_calls=[call], prompt_eval_count=120, eval_count=20),
            ToolMessage(content="5", tool_name="add", tool_call_id="call_1"),
        ]
    )
    shown = numbered("tool_call", "tool_continuation_start", "message_complete", "done")
    return Iterations(SESSION, MODEL, stored)(shown)
