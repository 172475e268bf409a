"""What models put around calls that they write as text, by the templates that they learned."""

from __future__ import annotations

import re
from typing import Final

_TAGS = (
    *("tool_call", "tool_calls", "toolcall", "tool_code", "tool_request", "tools"),
    *("function_call", "function_calls", "functioncall", "json", "response"),
)
_PIPES = (
    *("python_tag", "tool_call", "tool_calls", "call", "START_ACTION", "END_ACTION"),
    *("tool_call_begin", "tool_call_end", "tool_calls_begin", "tool_calls_end"),
    *("tool_calls_section_begin", "tool_calls_section_end"),
    *("eom_id", "eot_id", "im_end", "im_start", "end", "endoftext", "end_of_text"),
)
_DEEPSEEK = ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "outputs▁begin")
_ENDS = ("<｜end▁of▁sentence｜>", "<end_of_turn>", "</s>")
_BRACKETS = ("TOOL_CALLS", "TOOL_CALL", "TOOL_REQUEST", "END_TOOL_REQUEST", "CALL_ID")
_FENCES_OF_CALLS = ("tool_call", "tool_calls", "tool_code", "tool", "function_call")

MARKS: Final[tuple[str, ...]] = (
    *(f"<{slash}{tag}>" for tag in _TAGS for slash in ("", "/")),
    *(f"<|{slash}{word}|>" for word in _PIPES for slash in ("", "/")),
    *(f"<｜tool▁{words}｜>" for words in _DEEPSEEK),
    *_ENDS,
    *(f"[{slash}{word}]" for word in _BRACKETS for slash in ("", "/")),
    *(f"```{language}" for language in _FENCES_OF_CALLS),
)
"""Words that stand before, between and behind calls, and say nothing else."""

XML: Final = ("<function=", "<invoke ")
"""Beginnings of calls in XML, which may lack the tag around them."""

ARGUMENTS: Final = ("<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "[ARGS]")
"""Words between the name of a tool and its arguments."""

FENCES: Final = ("", "json", "xml", *_FENCES_OF_CALLS)
"""Languages of fences that may have calls; the empty one is a fence without a language."""

_mark = "|".join(map(re.escape, sorted(MARKS, key=len, reverse=True)))
MARK: Final = re.compile(_mark)
BETWEEN: Final = re.compile(rf"(?:\s|[,;]|{_mark}|```(?i:json|xml)?(?!\w))*")
"""What may stand around calls. A fence in another language is not among it."""

CLOSING: Final = re.compile(r"[}\])\s`]*")
"""What may be left behind the last call."""

_BEGIN: Final = re.compile("|".join(map(re.escape, (*MARKS, *XML))))
_PARTS: Final = frozenset(mark[:size] for mark in (*MARKS, *XML) for size in range(1, len(mark)))
_LONGEST: Final = max(map(len, _PARTS))


def begins_mark(text: str, start: int = 0) -> bool:
    """Return whether a mark begins there, or what has come so far may become one."""
    is_part = len(text) - start <= _LONGEST and text[start:] in _PARTS
    return is_part or _BEGIN.match(text, start) is not None
