"""Chunks as OpenAI's stream of ``chat.completion.chunk`` events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from .chunks import Abort, CallDelta, Delta, End, ScriptedChunk
from .models import model_info
from .reply import ReplyRequest
from .script import ScriptedError

CREATED: Final = 1_735_689_600
"""The creation time in every chunk; a clock would make two streams differ."""

CONVERSATION: Final = "conversation"
"""A field of the test provider's requests: the messages before any were joined for the wire."""

DONE: Final = b"data: [DONE]\n\n"


def reply_request(body: Mapping[str, Any]) -> ReplyRequest:
    """Read the body of a request."""
    response_format = body.get("response_format") or {}
    schema = response_format.get("json_schema", {}).get("schema")
    if schema is None and response_format.get("type") == "json_object":
        schema = {"type": "object"}
    conversation = body.get(CONVERSATION) or body.get("messages", ())
    messages = [message for message in conversation if isinstance(message, dict)]
    return ReplyRequest(
        messages=messages,
        tools=body.get("tools") or (),
        schema=schema,
        thinks="thinking" in model_info(str(body.get("model"))).capabilities,
    )


def error_body(failure: ScriptedError) -> dict[str, Any]:
    """Return an error as the body of a response or an event."""
    kind = "rate_limit_error" if failure.status == 429 else "server_error"  # noqa: PLR2004
    return {"error": {"message": failure.message, "type": kind, "code": failure.code}}


class OpenAIStream:
    """Encodes the chunks of one stream.

    Args:
        body: The body of the request.
        name: Part of the completion's id, the same in every event.
    """

    def __init__(self, body: Mapping[str, Any], name: str) -> None:
        self._base = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": body.get("model"),
        }
        self._counts = bool((body.get("stream_options") or {}).get("include_usage"))
        self._begun: set[int] = set()

    def encode(self, chunk: ScriptedChunk) -> bytes:
        """Return the events of a chunk; none for a pause, nor for an abort that is no error."""
        match chunk:
            case Delta():
                return self._delta(chunk.choice, {chunk.kind: chunk.text})
            case CallDelta():
                return self._delta(chunk.choice, {"tool_calls": [_call(chunk)]})
            case Abort(failure=ScriptedError() as failure):
                return _event(error_body(failure))
            case End():
                return self._end(chunk)
            case _:
                return b""

    def _delta(self, choice: int, delta: dict[str, Any]) -> bytes:
        if choice not in self._begun:
            self._begun.add(choice)
            delta = {"role": "assistant", **delta}
        return self._choice(choice, delta, None)

    def _choice(self, choice: int, delta: dict[str, Any], reason: str | None) -> bytes:
        entry = {"index": choice, "delta": delta, "finish_reason": reason}
        return _event({**self._base, "choices": [entry]})

    def _end(self, end: End) -> bytes:
        """Return the finish reasons, the token counts if requested, and the terminator."""
        parts = [self._choice(choice, {}, reason) for choice, reason in end.reasons]
        if self._counts:
            usage = {
                "prompt_tokens": end.prompt_tokens,
                "completion_tokens": end.completion_tokens,
                "total_tokens": end.prompt_tokens + end.completion_tokens,
            }
            parts.append(_event({**self._base, "choices": [], "usage": usage}))
        return b"".join([*parts, DONE])


def _call(piece: CallDelta) -> dict[str, Any]:
    if piece.name is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(data)
