"""Bodies and answers of the simple routes, ``/chat`` and ``/chat/stream``."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from mochi_project.openapi import reference
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import ErrorEvent
from mochi_server.sessions.storage.base import SESSION_ID
from sessions_app.schemas import ModelName, Names

from ..wires.chunks import BATCH, PASSED_ON, failure, whole_answer
from .chat import EVENTS
from .events import event_stream, frames, reference_to, schema_name

SESSION = "0b6a8a5e-3f0c-4b1e-9d55-6f1c2a7e8d90"
MODEL = "qwen3:14b"
ASK: JSONObject = {"message": "What is 2 + 3?", "session_id": SESSION, "model": MODEL}
ASK_WITH_TOOLS: JSONObject = {**ASK, "selected_tools": ["add"]}
ANSWER = whole_answer("2 + 3 is 5.", SESSION, MODEL)

_OF: JSONObject = {"session_id": SESSION, "model": MODEL, "metadata": dict(BATCH)}
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
    "response": "Using tools: add...",
    **_OF,
    "finished": False,
}
RESULT: JSONObject = {
    "role": "tool",
    "content": "5",
    "tool_call_id": "call_1",
    "name": "add",
    "response": "5",
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
    "finished": True,
}
_ERROR: dict[str, Any] = EVENTS["error"]
FAILURE = failure(ErrorEvent(**_ERROR), SESSION)


SessionId = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{SESSION_ID.pattern}$"})]
"""Told, and not checked: no session has another id, which is the answer on every route."""


class SimpleChatRequest(BaseModel):
    """A message to a session that may not be there yet."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": ASK})

    message: str = Field(pattern=r"\S", description="What the person says.")
    session_id: SessionId | None = Field(
        default=None,
        description="A UUID, or any id. One that is not there is created; absent: a new one.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model of a new session, which needs one; of an old one for this message.",
    )
    selected_tools: Names | None = Field(
        default=None,
        description="Names of the tools of this message, in the place of the session's. Absent, "
        "null or empty: none. In one piece there are none.",
    )


class BatchMetadata(BaseModel):
    """How the answer came, and what a client may make of it."""

    batch_mode: Literal[True]
    fake_streaming_note: str


class SimpleChatReply(BaseModel):
    """The answer in one piece."""

    model_config = ConfigDict(json_schema_extra={"example": ANSWER})

    response: str
    session_id: str
    model: str
    metadata: BatchMetadata


def _chunk(content: str, *, finished: bool) -> JSONObject:
    return {"content": content, "session_id": SESSION, "finished": finished}


def _object(optional: Any = None, **properties: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON Schemas
    """The JSON Schema of an object: what is always there, and what is there sometimes."""
    return {
        "type": "object",
        "required": list(properties),
        "properties": {**properties, **(optional or {})},
    }


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_COUNT = {"type": ["integer", "null"]}
_FLAG = {"type": "boolean"}
_CALL_SHAPE = _object(
    id=_TEXT,
    type={**_TEXT, "const": "function"},
    function=_object(name=_TEXT, arguments={**_TEXT, "contentMediaType": "application/json"}),
)
_USAGE = _object(prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens={"type": "integer"})
_REPLY: dict[str, Any] = {
    "role": {**_TEXT, "const": "assistant"},
    "content": _TEXT_OR_NULL,
    "tool_calls": {"anyOf": [{"type": "array", "items": _CALL_SHAPE}, {"type": "null"}]},
    "finish_reason": _TEXT_OR_NULL,
    "usage": {"anyOf": [_USAGE, {"type": "null"}]},
}
_COMMON: dict[str, Any] = {
    "response": _TEXT,
    "session_id": _TEXT,
    "model": _TEXT,
    "metadata": reference("BatchMetadata"),
}
_MORE: dict[str, Any] = {**_COMMON, "finished": {**_FLAG, "const": False}}
_LAST: dict[str, Any] = {**_COMMON, "finished": {**_FLAG, "const": True}}


@cache
def event_schemas() -> dict[str, Any]:
    """The schemas of the data of the events that only this stream has, by name."""
    return {
        "ChunkEvent": {
            "description": "A piece of the answer's text; the last one is finished and empty.",
            **_object(content=_TEXT, session_id=_TEXT, finished=_FLAG),
        },
        "MessageEvent": {
            "description": "A whole message.",
            "oneOf": [reference(name) for name in ("CallingMessage", "ResultMessage", "Answer")],
        },
        "CallingMessage": {
            "description": "A reply that calls tools, or what was said before an error.",
            **_object({"interrupted": _FLAG}, **_REPLY, status=_TEXT_OR_NULL, **_MORE),
        },
        "ResultMessage": {
            "description": "The result of a call.",
            **_object(
                role={**_TEXT, "const": "tool"},
                content=_TEXT,
                tool_call_id=_TEXT,
                name=_TEXT,
                **_MORE,
            ),
        },
        "Answer": {
            "description": "The last message.",
            **_object({"tool_rounds_exhausted": _FLAG}, **_REPLY, **_LAST),
        },
    }


@cache
def stream() -> dict[str, Any]:
    """What ``/chat/stream`` answers."""
    return event_stream(
        "Without tools `chunk`, with tools `message` and questions to a person. The last one is "
        "finished, or it is an `error`.",
        {
            **{name: reference(schema_name(name)) for name in ("chunk", "message")},
            **{kind.type: reference_to(kind.type) for kind in (*PASSED_ON, ErrorEvent)},
        },
        {
            "without_tools": frames(
                ("chunk", _chunk("2 + 3", finished=False)),
                ("chunk", _chunk(" is 5.", finished=False)),
                ("chunk", _chunk("", finished=True)),
            ),
            "with_tools": frames(("message", CALL), ("message", RESULT), ("message", FINAL)),
            "failure": frames(("chunk", _chunk("2 + 3", finished=False)), ("error", FAILURE)),
        },
    )
