"""Frames that the server sends: ``{"event", "data"}``, and where they belong.

docs/reference/socket.md has the table of events. A person's decisions and the results of calls have
the names and fields that clients of such sockets know, all others those of
``mochi_server.protocol.events``.
"""

from __future__ import annotations

import orjson

from mochi_project.http.errors import error_shape
from mochi_server.errors import JSONObject, MochiError
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ContentDelta,
    Event,
    ThinkingDelta,
    ToolResultReady,
)

from ..events import CONTENT, THINKING

_CONTENT_FRAME = b'{"event":"content_delta","data":%b' % CONTENT
_THINKING_FRAME = b'{"event":"thinking_delta","data":%b' % THINKING

FrameId = str | int | None
"""What a client calls one of its frames."""

_FIELDS = {
    "tool_name": "name",
    "arguments": "args",
    "tool_call_id": "callId",
    "queue_position": "queuePosition",
    "queue_total": "totalInQueue",
    "result": "output",
    "error_message": "message",
}


def frame(event: str, data: object, *, reply_to: FrameId = None) -> str:
    """Encode a frame that belongs to no run; ``reply_to`` is the frame that it answers."""
    content: dict[str, object] = {"event": event, "data": data}
    if reply_to is not None:
        content["reply_to"] = reply_to
    return orjson.dumps(content, default=str).decode()


def error_frame(error: MochiError, *, reply_to: FrameId = None) -> str:
    """Encode an error that a frame, or the connection itself, has caused."""
    return frame("error", error_shape(error)["error"], reply_to=reply_to)


class RunEncoder:
    """Encodes the events of one run, with its id and their numbers."""

    def __init__(self, run_id: str) -> None:
        self._run = b',"run_id":%b,"id":' % orjson.dumps(run_id)

    def __call__(self, number: int, event: Event) -> str:
        """Encode one event; deltas without building their data first."""
        kind = type(event)
        if kind is ContentDelta:
            data = _CONTENT_FRAME % orjson.dumps(event.content)  # type: ignore[union-attr]
        elif kind is ThinkingDelta:
            data = _THINKING_FRAME % orjson.dumps(event.content)  # type: ignore[union-attr]
        else:
            name, fields = _named(event)
            data = b'{"event":"%b","data":%b' % (name.encode(), orjson.dumps(fields))
        return (b"%b%b%d}" % (data, self._run, number)).decode()


def _named(event: Event) -> tuple[str, JSONObject]:
    """Return an event's name and data on the socket."""
    if isinstance(event, ConfirmationRequired):
        return "tool:approval_required", _renamed(event.payload())
    if isinstance(event, ToolResultReady):
        data = event.payload()
        del data["success"], data["error_message" if event.success else "result"]
        return "tool:output" if event.success else "agent:error", _renamed(data)
    return event.type, event.payload()


def _renamed(data: JSONObject) -> JSONObject:
    return {_FIELDS.get(name, name): value for name, value in data.items()}
