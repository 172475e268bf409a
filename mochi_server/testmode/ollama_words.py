"""Beats as Ollama's stream: one JSON object a line, tool calls whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from .beats import Beat, CallPiece, Cut, End, Said
from .reply import Asked
from .script import Failure

CREATED: Final = "2025-01-01T00:00:00Z"
"""The moment that every line gives: a clock would make two streams differ."""

NANOSECONDS: Final = 20_000_000
"""What each token is said to have taken."""

Line = dict[str, Any]


def asked_by(body: Mapping[str, Any]) -> Asked:
    """A request's body, as far as it matters."""
    wanted = body.get("format") or None
    schema = {"type": "object"} if wanted == "json" else wanted
    messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
    return Asked(messages=messages, tools=body.get("tools") or (), schema=schema)


class OllamaWords:
    """Writes one stream. Several streams of a script become one, their texts as paragraphs."""

    def __init__(self, model: str, *, thinks: bool) -> None:
        """Begin.

        Args:
            model: as the request names it.
            thinks: whether thinking is sent.
        """
        self._model = model
        self._thinks = thinks
        self._speaker: dict[str, int] = {}
        self._arguments = ""
        self._name = ""
        self._calls = 0

    def say(self, beat: Beat) -> Iterator[Line]:
        """The lines of a beat; an error is the last one, whatever follows."""
        match beat:
            case Said():
                yield from self._said(beat)
            case CallPiece():
                yield from self._called(beat)
            case Cut(failure=Failure() as failure):
                yield {"error": failure.message}
            case End():
                yield self._end(beat)
            case _:
                pass

    def _said(self, beat: Said) -> Iterator[Line]:
        before = self._speaker.get(beat.kind, beat.choice)
        self._speaker[beat.kind] = beat.choice
        text = beat.text if before == beat.choice else f"\n\n{beat.text}"
        if beat.kind == "content":
            yield self._line({"content": text})
        elif self._thinks:
            yield self._line({"content": "", "thinking": text})

    def _called(self, piece: CallPiece) -> Iterator[Line]:
        self._name = piece.name or self._name
        self._arguments += piece.arguments
        if not piece.last:
            return
        text, self._arguments = self._arguments or "{}", ""
        index, self._calls = self._calls, self._calls + 1
        try:
            arguments = json.loads(text)
        except json.JSONDecodeError as error:
            yield {"error": f"error parsing tool call: raw='{text}', err={error}"}
            return
        function = {"index": index, "name": self._name, "arguments": arguments}
        yield self._line({"content": "", "tool_calls": [{"id": piece.id, "function": function}]})

    def _line(self, message: Line) -> Line:
        whole = {"role": "assistant", **message}
        return {"model": self._model, "created_at": CREATED, "message": whole, "done": False}

    def _end(self, end: End) -> Line:
        wanted = end.reasons[-1][1]
        return {
            **self._line({"content": ""}),
            "done": True,
            "done_reason": "stop" if wanted == "tool_calls" else wanted,
            "total_duration": (end.prompt_tokens + end.completion_tokens) * NANOSECONDS,
            "load_duration": NANOSECONDS,
            "prompt_eval_count": end.prompt_tokens,
            "prompt_eval_duration": end.prompt_tokens * NANOSECONDS,
            "eval_count": end.completion_tokens,
            "eval_duration": end.completion_tokens * NANOSECONDS,
        }


def encoded(line: Line) -> bytes:
    """A line of the stream."""
    return orjson.dumps(line) + b"\n"


def joined(lines: list[Line]) -> Line:
    """One answer from all lines, for a request that wants no stream."""
    whole: Line = {"role": "assistant", "content": ""}
    for message in (line["message"] for line in lines):
        for key in ("content", "thinking"):
            if key in message:
                whole[key] = whole.get(key, "") + message[key]
        if "tool_calls" in message:
            whole.setdefault("tool_calls", []).extend(message["tool_calls"])
    return {**lines[-1], "message": whole}
