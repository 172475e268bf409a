"""Bodies and answers of the simple routes, ``/chat`` and ``/chat/stream``."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from mochi_server.errors import JSONObject

from .schemas import EVENTS
from .wire.chunks import BATCH, whole_answer

SESSION = "0b6a8a5e-3f0c-4b1e-9d55-6f1c2a7e8d90"
MODEL = "qwen3:14b"
ASK: JSONObject = {"message": "What is 2 + 3?", "session_id": SESSION, "model": MODEL}
ASK_WITH_TOOLS: JSONObject = {**ASK, "selected_tools": ["add"]}
ANSWER = whole_answer("2 + 3 is 5.", SESSION, MODEL)

_OF: JSONObject = {"session_id": SESSION, "model": MODEL}
CALL: JSONObject = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a":2,"b":3}'},
        }
    ],
    "finish_reason": "tool_calls",
    "usage": {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140},
    "status": "Using tools: add...",
    **_OF,
    "finished": False,
}
RESULT: JSONObject = {
    "role": "tool",
    "content": "5",
    "tool_call_id": "call_1",
    "name": "add",
    **_OF,
    "finished": False,
}
FINAL: JSONObject = {
    "role": "assistant",
    "content": "2 + 3 is 5.",
    "tool_calls": None,
    "finish_reason": "stop",
    "usage": {"prompt_tokens": 160, "completion_tokens": 9, "total_tokens": 169},
    "response": "2 + 3 is 5.",
    **_OF,
    "metadata": dict(BATCH),
    "finished": True,
}


class SimpleChatRequest(BaseModel):
    """A message to a session that may not be there yet."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": ASK})

    message: str = Field(pattern=r"\S", description="What the person says.")
    session_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="A UUID, or any id. One that is not there is created; absent: a new one.",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="The model of a new session, which needs one; of an old one for this message.",
    )
    selected_tools: list[str] | None = Field(
        default=None,
        description="Names of the tools of this message, in the place of the session's. Absent, "
        "null or empty: none. In one piece there are none.",
    )


class SimpleChatReply(BaseModel):
    """The answer in one piece."""

    model_config = ConfigDict(json_schema_extra={"example": ANSWER})

    response: str
    session_id: str
    model: str
    metadata: dict[str, Any] = Field(description="`batch_mode`, `fake_streaming_note`.")


def _chunk(content: str, *, finished: bool) -> JSONObject:
    return {"content": content, "session_id": SESSION, "finished": finished}


def _frames(*events: tuple[str, JSONObject]) -> str:
    """Some events, as they are on the wire."""
    lines = ["retry: 3000", ""]
    for number, (name, data) in enumerate(events, start=1):
        lines += [f"id: {number}", f"event: {name}", f"data: {orjson.dumps(data).decode()}", ""]
    return "\n".join(lines) + "\n"


STREAM: dict[str, Any] = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "description": "One of the server-sent events: without tools `chunk`, with tools "
            "`message` and questions to a person. The last one is finished, or it is an `error`. "
            "Comments (`: ping`) in silence.",
            "required": ["id", "event", "data"],
            "properties": {
                "id": {"type": "string", "description": "Grows within the stream."},
                "event": {"type": "string"},
                "data": {"type": "string", "contentMediaType": "application/json"},
            },
        },
        "examples": {
            "without_tools": {
                "value": _frames(
                    ("chunk", _chunk("2 + 3", finished=False)),
                    ("chunk", _chunk(" is 5.", finished=False)),
                    ("chunk", _chunk("", finished=True)),
                )
            },
            "with_tools": {
                "value": _frames(("message", CALL), ("message", RESULT), ("message", FINAL))
            },
            "failure": {
                "value": _frames(
                    ("chunk", _chunk("2 + 3", finished=False)), ("error", EVENTS["error"])
                )
            },
        },
    }
}
