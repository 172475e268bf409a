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
    """So many words of lorem ipsum, or exactly this text; before it thinking, likewise."""
    found: Step = _wording(length if exactly is None else exactly)
    if reasoning is not None:
        found["reasoning"] = _wording(reasoning)
    return {"text_message": found}


def _wording(wanted: int | str | None) -> Step:
    return {"text": wanted} if isinstance(wanted, str) else {"length": wanted}


def call(name: str, /, **arguments: Any) -> Step:  # noqa: ANN401 - any JSON
    """A call of a tool; for several at once, ``calls``."""
    return calls((name, arguments))


def calls(*named: tuple[str, dict[str, Any]]) -> Step:
    """Calls of tools side by side."""
    return {"tool_call": [{"name": name, "args": arguments} for name, arguments in named]}


def malformed_call(name: str, arguments: str) -> Step:
    """A call whose arguments are sent as they stand here."""
    return {"malformed_tool_call": {"name": name, "arguments": arguments}}


def error(status: int = 500, *, after_words: int | None = None, **fields: Any) -> Step:  # noqa: ANN401
    """The provider fails; ``message``, ``code``, ``retry_after`` as it would say them."""
    return {"error": {"status": status, "after_words": after_words, **fields}}


def stall(seconds: float, *, after_words: int | None = None) -> Step:
    """Silence."""
    return {"stall": {"seconds": seconds, "after_words": after_words}}


def cut(kind: Literal["cancel", "disconnect"], *, after_words: int | None = None) -> Step:
    """The reply breaks off: its stream ends too early, or its connection breaks."""
    return {kind: {"after_words": after_words}}


def usage(prompt_tokens: int, completion_tokens: int) -> Step:
    """What the provider says it has counted."""
    return {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}}


def finish_reason(reason: str) -> Step:
    """Why the reply ends, such as ``length``."""
    return {"finish_reason": reason}


def instructions(
    *items: Step,
    then: Sequence[Sequence[Step]] = (),
    id_message: str | None = None,
    reasoning: int | str | None = None,
    lasting: bool = False,
) -> str:
    """A message's instruction block.

    Args:
        items: the reply; without any, the first one of ``then``.
        then: the replies that follow, each after the results of the tools.
        id_message: stands before and behind each text.
        reasoning: thinking before each text: so many words, or exactly this.
        lasting: whether the block also holds for later messages.

    Raises:
        ValueError: this is no script; the text names the place.
    """
    found: dict[str, Any] = {"messages": list(items), "steps": [list(step) for step in then]}
    if then and not items:
        del found["messages"]
    if id_message is not None:
        found["id_message"] = id_message
    if reasoning is not None:
        found["reasoning"] = _wording(reasoning)
    if lasting:
        found["lasting"] = True
    Script.model_validate(found)
    return f"{START}{orjson.dumps(found).decode()}{END}"
