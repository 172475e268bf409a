"""The stage for a reply that was demanded to be a call, and was held to the form of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...core.ids import new_call_id
from ...core.json_text import objects_in, repair_json
from ...errors import JSONObject
from ...protocol.completions import Chunk, ContentDelta, Finish, ThinkingDelta, is_in_full
from ...protocol.messages import ToolCall
from ...providers.text_thinking import split_unopened
from .offers import Offers
from .reading import NAMES, WRAPPERS, WrittenCall, calls_of_value, read_calls
from .stage import as_kept

MOST_HELD: Final = 10**6
"""Characters that are held back at most; a longer text is no call."""


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
        self._is_called = False
        """Whether the provider has read a call itself."""

    def add(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return what is no text, and at the end the call, or several that differ."""
        made: list[Chunk] = []
        for chunk in chunks:
            match chunk:
                case ContentDelta() if self._size <= MOST_HELD:
                    self._held.append(chunk.content)
                    self._size += len(chunk.content)
                    if self._size > MOST_HELD:
                        made += self.flush()
                case Finish():
                    made += [*self._end(in_full=is_in_full(chunk.reason)), chunk]
                case _:
                    self._is_called |= isinstance(chunk, ToolCall)
                    made.append(chunk)
        return made

    def flush(self) -> list[Chunk]:
        """Return what is held back as text, where it is no call."""
        held = "".join(self._held)
        self._held = []
        return [ContentDelta(held)] if held else []

    def _end(self, *, in_full: bool) -> Sequence[Chunk]:
        text = "".join(self._held)
        thinking, text = split_unopened(text) or ("", text)
        calls = self._calls(text.strip(), in_full=in_full)
        if not calls:
            return self.flush()
        thought = [ThinkingDelta(thinking)] if thinking else []
        return [*thought, *(() if self._is_called else calls)]

    def _calls(self, text: str, *, in_full: bool) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for each in self._written(text, in_full=in_full):
            name = self._offers.name_of(each.name)
            kept = None if name is None else as_kept(self._offers.arguments_of(name, each))
            if name is None or kept is None:
                return []
            if not any((call.name, call.arguments) == (name, kept) for call in calls):
                calls.append(ToolCall(id=new_call_id(), name=name, arguments=kept, recovered=True))
        return calls

    def _written(self, text: str, *, in_full: bool) -> list[WrittenCall]:
        objects = objects_in(text, in_full=in_full)
        if not objects and in_full and isinstance(value := repair_json(text), dict):
            objects = [value]
        calls = read_calls(text, in_full=in_full) or _calls_of(objects)
        only = self._offers.only
        if only is None:
            return calls or self._named(objects)
        are_named = bool(calls) and all(self._offers.name_of(call.name) for call in calls)
        if are_named and not any(self._offers.names_parameters(only, each) for each in objects):
            return calls
        return [WrittenCall(only, self._offers.unwrapped(only, each)) for each in objects]

    def _named(self, objects: Sequence[JSONObject]) -> list[WrittenCall]:
        """Return the calls of objects that have a tool's name as their only key, or its value."""
        calls: list[WrittenCall] = []
        for each in objects:
            written = next((each[key] for key in WRAPPERS if [*each] == [key]), each)
            if not isinstance(written, dict) or len(written) != 1:
                return []
            [(key, value)] = written.items()
            name = self._offers.name_of(str(value) if key in NAMES else key)
            if name is None or (found := self._offers.unwrapped(name, written)) == written:
                return []
            calls.append(WrittenCall(name, found))
        return calls


def _calls_of(objects: Sequence[JSONObject]) -> list[WrittenCall]:
    try:
        return [*calls_of_value([*objects])]
    except ValueError:
        return []
