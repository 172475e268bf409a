"""The stage between a provider's chunks and the reply that finds calls in text.

Text flows on as it comes, but for what may be a call: that is held back until it is none, until it
is longer than a call may be, or until the reply ends and shows what it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import orjson

from ...core.ids import new_call_id
from ...core.limits import CALL_LEVELS, is_too_deep
from ...errors import JSONObject
from ...protocol.completions import Chunk, ContentDelta, Finish, is_in_full
from ...protocol.messages import ToolCall
from ...providers.text_thinking import UNOPENED
from .marks import MARK, begins_mark
from .offers import Offers
from .prose import TextEnd
from .reading import WrittenCall, read_calls
from .viability import may_be_calls

MOST_HELD: Final = 4096
"""Characters that are held back at most; a longer text is no call."""
MOST_REFUSED: Final = 1000
"""Places in a reply where a call may have begun and did not; there is none in one with more."""
MOST_REPEATS: Final = 3
"""Times that a model writes the same call in a reply, also among others, before it is stopped."""
MOST_BEFORE: Final = 1000
"""Characters before a call: what says more is an answer with an example in it."""

_END_OF_THINKING: Final = 64
"""Characters of the last lines in which thinking may have ended."""
_LEFT_OF_MARK: Final = ">"
"""The end of a mark whose beginning some templates take away, before a call that begins a reply."""
_MAY_BEGIN: Final = re.compile(r"[<\[{`>]")
_PIECE: Final = re.compile(r"[^}>)]*[}>)]|[^}>)]+")
"""A text up to what may be the end of a call."""
_TICKS: Final = re.compile(r"`*")
_EXAMPLE: Final = re.compile(
    r"\bexamples?\b|\be\.g\.|\bfor instance\b|\blooks? like\b"
    r"|\bbeispiel|\bexemple|\bejemplo|\besempio|\bexemplo|\bvoorbeeld|\bпример|例",
    re.IGNORECASE,
)
"""Words that say that what follows is shown, and not done."""


class TextCalls:
    """Finds the calls in the text of one reply."""

    def __init__(self, tools: Sequence[JSONObject]) -> None:
        self._offers = Offers(tools)
        self._held = ""
        self.is_over = False
        """Whether the model only repeats what it calls: it need not write any more."""
        self._refused = 0
        """Beginnings that were none."""
        self._is_off = False
        self._shown = ""
        """The beginning of what was shown, longer than what may stand before a call."""
        self._place = TextEnd()
        """The end of what was shown."""
        self._tail: str | None = "\n"
        """The end of a text that may yet turn out to have been thinking."""

    def add(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return what is known now: text that is no call, and at the end calls."""
        if self._is_off and self._tail is None:
            return chunks
        made: list[Chunk] = []
        for chunk in chunks:
            if self.is_over:
                break
            match chunk:
                case ContentDelta():
                    self._add(chunk.content, made)
                case ToolCall():  # the provider has read them itself
                    made += [*self.flush(), chunk]
                    self._is_off, self._tail = True, None
                case Finish():
                    made += [*self._end(chunk), chunk]
                case _:
                    self._tail = None
                    made.append(chunk)
        return made

    def flush(self) -> list[Chunk]:
        """Return what is held back as text, where the reply is cut off."""
        held, self._held = self._held, ""
        return [ContentDelta(held)] if held else []

    def _add(self, text: str, made: list[Chunk]) -> None:
        """Add a text; begin anew where all so far was thinking that the template had opened."""
        end = self._end_of_thinking(text)
        self._add_pieces(text[:end], made)
        if end is not None and not self.is_over:
            made += self.flush()
            self._tail, self._is_off, self._refused = None, False, 0
            self._shown, self._place = "", TextEnd()
            self._add_pieces(text[end:], made)

    def _end_of_thinking(self, text: str) -> int | None:
        if self._tail is None:
            return None
        tail = self._tail + text
        if (end := UNOPENED.search(tail)) is not None:
            return end.end() - len(self._tail)
        self._tail = tail[-_END_OF_THINKING:]
        return None

    def _add_pieces(self, text: str, made: list[Chunk]) -> None:
        """Add a text, up to each end of a call in turn: the model may be over with any."""
        if self._is_off or not (self._held or _MAY_BEGIN.search(text)):
            self._show(text)
            made += [ContentDelta(text)] if text else []
            return
        for piece in _PIECE.findall(text):
            if not self.is_over:
                self._add_piece(piece, made)

    def _add_piece(self, text: str, made: list[Chunk]) -> None:
        shown = text if self._is_off else self._free(self._held + text)
        made += [ContentDelta(shown)] if shown else []
        if self._held and text.endswith(("}", ">", ")")) and self._repeats():
            finish = Finish(reason="stop")
            made += [*self._end(finish), finish]
            self.is_over = True

    def _repeats(self) -> bool:
        calls = self._read(in_full=False)
        return bool(calls) and calls.count(calls[-1]) >= MOST_REPEATS

    def _read(self, *, in_full: bool) -> list[WrittenCall]:
        """Return the calls of what is held back, if it has nothing else."""
        text = self._held.removeprefix(_LEFT_OF_MARK)
        is_tool = self._offers.name_of if self._is_first else None
        return read_calls(text, in_full=in_full, results_unless=is_tool) or []

    def _free(self, text: str) -> str:
        """Hold back what may be a call, and return what is before it."""
        shown = 0
        self._held = ""
        while shown < len(text):
            if len(self._shown) > MOST_BEFORE:
                self._is_off = True
                return text
            end = min(shown + MOST_BEFORE + 1, len(text))
            start = self._begin(text, shown, end)
            self._show(text[shown:start])
            shown = start
            if start == end:
                continue
            held = text[start : start + MOST_HELD + 1]
            if self._may_be_call(held):
                if len(held) > MOST_HELD:
                    self._is_off = True
                    return text
                self._held = held
                return text[:start]
            self._refused += 1
            if self._refused > MOST_REFUSED:
                self._is_off = True
                return text
            ticks = _TICKS.match(held)
            end = start + (max(1, ticks.end()) if ticks else 1)
            self._show(text[start:end])
            shown = end
        return text

    def _begin(self, text: str, start: int, end: int) -> int:
        """Return where a call may begin, from ``start``; the end for nowhere before it."""
        place, seen = replace(self._place), start
        for match in _MAY_BEGIN.finditer(text, start, end):
            at = match.start()
            place.add(text[seen:at])
            seen = at
            if match[0] == _LEFT_OF_MARK:
                if self._is_first and not text[start:at].strip():
                    return at
            elif match[0] == "`":
                if place.begins_line:
                    return at
            elif place.is_code or place.is_quoted:
                continue
            elif place.begins_line or begins_mark(text, at):
                return at
        return end

    def _may_be_call(self, held: str) -> bool:
        call = held.removeprefix(_LEFT_OF_MARK)
        if call[:1].isspace():  # a quotation
            return False
        return may_be_calls(call, self._offers, with_results=self._is_first)

    @property
    def _is_first(self) -> bool:
        """Whether nothing was said before."""
        return not self._shown

    def _show(self, text: str) -> None:
        """Take note of what readers get."""
        if len(self._shown) <= MOST_BEFORE:
            self._shown = (self._shown + text).lstrip()
            self._place.add(text)

    def _end(self, finish: Finish) -> list[Chunk]:
        calls = self._calls(finish) if self._held else []
        if not calls:
            return self.flush()
        self._held = ""
        return [*calls]

    def _calls(self, finish: Finish) -> list[ToolCall]:
        """Return the calls of what is held back; none if anything in it is not surely a call."""
        before = self._shown
        if len(before) > MOST_BEFORE or _EXAMPLE.search(before):
            return []
        is_surely_meant = not before or MARK.search(self._held) is not None
        calls: list[ToolCall] = []
        seen: list[WrittenCall] = []
        for written in self._read(in_full=is_in_full(finish.reason)):
            if written in seen:
                continue
            seen.append(written)
            name = self._offers.name_of(written.name)
            if name is None:
                return []
            arguments = as_kept(self._offers.arguments_of(name, written))
            if arguments is None or self._offers.is_definition(name, arguments):
                return []
            if not is_surely_meant and not self._offers.fits(name, arguments):
                return []
            calls.append(ToolCall(id=new_call_id(), name=name, arguments=arguments, recovered=True))
        return calls


def as_kept(arguments: JSONObject) -> JSONObject | None:
    """Return arguments as JSON that every reader of a session's file can read, if they can be.

    Whole numbers beyond 64 bits become floats.
    """
    if is_too_deep(arguments, CALL_LEVELS):
        return None
    try:
        kept: JSONObject = orjson.loads(json.dumps(arguments, allow_nan=False))
    except ValueError:
        return None
    return kept
