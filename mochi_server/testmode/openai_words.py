"""Beats as OpenAI's stream of ``chat.completion.chunk`` events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from .beats import Beat, CallPiece, Cut, End, Said
from .models import model_info
from .reply import Asked
from .script import Failure

CREATED: Final = 1_735_689_600
"""The moment that every chunk gives: a clock would make two streams differ."""

CONVERSATION: Final = "conversation"
"""A field of our own provider's requests: the messages before the wire joined any."""

DONE: Final = b"data: [DONE]\n\n"


def asked_by(body: Mapping[str, Any]) -> Asked:
    """A request's body, as far as it matters."""
    wanted = body.get("response_format") or {}
    schema = wanted.get("json_schema", {}).get("schema")
    if schema is None and wanted.get("type") == "json_object":
        schema = {"type": "object"}
    given = body.get(CONVERSATION) or body.get("messages", ())
    messages = [message for message in given if isinstance(message, dict)]
    return Asked(
        messages=messages,
        tools=body.get("tools") or (),
        schema=schema,
        thinks="thinking" in model_info(str(body.get("model"))).capabilities,
    )


def error_body(failure: Failure) -> dict[str, Any]:
    """A failure, as the body of a response or as an event."""
    kind = "rate_limit_error" if failure.status == 429 else "server_error"  # noqa: PLR2004
    return {"error": {"message": failure.message, "type": kind, "code": failure.code}}


class OpenAIWords:
    """Writes one stream."""

    def __init__(self, body: Mapping[str, Any], name: str) -> None:
        """Begin.

        Args:
            body: of the request.
            name: of the completion, the same in every chunk.
        """
        self._base = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": body.get("model"),
        }
        self._counts = bool((body.get("stream_options") or {}).get("include_usage"))
        self._begun: set[int] = set()

    def say(self, beat: Beat) -> bytes:
        """The events of a beat; none for a silence, and for a cut other than an error."""
        match beat:
            case Said():
                return self._delta(beat.choice, {beat.kind: beat.text})
            case CallPiece():
                return self._delta(beat.choice, {"tool_calls": [_call(beat)]})
            case Cut(failure=Failure() as failure):
                return _event(error_body(failure))
            case End():
                return self._end(beat)
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
        """The finish of every stream, the counts where they were asked for, the terminator."""
        parts = [self._choice(choice, {}, reason) for choice, reason in end.reasons]
        if self._counts:
            usage = {
                "prompt_tokens": end.prompt_tokens,
                "completion_tokens": end.completion_tokens,
                "total_tokens": end.prompt_tokens + end.completion_tokens,
            }
            parts.append(_event({**self._base, "choices": [], "usage": usage}))
        return b"".join([*parts, DONE])


def _call(piece: CallPiece) -> dict[str, Any]:
    if piece.name is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(data)
