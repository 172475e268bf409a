"""Lines of Ollama's stream: one JSON object each, tool calls whole."""

from __future__ import annotations

from typing import Final

from .answers import Body

CREATED: Final = "2025-01-01T00:00:00.123456789Z"
"""The moment that every line gives: a clock would make two streams differ."""

NANOSECONDS: Final = 20_000_000
"""What each token is said to have taken."""


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
