"""Turn what a person types into an expression of FTS5 that never has a syntax error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .search_text import UNSPACED, fold, normalize, split_unspaced

MAX_CHARACTERS = 1000
MAX_WORDS = 64
"""What stands behind is ignored, so that no query takes long."""

PREFIX_CHARACTERS = 2
"""A shorter beginning is taken for the whole word; nearly everything has it."""

_TERM = re.compile(r'(?P<minus>-*)(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_LAST = re.compile(rf"[^\W_{UNSPACED}]{{{PREFIX_CHARACTERS},}}$")
_LETTER = r"[^\W_]"


@dataclass(frozen=True, slots=True)
class Term:
    """A word, or a phrase of several words."""

    words: tuple[str, ...]
    """In their normal form; not empty."""
    prefix: bool = False
    """Whether the last word may go on."""

    @property
    def match(self) -> str:
        return f'"{" ".join(self.words)}"{" *" if self.prefix else ""}'

    def occurrences(self, folded: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each occurrence in a folded text."""
        free = _is_unspaced(self.words[0])
        for match in re.finditer(self._pattern, folded):
            start = match.start()
            if free or start == 0 or not folded[start - 1].isalnum():
                yield start, match.end()

    @property
    def _pattern(self) -> str:
        """It has no lookbehind at its start: that makes it much faster."""
        folded = [fold(word) for word in self.words]
        parts = [re.escape(folded[0])]
        for before, word in pairwise(folded):
            loose = _is_unspaced(before) or _is_unspaced(word)
            parts.append(rf"[\W_]{'*' if loose else '+'}{re.escape(word)}")
        if self.prefix:
            parts.append(f"{_LETTER}*")
        elif not _is_unspaced(folded[-1]):
            parts.append(f"(?!{_LETTER})")
        return "".join(parts)


def _is_unspaced(word: str) -> bool:
    return split_unspaced(word) != word


@dataclass(frozen=True, slots=True)
class Query:
    """The terms that a session must have, and those that it must not have."""

    required: tuple[Term, ...] = ()
    excluded: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any term."""
        return bool(self.required or self.excluded)

    @property
    def match(self) -> str:
        """The whole expression; without required terms, only the excluded ones."""
        excluded = " OR ".join(term.match for term in self.excluded)
        if not self.required:
            return excluded
        required = " AND ".join(term.match for term in self.required)
        return f"({required}) NOT ({excluded})" if excluded else required


def parse(text: str) -> Query:
    """Parse words, ``"phrases"``, ``-not``, ``begin*``; the last word is always a prefix.

    Everything else separates words, as it does in the index.
    """
    required: list[Term] = []
    excluded: list[Term] = []
    space = MAX_WORDS
    text = normalize(text[:MAX_CHARACTERS])
    for each in _TERM.finditer(text):
        if (term := _term(each, space, is_last=each.end() == len(text.rstrip()))) is not None:
            space -= len(term.words)
            if each["minus"]:
                excluded.append(term)
            else:
                required.append(term)
    return Query(tuple(required), tuple(excluded))


def _term(each: re.Match[str], space: int, *, is_last: bool) -> Term | None:
    text = each["phrase"] if each["word"] is None else each["word"]
    words = tuple(_WORD.findall(text)[:space])
    if not words:
        return None
    goes_on = text.endswith("*") or (is_last and each["word"] is not None and not each["minus"])
    return Term(words, goes_on and _LAST.search(words[-1]) is not None)
