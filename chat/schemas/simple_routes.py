"""Bodies and answers of the simple routes, ``/chat`` and ``/chat/stream``."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from mochi_project.openapi import reference
from mochi_project.schemas import ResponseModel
from mochi_server.chat import StoredMessages
from mochi_server.protocol.events import (
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ToolContinuationStart,
)
from mochi_server.protocol.messages import AssistantMessage, ToolMessage
from mochi_server.sessions.storage.base import SESSION_ID
from sessions_app.schemas import ModelName, Names

from ..wires.chunks import (
    BATCH,
    CONFIRMATIONS,
    BatchMetadata,
    CallingMessage,
    ChunkEvent,
    Chunks,
    FinalMessage,
    Iterations,
    ResultMessage,
)
from .events import EXAMPLES, event_stream, reference_to

SESSION = "0b6a8a5e-3f0c-4b1e-9d55-6f1c2a7e8d90"
MODEL = "qwen3:14b"

AnySessionId = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": f"^{SESSION_ID.pattern}$"})
]
"""Not checked here: an id that no session can have is not found, as on every route."""


class SimpleChatRequest(BaseModel):
    """A message to a session that may not be there yet."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"message": "What is 2 + 3?", "session_id": SESSION, "model": MODEL}
        },
    )

    message: str = Field(pattern=r"\S", description="What the person says.")
    session_id: AnySessionId | None = Field(
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


class SimpleChatReply(ResponseModel):
    """The answer in one piece."""

    response: str = Field(examples=["2 + 3 is 5."])
    session_id: str = Field(examples=[SESSION])
    model: str = Field(examples=[MODEL])
    metadata: BatchMetadata = Field(examples=[BATCH])


@cache
def event_schemas() -> dict[str, Any]:
    """Describe the data of the events that only this stream has, by name."""
    message_kinds = (CallingMessage, ResultMessage, FinalMessage)
    schemas: dict[str, Any] = {
        "MessageEvent": {
            "description": "A whole message.",
            "oneOf": [reference(kind.__name__) for kind in message_kinds],
        }
    }
    for kind in (ChunkEvent, *message_kinds):
        schema = TypeAdapter(kind).json_schema(ref_template=reference("{model}")["$ref"])
        schemas |= schema.pop("$defs", {})
        schemas[kind.__name__] = schema
    return schemas


def _numbered(*events: Event) -> list[tuple[int, Event]]:
    return list(enumerate(events, start=1))


def _example_with_tools() -> bytes:
    """Encode a turn with one call as the route does."""
    call = {"id": "call_1", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    stored = StoredMessages(
        [
            AssistantMessage(tool_calls=[call], prompt_eval_count=120, eval_count=20),
            ToolMessage(content="5", tool_name="add", tool_call_id="call_1"),
        ]
    )
    final = AssistantMessage(content="2 + 3 is 5.", prompt_eval_count=160, eval_count=9)
    complete = MessageComplete(
        message_id="f1e2d3c4b5",
        model=MODEL,
        eval_count=9,
        prompt_eval_count=160,
        context_window={},
        finish_reason="stop",
        message=final.as_stored(),
    )
    encode = Iterations(SESSION, MODEL, stored)
    return encode(
        _numbered(
            EXAMPLES["tool_call"], ToolContinuationStart(), complete, Done(session_id=SESSION)
        )
    )


@cache
def stream() -> dict[str, Any]:
    """Describe what ``/chat/stream`` answers."""
    text, complete, failure = (
        EXAMPLES[name] for name in ("content_delta", "message_complete", "error")
    )
    return event_stream(
        "Without tools `chunk`, with tools `message` and confirmations. The last one is "
        "finished, or it is an `error`.",
        {
            "chunk": reference("ChunkEvent"),
            "message": reference("MessageEvent"),
            **{kind.type: reference_to(kind.type) for kind in (*CONFIRMATIONS, ErrorEvent)},
        },
        {
            "without_tools": Chunks(SESSION)(_numbered(text, complete, EXAMPLES["done"])),
            "with_tools": _example_with_tools(),
            "failure": Chunks(SESSION)(_numbered(text, failure)),
        },
    )
