"""Choose the passage that shows why a session matches a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from .search_query import Query, Term
from .search_text import SearchDocument, fold, join_unspaced

SHOWN = 160
"""Characters of a passage, about."""

_BEFORE = 40
_LOOKED_AT = 30
"""Occurrences of each term that are considered."""

_AT_ONCE = 20
"""Of them, marked in one passage."""

FIELDS = ("user", "assistant", "summary", "tool", "tags", "title")
"""Where passages are taken from, the most telling first."""


class SnippetPart(NamedTuple):
    """A part of a passage."""

    text: str
    match: bool


class Passage(NamedTuple):
    """The words that match, with the text around them."""

    found_in: str | None
    """A column of the index; None where nothing can be marked."""
    parts: list[SnippetPart]


class _Window(NamedTuple):
    """The part of a text that has the most terms within a passage's length."""

    terms: int
    field: str
    text: str
    matches: list[tuple[int, int]]


def passage_of(document: SearchDocument, query: Query) -> Passage:
    """Choose the passage with the most words, and of equals that of the most important field."""
    terms = tuple(dict.fromkeys(query.required))
    best: _Window | None = None
    for field in FIELDS if terms else ():
        window = _best_in(field, join_unspaced(getattr(document, field)), terms)
        if window is not None and (best is None or window.terms > best.terms):
            best = window
            if best.terms == len(terms):
                break
    if best is None:
        return Passage(None, _beginning(document))
    return Passage(best.field, [*_parts(best.text, best.matches)])


def _beginning(document: SearchDocument) -> list[SnippetPart]:
    text = join_unspaced(
        (document.user or document.assistant or document.title)[: 3 * SHOWN]
    ).strip()
    return [*_parts(text, [(0, 0)])] if text else []


def _best_in(field: str, text: str, terms: Sequence[Term]) -> _Window | None:
    """Return the first window of this text with the most terms."""
    folded = fold(text)
    occurrences = sorted(
        (start, end, number)
        for number, term in enumerate(terms)
        for start, end in islice(term.occurrences(folded), _LOOKED_AT)
    )
    best: list[tuple[int, int, int]] = []
    most = 0
    for number, (start, _, _) in enumerate(occurrences):
        window = [
            each for each in occurrences[number : number + _AT_ONCE] if each[1] <= start + SHOWN
        ]
        if (count := len({term for _, _, term in window})) > most:
            best, most = window, count
        if most == len(terms):
            break
    return _Window(most, field, text, [(start, end) for start, end, _ in best]) if best else None


def _parts(text: str, matches: list[tuple[int, int]]) -> Iterator[SnippetPart]:
    """Yield the passage around the matches, which may overlap."""
    at = _gap_behind(text, max(0, matches[0][0] - _BEFORE), matches[0][0])
    stop = max(matches[-1][1], _gap_before(text, at, at + SHOWN))
    if at > 0:
        yield SnippetPart("…", match=False)
    for start, end in matches:
        if start > at:
            yield SnippetPart(_line(text[at:start]), match=False)
        if end > max(start, at):
            yield SnippetPart(_line(text[max(start, at) : end]), match=True)
            at = end
    if rest := _line(text[at:stop]) + ("…" if stop < len(text) else ""):
        yield SnippetPart(rest, match=False)


def _gap_behind(text: str, start: int, end: int) -> int:
    gap = text.find(" ", start, end) if start else -1
    return gap + 1 if gap >= 0 else start


def _gap_before(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return len(text)
    gap = text.rfind(" ", (start + end) // 2, end)
    return gap if gap >= 0 else end


def _line(text: str) -> str:
    return "".join(" " if each.isspace() else each for each in text)
