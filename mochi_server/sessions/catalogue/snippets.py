"""The passage that shows why a session was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from .document import SearchDocument
from .query import Query, Term
from .text_folding import fold, together

SHOWN = 160
"""Characters of a passage, about."""

_BEFORE = 40
_LOOKED_AT = 30
"""Places of each term that are considered."""

_AT_ONCE = 20
"""Of them, marked in one passage."""

PLACES = ("user", "assistant", "summary", "tool", "tags", "title")
"""Where passages are taken from, the most telling first."""


class Part(NamedTuple):
    """A stretch of a passage."""

    text: str
    match: bool


class Passage(NamedTuple):
    """Where the words are found, and what stands around them."""

    found_in: str | None
    """A column of the index; None where nothing can be marked."""
    parts: list[Part]


class _Window(NamedTuple):
    """The most different terms within a passage's length."""

    terms: int
    place: str
    text: str
    marks: list[tuple[int, int]]


def passage_of(document: SearchDocument, query: Query) -> Passage:
    """The best passage: with the most of the words, then of the most telling place."""
    terms = tuple(dict.fromkeys(query.required))
    best: _Window | None = None
    for place in PLACES if terms else ():
        window = _best_in(place, together(getattr(document, place)), terms)
        if window is not None and (best is None or window.terms > best.terms):
            best = window
            if best.terms == len(terms):
                break
    if best is None:
        return Passage(None, _beginning(document))
    return Passage(best.place, [*_parts(best.text, best.marks)])


def _beginning(document: SearchDocument) -> list[Part]:
    text = together((document.user or document.assistant or document.title)[: 3 * SHOWN]).strip()
    return [*_parts(text, [(0, 0)])] if text else []


def _best_in(place: str, text: str, terms: Sequence[Term]) -> _Window | None:
    """The window of this text with the most terms, the first of several."""
    folded = fold(text)
    found = sorted(
        (start, end, number)
        for number, term in enumerate(terms)
        for start, end in islice(term.places(folded), _LOOKED_AT)
    )
    best: list[tuple[int, int, int]] = []
    most = 0
    for number, (start, _, _) in enumerate(found):
        window = [each for each in found[number : number + _AT_ONCE] if each[1] <= start + SHOWN]
        if (here := len({term for _, _, term in window})) > most:
            best, most = window, here
        if most == len(terms):
            break
    return _Window(most, place, text, [(start, end) for start, end, _ in best]) if best else None


def _parts(text: str, marks: list[tuple[int, int]]) -> Iterator[Part]:
    """The passage around the marks, which may overlap."""
    at = _gap_behind(text, max(0, marks[0][0] - _BEFORE), marks[0][0])
    stop = max(marks[-1][1], _gap_before(text, at, at + SHOWN))
    if at > 0:
        yield Part("…", match=False)
    for start, end in marks:
        if start > at:
            yield Part(_line(text[at:start]), match=False)
        if end > max(start, at):
            yield Part(_line(text[max(start, at) : end]), match=True)
            at = end
    if rest := _line(text[at:stop]) + ("…" if stop < len(text) else ""):
        yield Part(rest, match=False)


def _gap_behind(text: str, start: int, end: int) -> int:
    """Where the first word begins that is whole."""
    gap = text.find(" ", start, end) if start else -1
    return gap + 1 if gap >= 0 else start


def _gap_before(text: str, start: int, end: int) -> int:
    """Where the last word ends that is whole."""
    if end >= len(text):
        return len(text)
    gap = text.rfind(" ", (start + end) // 2, end)
    return gap if gap >= 0 else end


def _line(text: str) -> str:
    """Line breaks become blanks, one for one."""
    return "".join(" " if each.isspace() else each for each in text)
