"""Thinking that a server leaves in the text of a reply, between tags at its beginning.

Servers without a parser for a model's template send it so: ``<think>…</think>`` before the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from ..protocol.completions import Chunk, ContentDelta, ThinkingDelta

TAGS: Final = {"<think>": "</think>", "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}
"""Closing tags by those that open."""
UNOPENED: Final = re.compile(r"\n[ \t]{0,20}</think(?:ing)?>[ \t]{0,20}\r?\n")
"""The end of thinking that a template has opened, in a text behind a line break."""

_OPEN: Final = "|".join(map(re.escape, TAGS))
_BEGIN: Final = re.compile(rf"\s*({_OPEN})?")
_LONGEST: Final = max(map(len, TAGS.values()))
_MOST_HELD: Final = 1000
"""Characters of white space that are held back at most."""


class _State(Enum):
    """How far the text of a reply has come."""

    BEGIN = auto()
    """There may yet be a tag."""
    OPENED = auto()
    """Nothing is behind the tag but white space, which is dropped."""
    THINKING = auto()
    CLOSED = auto()
    """The same behind the tag that closes."""
    ANSWER = auto()
    """All that follows is as it comes."""


class TextThinking:
    """Takes the thinking out of the text of one reply."""

    def __init__(self) -> None:
        self._state = _State.BEGIN
        self._held = ""
        """Text of which is not known what it is."""
        self._end = ""
        """The tag that closes the thinking."""

    def add(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return what is known now: thinking, and the text behind it."""
        if self._state is _State.ANSWER:
            return chunks
        made: list[Chunk] = []
        for chunk in chunks:
            if self._state is _State.ANSWER:
                made.append(chunk)
            elif isinstance(chunk, ContentDelta):
                self._add_text(self._held + chunk.content, made)
            else:
                made += [*self.flush(), chunk]
                if not isinstance(chunk, ThinkingDelta) or self._state is _State.BEGIN:
                    self._state = _State.ANSWER
        return made

    def flush(self) -> list[Chunk]:
        """Return what is held back, where the reply ends or is cut off."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [ContentDelta(held) if self._state is _State.BEGIN else ThinkingDelta(held)]

    def _add_text(self, text: str, made: list[Chunk]) -> None:
        self._held = ""
        if self._state is _State.BEGIN:
            self._begin(text, made)
        elif self._state is _State.CLOSED:
            self._answer(text, made)
        else:
            self._think(text, made)

    def _begin(self, text: str, made: list[Chunk]) -> None:
        begin = _BEGIN.match(text)
        assert begin is not None  # noqa: S101 - it fits nothing as well
        rest = text[begin.end() :]
        if begin[1]:
            self._state, self._end = _State.OPENED, TAGS[begin[1]]
            self._think(rest, made)
        elif len(text) < _MOST_HELD and any(tag.startswith(rest) for tag in TAGS):
            self._held = text
        else:
            self._state = _State.ANSWER
            made.append(ContentDelta(text))

    def _think(self, text: str, made: list[Chunk]) -> None:
        if self._state is _State.OPENED:
            text = text.lstrip()
        thought, end, rest = text.partition(self._end)
        if end:
            thought = thought.rstrip()
        else:  # white space, and what may be a part of the tag, can yet be of the end
            begun = (size for size in range(_LONGEST) if text.endswith(self._end[:size]))
            kept = len(text[: len(text) - max(begun)].rstrip())
            if len(text) - kept < _MOST_HELD:
                thought, self._held = text[:kept], text[kept:]
        if thought:
            self._state = _State.THINKING
            made.append(ThinkingDelta(thought))
        if end:
            self._state = _State.CLOSED
            self._answer(rest, made)

    def _answer(self, text: str, made: list[Chunk]) -> None:
        if answer := text.lstrip():
            self._state = _State.ANSWER
            made.append(ContentDelta(answer))


def split_unopened(text: str) -> tuple[str, str] | None:
    """Return thinking and answer of a whole text that has the closing tag alone, in a line.

    Templates that open the thinking themselves leave only that in the reply.
    """
    text = f"\n{text}"
    end = UNOPENED.search(text)
    if end is None:
        return None
    return text[: end.start()].strip(), text[end.end() :].lstrip()
