"""Patterns such as ``notes/*``, and what a text must be to fit one.

In a pattern ``?`` is one character and ``*`` any number of them, but no ``/``; ``**`` is any number
of any characters; ``[c]`` is the character ``c`` itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from ...core.shown_text import is_hidden
from .text_forms import collapse, fold

MAX_PATTERN = 256
SHELL_SIGNS = frozenset("$`;|&<>*[]{}\\")
"""Characters of which a shell makes something else; no wildcard of a rule that allows is one."""

ANYTHING, ANY_NAME = "\0", "\1"
"""What stands in a text for an unknown part of it, and for one without ``/``."""

_SYNTAX = re.compile(r"\[(?P<literal>.)\]|(?P<wild>\*\*?|\?)|(?P<plain>[^\[\]{}*?\\])", re.DOTALL)


class Glob:
    """A pattern that was read; it is compared in time that grows with the text.

    A set of positions in the pattern is a whole number: bit n is set if the next character may be
    step n.
    """

    def __init__(self, steps: Sequence[str | None], repeats: Mapping[int, str]) -> None:
        self.steps = tuple(steps)
        """Characters to consume; None is any one."""
        self.repeats = dict(repeats)
        """``*`` or ``**`` by the position of the step before which it stands."""
        self._end = 1 << len(self.steps)
        self._any_one = sum(1 << n for n, step in enumerate(steps) if step is None)
        self._any = sum(1 << n for n in self.repeats)
        self._deep = sum(1 << n for n, wild in self.repeats.items() if wild == "**")
        self._literal: dict[str, int] = {}
        for position, step in enumerate(self.steps):
            if step is not None:
                self._literal[step] = self._literal.get(step, 0) | 1 << position

    @property
    def literal(self) -> str:
        """The text before the first wildcard."""
        end = min([*self.repeats, (*self.steps, None).index(None)])
        return "".join(step for step in self.steps[:end] if step is not None)

    @property
    def is_literal(self) -> bool:
        return not self.repeats and None not in self.steps

    @property
    def is_deep(self) -> bool:
        """Whether it is ``**``."""
        return not self.steps and self._deep > 0

    @property
    def is_any(self) -> bool:
        """Whether it is ``*`` or ``**``."""
        return not self.steps

    def part(self, begin: int, end: int) -> Glob:
        """Return the pattern of some of the steps, with the wildcards around them."""
        repeats = {at - begin: wild for at, wild in self.repeats.items() if begin <= at <= end}
        return Glob(self.steps[begin:end], repeats)

    def words(self) -> list[Glob]:
        """Return the patterns between blanks that are not within quotes."""
        words: list[Glob] = []
        begin, quote = 0, ""
        for position, step in enumerate((*self.steps, " ")):
            if position == len(self.steps) or (step == " " and not quote):
                if begin < position or begin in self.repeats:
                    words.append(self.part(begin, position))
                begin = position + 1
            elif step is not None and step in "'\"":
                quote = "" if step == quote else quote or step
        return words

    @cached_property
    def _pieces(self) -> list[str]:
        """The texts between wildcards, which a text that fits has in this order."""
        pieces = [""]
        for position, step in enumerate(self.steps):
            if step is None or position in self.repeats:
                pieces.append("")
            pieces[-1] += step or ""
        return [piece for piece in pieces if piece]

    def _has_pieces(self, text: str) -> bool:
        position = 0
        for piece in self._pieces:
            position = text.find(piece, position) + len(piece)
            if position < len(piece):
                return False
        return True

    def matches(self, text: str, *, excluded: Container[str] = SHELL_SIGNS) -> bool:
        """Return whether the whole text fits; no wildcard stands for an excluded character."""
        if not self._has_pieces(text):
            return False
        positions = 1
        for character in text:
            following = (positions & self._literal.get(character, 0)) << 1
            if character not in excluded:
                following |= positions & self._deep
                if character != "/":
                    following |= (positions & self._any_one) << 1 | positions & self._any
            positions = following
            if not positions:
                return False
        return bool(positions & self._end)

    def matches_loosely(self, text: str, *, anywhere: bool = False) -> bool:
        """Return whether a text may fit: a wildcard is any text, as ``ANYTHING`` in the text is.

        What is in a folder that fits, fits. ``anywhere``: the end of a path may fit.
        """
        if not (ANYTHING in text or ANY_NAME in text or self._has_pieces(text)):
            return False
        positions = 1
        for character in text:
            if character == ANYTHING and (positions or anywhere):
                return True
            if character == ANY_NAME and positions:
                positions = (self._end << 1) - (positions & -positions)  # this one and all later
                continue
            if character == "/" and positions & self._end:
                return True
            following = (positions & (self._literal.get(character, 0) | self._any_one)) << 1
            following |= positions & self._any
            if anywhere and character == "/":
                following |= 1
            positions = following
            if not positions and not anywhere:
                return False
        return bool(positions & self._end)


@lru_cache(maxsize=2048)
def read_pattern(pattern: str) -> Glob:
    steps: list[str | None] = []
    repeats: dict[int, str] = {}
    end = 0
    while len(pattern) <= MAX_PATTERN and (match := _SYNTAX.match(pattern, end)):
        end = match.end()
        if match["wild"] == "?":
            steps.append(None)
        elif match["wild"]:
            repeats[len(steps)] = max(match["wild"], repeats.get(len(steps), "*"))
        else:
            steps.append(match["literal"] or match["plain"])
    if end < len(pattern) or not pattern or pattern[0] in "!~":
        text = "is no pattern of 1 to 256 characters: write [c] for c where it is \\, { or [,"
        raise ValueError(
            f"{pattern[:MAX_PATTERN]!r} {text} or where it is ! or ~ at the beginning."
        )
    if any(map(is_hidden, pattern)):
        raise ValueError(f"{pattern!a} is no pattern: it has hidden characters.")
    return Glob(steps, repeats)


@lru_cache(maxsize=2048)
def read_folded(pattern: str) -> Glob:
    """Read a pattern for texts that are folded as well."""
    folder = re.sub(r"(?<=.)/\**$", "", collapse(pattern))  # what is in it fits as well
    glob = read_pattern(re.sub(" +", " ", folder))
    steps: list[str | None] = []
    repeats = {}
    for position, step in enumerate((*glob.steps, "")):
        if position in glob.repeats:
            repeats[len(steps)] = glob.repeats[position]
        steps += [None] if step is None else list(fold(step))
    return Glob(steps, repeats)


def pattern_of(text: str) -> str:
    """Return the pattern that only this text fits; it may be too long for one."""
    pattern = re.sub(r"[\[\]{}*?\\]", r"[\g<0>]", text)
    return f"[{pattern[0]}]{pattern[1:]}" if pattern.startswith(("!", "~")) else pattern


def check_pattern(pattern: str) -> str:
    """Return the pattern.

    Raises:
        ValueError: it is none, or something else to people who know other patterns.
    """
    read_pattern(pattern)
    return pattern


def denied_forms(pattern: str) -> list[Glob]:
    """Return the forms of a pattern with which texts of rules that ask or deny are compared.

    They are folded. A home folder and links at the beginning of the pattern are resolved.
    """
    glob = read_folded(pattern)
    folder = read_pattern(pattern).literal.rpartition("/")[0]
    forms = [glob]
    for whole in {_home_of(folder), _resolved(folder), _resolved(_home_of(folder))} - {folder}:
        rest = len(fold(folder))
        steps = [*fold(whole), *glob.steps[rest:]]
        longer = len(steps) - len(glob.steps)
        forms.append(Glob(steps, {at + longer: wild for at, wild in glob.repeats.items()}))
    return forms


def _home_of(path: str) -> str:
    return str(Path.home()) + path[1:] if path == "~" or path.startswith("~/") else path


def _resolved(folder: str) -> str:
    return os.path.realpath(folder) if folder.startswith("/") else folder
