"""Writes instruction blocks, so that a test need not write JSON by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import orjson

from .script import END, START, Script

Step = dict[str, Any]
"""One item of a reply, as the functions below make it."""


def text(
    length: int | None = None, *, exactly: str | None = None, reasoning: int | str | None = None
) -> Step:
    """Reply with a number of words of lorem ipsum or with exactly this text, after thinking."""
    message: Step = _wording(length if exactly is None else exactly)
    if reasoning is not None:
        message["reasoning"] = _wording(reasoning)
    return {"text_message": message}


def _wording(text: int | str | None) -> Step:
    return {"text": text} if isinstance(text, str) else {"length": text}


def call(name: str, /, **arguments: Any) -> Step:  # noqa: ANN401 - any JSON
    """Call a tool; ``calls`` is for several at once."""
    return calls((name, arguments))


def calls(*named: tuple[str, dict[str, Any]]) -> Step:
    """Call several tools side by side."""
    return {"tool_call": [{"name": name, "args": arguments} for name, arguments in named]}


def malformed_call(name: str, arguments: str) -> Step:
    """Call a tool with arguments that are sent as written, even if they are invalid JSON."""
    return {"malformed_tool_call": {"name": name, "arguments": arguments}}


def error(status: int = 500, *, after_words: int | None = None, **fields: Any) -> Step:  # noqa: ANN401
    """Let the provider fail; the fields are ``message``, ``code`` and ``retry_after``."""
    return {"error": {"status": status, "after_words": after_words, **fields}}


def stall(seconds: float, *, after_words: int | None = None) -> Step:
    """Send nothing for a while."""
    return {"stall": {"seconds": seconds, "after_words": after_words}}


def cut(kind: Literal["cancel", "disconnect"], *, after_words: int | None = None) -> Step:
    """Break the reply off: its stream ends too early, or its connection breaks."""
    return {kind: {"after_words": after_words}}


def usage(prompt_tokens: int, completion_tokens: int) -> Step:
    """Set the token counts that the provider reports."""
    return {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}}


def finish_reason(reason: str) -> Step:
    """Set the finish reason of the reply, such as ``length``."""
    return {"finish_reason": reason}


def instructions(
    *items: Step,
    then: Sequence[Sequence[Step]] = (),
    id_message: str | None = None,
    reasoning: int | str | None = None,
    lasting: bool = False,
) -> str:
    """Return an instruction block, to be put into a message.

    Args:
        items: The reply; without any, the first one of ``then``.
        then: The replies that follow, each after the results of the tools.
        id_message: Text before and after each reply's text.
        reasoning: Thinking before each text: a number of words, or exactly this.
        lasting: Whether the block also applies to later messages.

    Raises:
        ValueError: This is no script; the text names the place.
    """
    script: dict[str, Any] = {"messages": list(items), "steps": [list(step) for step in then]}
    if then and not items:
        del script["messages"]
    if id_message is not None:
        script["id_message"] = id_message
    if reasoning is not None:
        script["reasoning"] = _wording(reasoning)
    if lasting:
        script["lasting"] = True
    Script.model_validate(script)
    return f"{START}{orjson.dumps(script).decode()}{END}"
