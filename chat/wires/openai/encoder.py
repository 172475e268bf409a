"""Encodes a run as a chat completion: one object, or a stream of chunks."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import orjson

from mochi_server.chat.control import StartedRun
from mochi_server.protocol.events import ErrorEvent, MessageComplete
from mochi_server.protocol.fold import Fold

from ..common.answers import extras_of
from ..common.encoder import TextEncoder
from .errors import SERVER_ERROR, error_object

FINISH_REASONS = frozenset({"length", "tool_calls", "content_filter"})
"""Reasons for the end of a reply that have a name here; all others are ``stop``."""

DONE = b"data: [DONE]\n\n"


def completion_of(started: StartedRun, fold: Fold, *, model: str) -> dict[str, Any]:
    complete = fold.answer()
    message: dict[str, Any] = {
        "role": "assistant",
        "content": fold.text_of("text") or None,
        "refusal": None,
    }
    if thinking := fold.text_of("thinking"):
        message["reasoning_content"] = thinking
    if complete.client_calls:
        message["tool_calls"] = _calls(complete)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _finish_reason(complete),
    }
    return {
        **_head(started, model, "chat.completion"),
        "choices": [choice],
        "usage": usage_of(complete),
        "mochi": extras_of(started, complete),
    }


def text_completion_of(started: StartedRun, fold: Fold, *, model: str) -> dict[str, Any]:
    complete = fold.answer()
    choice = {
        "index": 0,
        "text": fold.text_of("text"),
        "logprobs": None,
        "finish_reason": _finish_reason(complete),
    }
    return {
        **_head(started, model, TextChunkEncoder.kind),
        "choices": [choice],
        "usage": usage_of(complete),
        "mochi": extras_of(started, complete),
    }


def _head(started: StartedRun, model: str, kind: str) -> dict[str, Any]:
    prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
    return {
        "id": f"{prefix}-{started.run_id.removeprefix('run_')}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": "mochi-server",
    }


def _finish_reason(complete: MessageComplete) -> str:
    reason = complete.finish_reason or ""
    return reason if reason in FINISH_REASONS else "stop"


def _calls(complete: MessageComplete) -> list[dict[str, Any]]:
    return [
        {
            "id": call["id"],
            "type": "function",
            "function": {
                "name": call["name"],
                "arguments": orjson.dumps(call["arguments"]).decode(),
            },
        }
        for call in complete.client_calls
    ]


def usage_of(complete: MessageComplete) -> dict[str, int]:
    """Return the tokens of the last reply; 0 where the provider has not counted."""
    prompt, generated = complete.prompt_eval_count or 0, complete.eval_count or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
    }


class ChunkEncoder(TextEncoder):
    """Encodes a run as ``chat.completion.chunk`` objects, and ``[DONE]`` at the end."""

    kind: ClassVar = "chat.completion.chunk"
    delta: ClassVar = (b'"delta":{', b"}")
    """What is before and after a piece of the answer."""
    empty: ClassVar = b""
    """A piece without anything."""

    def __init__(self, started: StartedRun, *, model: str, include_usage: bool) -> None:
        super().__init__(started)
        self._include_usage = include_usage
        self._head = _head(started, model, self.kind)
        if include_usage:
            self._head["usage"] = None
        before, self._after = self.delta
        head = orjson.dumps(self._head)[:-1]
        self._before = b'data: %b,"choices":[{"index":0,%b' % (head, before)

    def begin(self) -> bytes:
        return self._chunk(b'"role":"assistant","content":""')

    def text(self, text: str) -> bytes:
        return self._delta("content", text)

    def thought(self, text: str) -> bytes:
        return self._delta("reasoning_content", text)

    def _delta(self, name: str, text: str) -> bytes:
        return self._chunk(b'"%b":%b' % (name.encode(), orjson.dumps(text)))

    def _chunk(self, delta: bytes, finish_reason: bytes = b"null", more: bytes = b"") -> bytes:
        return b'%b%b%b,"logprobs":null,"finish_reason":%b}]%b}\n\n' % (
            self._before,
            delta,
            self._after,
            finish_reason,
            more,
        )

    def fail(self, event: ErrorEvent) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(error_object(event.message, event.code, SERVER_ERROR))

    def end(self, complete: MessageComplete) -> bytes:
        parts = []
        if complete.client_calls:
            calls = [{"index": index, **call} for index, call in enumerate(_calls(complete))]
            parts.append(self._chunk(b'"tool_calls":%b' % orjson.dumps(calls)))
        extras = orjson.dumps(extras_of(self.started, complete))
        reason = orjson.dumps(_finish_reason(complete))
        parts.append(self._chunk(self.empty, reason, b',"mochi":%b' % extras))
        if self._include_usage:
            usage = {**self._head, "choices": [], "usage": usage_of(complete)}
            parts.append(b"data: %b\n\n" % orjson.dumps(usage))
        return b"".join([*parts, DONE])


class TextChunkEncoder(ChunkEncoder):
    """The same as ``text_completion`` objects, which have no thinking."""

    kind: ClassVar = "text_completion"
    delta: ClassVar = (b"", b"")
    empty: ClassVar = b'"text":""'

    def begin(self) -> bytes:
        return b""

    def text(self, text: str) -> bytes:
        return self._delta("text", text)

    def thought(self, text: str) -> bytes:  # noqa: ARG002 - there is no place for it
        return b""
