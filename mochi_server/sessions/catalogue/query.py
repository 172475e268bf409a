"""What a person types, as an expression of FTS5 that never has a syntax error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .text_folding import UNSPACED, apart, fold, normal

MOST_CHARACTERS = 1000
MOST_WORDS = 64
"""What stands behind is ignored, so that no query takes long."""

PREFIX_CHARACTERS = 2
"""A shorter beginning is taken for the whole word; nearly everything has it."""

_TERM = re.compile(r'(?P<minus>-*)(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_LAST = re.compile(rf"[^\W_{UNSPACED}]{{{PREFIX_CHARACTERS},}}$")
_LETTER = r"[^\W_]"


@dataclass(frozen=True, slots=True)
class Term:
    """A word, or several in a row."""

    words: tuple[str, ...]
    """In their normal form; not empty."""
    prefix: bool = False
    """Whether the last word may go on."""

    @property
    def match(self) -> str:
        """A string of FTS5, which has no special characters but the quote."""
        return f'"{" ".join(self.words)}"{" *" if self.prefix else ""}'

    def places(self, folded: str) -> Iterator[tuple[int, int]]:
        """Start and end of each place in a folded text."""
        free = _is_unspaced(self.words[0])
        for found in re.finditer(self._pattern, folded):
            start = found.start()
            if free or start == 0 or not folded[start - 1].isalnum():
                yield start, found.end()

    @property
    def _pattern(self) -> str:
        """Begins with a letter, not with a look at the one before: that is found much faster."""
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
    return apart(word) != word


@dataclass(frozen=True, slots=True)
class Query:
    """What must be there, and what must not."""

    required: tuple[Term, ...] = ()
    excluded: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was asked."""
        return bool(self.required or self.excluded)

    @property
    def match(self) -> str:
        """The whole expression where something is required, else what is excluded."""
        excluded = " OR ".join(term.match for term in self.excluded)
        if not self.required:
            return excluded
        required = " AND ".join(term.match for term in self.required)
        return f"({required}) NOT ({excluded})" if excluded else required


def parse(text: str) -> Query:
    """Words, ``"phrases"``, ``-not``, ``begin*``; the last word may always go on.

    Everything else separates words, as it does in the index.
    """
    found: tuple[list[Term], list[Term]] = ([], [])
    space = MOST_WORDS
    text = normal(text[:MOST_CHARACTERS])
    for each in _TERM.finditer(text):
        if (term := _term(each, space, is_last=each.end() == len(text.rstrip()))) is not None:
            space -= len(term.words)
            found[bool(each["minus"])].append(term)
    return Query(tuple(found[0]), tuple(found[1]))


def _term(each: re.Match[str], space: int, *, is_last: bool) -> Term | None:
    text = each["phrase"] if each["word"] is None else each["word"]
    words = tuple(_WORD.findall(text)[:space])
    if not words:
        return None
    goes_on = text.endswith("*") or (is_last and each["word"] is not None and not each["minus"])
    return Term(words, goes_on and _LAST.search(words[-1]) is not None)
