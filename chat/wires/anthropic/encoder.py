"""Encodes a run as a message: one object, or a stream of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from mochi_server.chat.control import StartedRun
from mochi_server.protocol.events import ErrorEvent, MessageComplete
from mochi_server.protocol.fold import Fold, PartKind

from ..common.answers import extras_of
from ..common.encoder import TextEncoder
from .errors import SERVER_ERROR, error_object
from .history import block_of_data

STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
"""Reasons for the end of a reply that have a name here; all others are ``end_turn``."""

SIGNATURE = "bW9jaGk="
"""Of each block of thinking: clients want one, and the server needs none."""

PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_DELTA = {
    kind: b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,'
    b'"delta":{"type":"%b_delta","%b":' % (kind.encode(), kind.encode())
    for kind in ("text", "thinking")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFrame:
    """What a message says beside the answer."""

    message_id: str
    model: str
    shows_thinking: bool
    ignored_blocks: list[str]
    """Types of the blocks of the conversation that the model was not sent."""

    def extras(self, started: StartedRun, complete: MessageComplete) -> dict[str, Any]:
        """Return the field ``mochi``."""
        ignored = {"ignored_blocks": self.ignored_blocks} if self.ignored_blocks else {}
        return {**extras_of(started, complete), **ignored}


def message_of(started: StartedRun, fold: Fold, frame: AnswerFrame) -> dict[str, Any]:
    complete = fold.answer()
    content = [
        _text_block(kind, text)
        for kind, text in fold.joined_parts()
        if kind == "text" or frame.shows_thinking
    ]
    return {
        **_head(frame),
        "content": [*content, *_last_blocks(complete)],
        "stop_reason": _stop_reason(complete),
        "stop_sequence": complete.stop_sequence,
        "usage": _usage(complete),
        "mochi": frame.extras(started, complete),
    }


def _head(frame: AnswerFrame) -> dict[str, Any]:
    return {
        "id": frame.message_id,
        "type": "message",
        "role": "assistant",
        "model": frame.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(None),
    }


def _text_block(kind: PartKind, text: str, signature: str = SIGNATURE) -> dict[str, Any]:
    if kind == "thinking":
        return {"type": "thinking", "thinking": text, "signature": signature}
    return {"type": "text", "text": text}


def _last_blocks(complete: MessageComplete) -> list[dict[str, Any]]:
    """Return the calls of the client's tools, before them what the provider wants back."""
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
        for call in complete.client_calls
    ]
    data = complete.message.get("provider_data")
    return [block_of_data(data), *calls] if calls and isinstance(data, dict) else [*calls]


def _stop_reason(complete: MessageComplete) -> str:
    if complete.finish_reason == "stop" and complete.stop_sequence is not None:
        return "stop_sequence"
    return STOP_REASONS.get(complete.finish_reason or "", "end_turn")


def _usage(complete: MessageComplete | None) -> dict[str, int]:
    """Return the tokens of the last reply; 0 where they are not counted."""
    prompt = complete.prompt_eval_count if complete is not None else 0
    generated = complete.eval_count if complete is not None else 0
    return {
        "input_tokens": prompt or 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": generated or 0,
    }


def _event(name: str, **data: Any) -> bytes:  # noqa: ANN401 - JSON
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **data}))


class MessageEncoder(TextEncoder):
    """Encodes a run as the events of a message."""

    def __init__(self, started: StartedRun, frame: AnswerFrame) -> None:
        super().__init__(started)
        self._frame = frame
        self._index = 0
        """Number of the block that is open, or comes next."""
        self._open: PartKind | None = None
        self._delta = b""
        """The beginning of a delta of the open block."""

    def begin(self) -> bytes:
        return _event("message_start", message=_head(self._frame)) + PING

    def text(self, text: str) -> bytes:
        return self._piece("text", text)

    def thought(self, text: str) -> bytes:
        return self._piece("thinking", text) if self._frame.shows_thinking else b""

    def _piece(self, kind: PartKind, text: str) -> bytes:
        if kind == self._open:
            return b"%b%b}}\n\n" % (self._delta, orjson.dumps(text))
        if not text:
            return b""
        begin = self._close() + self._start(_text_block(kind, "", ""))
        self._open, self._delta = kind, _DELTA[kind] % self._index
        return begin + self._piece(kind, text)

    def _start(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _changed(self, **delta: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        self._index += 1
        return _event("content_block_stop", index=self._index - 1)

    def _close(self) -> bytes:
        """End the open block, if there is one."""
        if self._open is None:
            return b""
        is_thinking, self._open = self._open == "thinking", None
        signed = self._changed(type="signature_delta", signature=SIGNATURE) if is_thinking else b""
        return signed + self._stop()

    def fail(self, event: ErrorEvent) -> bytes:
        return b"event: error\ndata: %b\n\n" % orjson.dumps(
            error_object(event.message, event.code, SERVER_ERROR)
        )

    def end(self, complete: MessageComplete) -> bytes:
        closed = self._close()
        blocks = [self._block(block) for block in _last_blocks(complete)]
        end = _event(
            "message_delta",
            delta={
                "stop_reason": _stop_reason(complete),
                "stop_sequence": complete.stop_sequence,
            },
            usage=_usage(complete),
            mochi=self._frame.extras(self.started, complete),
        )
        return b"".join([closed, *blocks, end, _event("message_stop")])

    def _block(self, block: dict[str, Any]) -> bytes:
        """Encode a whole block; the input of a call is one delta."""
        if "input" not in block:
            return self._start(block) + self._stop()
        started = self._start({**block, "input": {}})
        text = orjson.dumps(block["input"]).decode()
        return started + self._changed(type="input_json_delta", partial_json=text) + self._stop()
