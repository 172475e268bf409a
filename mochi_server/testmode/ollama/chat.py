"""Chunks as Ollama's stream: one JSON object a line, tool calls whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..chunks import Abort, CallDelta, Delta, End, ScriptedChunk
from ..reply import ReplyRequest
from ..script import ScriptedError
from .answers import Body, as_go_reads, kind_of
from .rules import limit_of

CREATED: Final = "2025-01-01T00:00:00.123456789Z"
"""The moment that every line gives: a clock would make two streams differ."""

NANOSECONDS: Final = 20_000_000
"""What each token is said to have taken."""


def reply_request(body: Body, *, thinks: bool, window: int) -> ReplyRequest:
    """A request's body, as far as it matters."""
    wanted = body.get("format") or None
    schema = {"type": "object"} if wanted == "json" else wanted
    said = body.get("messages") or ()
    return ReplyRequest(
        messages=[{**message, "role": str(message.get("role")).lower()} for message in said],
        tools=body.get("tools") or (),
        schema=schema,
        thinks=thinks,
        must_think=bool(body.get("think")),
        window=window,
        limit=limit_of(body),
    )


def line(model: str, message: Body) -> Body:
    """A line of a stream but for its last one; ``model`` is as the request names it."""
    whole = {"role": "assistant", **message}
    return {"model": model, "created_at": CREATED, "message": whole, "done": False}


def last_line(model: str, message: Body, reason: str | None, metrics: Body | None = None) -> Body:
    """The last one. What is zero or empty is left out, as Go does it."""
    told = {"done_reason": reason, **(metrics or {})}
    filled = {key: value for key, value in told.items() if value}
    return {**line(model, message), "done": True, **filled}


def called(index: int, name: str, arguments: Body, call_id: str | None) -> Body:
    """A tool call; before 0.12.10 it had no id."""
    function = {"index": index, "name": name, "arguments": arguments}
    return {"id": call_id, "function": function} if call_id else {"function": function}


def metrics_of(
    prompt: int, generated: int, *, load: int = NANOSECONDS, per_token: int = NANOSECONDS
) -> Body:
    """What the last line says of a reply.

    Args:
        prompt: tokens of the prompt.
        generated: tokens of the reply.
        load: nanoseconds that it took to load the model.
        per_token: nanoseconds that each token took.
    """
    times = (prompt * per_token, generated * per_token)
    return {
        "total_duration": load + sum(times),
        "load_duration": load,
        "prompt_eval_count": prompt,
        "prompt_eval_duration": times[0],
        "eval_count": generated,
        "eval_duration": times[1],
    }


class OllamaStream:
    """Writes one stream. Several streams of a script become one, their texts as paragraphs."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._speaker: dict[str, int] = {}
        self._arguments = ""
        self._name = ""
        self._calls = 0

    def encode(self, chunk: ScriptedChunk) -> Iterator[Body]:
        """The lines of a chunk; an error is the last one, whatever follows."""
        match chunk:
            case Delta():
                yield self._said(chunk)
            case CallDelta():
                yield from self._called(chunk)
            case Abort(failure=ScriptedError() as failure):
                yield {"error": failure.message}
            case End():
                yield self._end(chunk)
            case _:
                pass

    def _said(self, chunk: Delta) -> Body:
        before = self._speaker.get(chunk.kind, chunk.choice)
        self._speaker[chunk.kind] = chunk.choice
        text = chunk.text if before == chunk.choice else f"\n\n{chunk.text}"
        if chunk.kind == "content":
            return line(self._model, {"content": text})
        return line(self._model, {"content": "", "thinking": text})

    def _called(self, piece: CallDelta) -> Iterator[Body]:
        self._name = piece.name or self._name
        self._arguments += piece.arguments
        if not piece.last:
            return
        text, self._arguments = self._arguments or "{}", ""
        index, self._calls = self._calls, self._calls + 1
        try:
            arguments = _arguments_in(text)
        except ValueError as error:
            yield {"error": f"error parsing tool call: raw='{text}', err={error}"}
            return
        call = called(index, self._name, arguments, piece.id)
        yield line(self._model, {"content": "", "tool_calls": [call]})

    def _end(self, end: End) -> Body:
        wanted = end.reasons[-1][1]
        reason = "stop" if wanted == "tool_calls" else wanted
        metrics = metrics_of(end.prompt_tokens, end.completion_tokens)
        return last_line(self._model, {"content": ""}, reason, metrics)


def _arguments_in(text: str) -> Body:
    found = as_go_reads(text, "unexpected end of JSON input")
    if isinstance(found, dict):
        return found
    go = "Go value of type api.ToolCallFunctionArguments"
    raise ValueError(f"json: cannot unmarshal {kind_of(found)} into {go}")


def joined(lines: list[Body]) -> Body:
    """One answer from all lines, for a request that wants no stream."""
    messages = [found["message"] for found in lines]
    whole: Body = {"role": "assistant", "content": "".join(m["content"] for m in messages)}
    if thinking := "".join(message.get("thinking", "") for message in messages):
        whole["thinking"] = thinking
    if calls := [call for message in messages for call in message.get("tool_calls", ())]:
        whole["tool_calls"] = calls
    return {**lines[-1], "message": whole}
