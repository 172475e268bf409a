"""The stage for a reply that was demanded to be a call, and was held to the form of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...core.ids import new_call_id
from ...core.json_text import read_json, repair_json
from ...errors import JSONObject
from ...protocol.completions import Chunk, ContentDelta, Finish
from ...protocol.messages import ToolCall
from .offers import Offers
from .reading import WrittenCall, read_calls
from .stage import as_kept

MOST_HELD: Final = 10**6
"""Characters that are held back at most; a longer text is no call."""

_FENCE: Final = re.compile(r"^```\w*|```$")  # of a server that ignores the form


class DemandedCall:
    """Takes the call from the text of one reply, which nobody sees unless it is none.

    Args:
        tools: The tools of which one must be called. Of one alone the text has the arguments.
    """

    is_over: Final = False

    def __init__(self, tools: Sequence[JSONObject]) -> None:
        self._offers = Offers(tools)
        self._held: list[str] = []
        self._size = 0

    def add(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return what is no text, and the call at the end."""
        made: list[Chunk] = []
        for chunk in chunks:
            match chunk:
                case ContentDelta() if self._size <= MOST_HELD:
                    self._held.append(chunk.content)
                    self._size += len(chunk.content)
                    if self._size > MOST_HELD:
                        made += self.flush()
                case Finish():
                    calls = self._calls(in_full=chunk.reason != "length")
                    made += [*(calls or self.flush()), chunk]
                case _:
                    made.append(chunk)
        return made

    def flush(self) -> list[Chunk]:
        """Return what is held back as text, where it is no call."""
        held = "".join(self._held)
        self._held = []
        return [ContentDelta(held)] if held else []

    def _calls(self, *, in_full: bool) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for each in self._written("".join(self._held).strip(), in_full=in_full):
            name = self._offers.name_of(each.name)
            kept = None if name is None else as_kept(self._offers.arguments_of(name, each))
            if name is None or kept is None:
                return []
            calls.append(ToolCall(id=new_call_id(), name=name, arguments=kept))
        return calls

    def _written(self, text: str, *, in_full: bool) -> list[WrittenCall]:
        only = self._offers.only
        calls = read_calls(text, in_full=in_full) or []
        if only is None:
            return calls
        value = read_json(_FENCE.sub("", text))
        if value is None and in_full:
            value = repair_json(text)
        is_fitting = isinstance(value, dict) and self._offers.fits(only, value)
        if not is_fitting and calls and all(self._offers.name_of(call.name) for call in calls):
            return calls
        return [WrittenCall(only, value)] if isinstance(value, dict) else []
