"""Encodes a run as Ollama's answers: one object, or lines of JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal

import orjson

from mochi_server.chat.control import StartedRun
from mochi_server.chat.runs.log import Numbered
from mochi_server.protocol.events import ErrorEvent, MessageComplete
from mochi_server.protocol.fold import Fold

from ..common.answers import extras_of
from ..common.encoder import TextEncoder
from .errors import error_object

Kind = Literal["chat", "generate"]


LINE_ENDS = tuple(
    (character.encode(), b"\\u%04x" % ord(character)) for character in "\x85\u2028\u2029"
)
"""Characters that clients in Python take for ends of lines, and how they are written instead."""


class AnswerEncoder(TextEncoder):
    """Encodes a run as lines of JSON, the last with ``done``."""

    content_type: ClassVar[str] = "application/x-ndjson"
    ping: ClassVar[bytes] = b""

    def __init__(
        self,
        started: StartedRun,
        kind: Kind,
        *,
        model: str,
        ignored: Sequence[str] = (),
    ) -> None:
        super().__init__(started)
        self._kind = kind
        self._model = model
        self._ignored = ignored
        self._began = time.monotonic()

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode a batch; what has no place on this wire is left out."""
        lines = super().__call__(batch)
        for raw, escaped in LINE_ENDS:
            if raw in lines:
                lines = lines.replace(raw, escaped)
        return lines

    def text(self, text: str) -> bytes:
        return self._line(content=text)

    def thought(self, text: str) -> bytes:
        return self._line(thinking=text)

    def _line(self, content: str = "", **more: Any) -> bytes:  # noqa: ANN401 - JSON
        line = self._answer(content, done=False, **more)
        return orjson.dumps(line) + b"\n"

    def fail(self, event: ErrorEvent) -> bytes:
        return orjson.dumps(error_object(event.message)) + b"\n"

    def end(self, complete: MessageComplete) -> bytes:
        lines = [self._line(tool_calls=calls)] if (calls := _calls(complete)) else []
        lines.append(orjson.dumps(self._last("", complete)) + b"\n")
        return b"".join(lines)

    def whole(self, fold: Fold) -> dict[str, Any]:
        """Return the run as one object."""
        more: dict[str, Any] = {}
        if thinking := fold.text_of("thinking"):
            more["thinking"] = thinking
        if calls := _calls(fold.answer()):
            more["tool_calls"] = calls
        return self._last(fold.text_of("text"), fold.answer(), **more)

    def _last(
        self,
        content: str,
        complete: MessageComplete,
        **more: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        extras = extras_of(self.started, complete)
        if self._ignored:
            extras["ignored_options"] = [*extras.get("ignored_options", ()), *self._ignored]
        nanoseconds = int((time.monotonic() - self._began) * 1e9)
        return {
            **self._answer(content, done=True, **more),
            "done_reason": "length" if complete.finish_reason == "length" else "stop",
            "total_duration": nanoseconds,
            "load_duration": 0,
            "prompt_eval_count": complete.prompt_eval_count or 0,
            "prompt_eval_duration": 0,
            "eval_count": complete.eval_count or 0,
            "eval_duration": nanoseconds,
            "mochi": extras,
        }

    def _answer(self, content: str, *, done: bool, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        return _object(self._model, self._kind, content, done=done, **more)


def loaded_object(model: str, kind: Kind, reason: Literal["load", "unload"]) -> dict[str, Any]:
    """Return the answer to a request that only loads its model, or unloads it."""
    return {**_object(model, kind, "", done=True), "done_reason": reason}


def _object(
    model: str,
    kind: Kind,
    content: str,
    *,
    done: bool,
    **more: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    said: dict[str, Any] = (
        {"message": {"role": "assistant", "content": content, **more}}
        if kind == "chat"
        else {"response": content, **more}
    )
    return {"model": model, "created_at": _now(), **said, "done": done}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def _calls(complete: MessageComplete) -> list[dict[str, Any]]:
    return [
        {
            "id": call["id"],
            "function": {"index": index, "name": call["name"], "arguments": call["arguments"]},
        }
        for index, call in enumerate(complete.client_calls)
    ]
