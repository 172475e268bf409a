"""Whether a shell's command fits a pattern such as ``git log *``: surely, or possibly.

A pattern with blanks is compared with each simple command word by word, one without blanks with
each word, when a rule denies or asks. What a rule allows fits as a whole, and word by word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import islice, pairwise

from ...core.shown_text import is_hidden
from .command_scan import DOUBTS, CommandScan, name_of
from .glob_patterns import ANYTHING, SHELL_SIGNS, Glob, read_pattern
from .programs import ACTING_OPTIONS, CHANGES_SHELL, READERS
from .shell import OPERATORS, SEPARATORS, read_command_line
from .text_forms import OPEN_FILES, collapse, decode, fold, normal_path, resolved_paths
from .texts import ROUTING, holds, is_direct, path_fits

MOST_PARTS = 8
"""Parts of a word after ``=`` and the like that are compared with the rest of it."""

MOST_TOGETHER = 20
"""Simple commands of a line that several rules may allow together."""

MOST_RESOLVED = 200
"""Words of a command whose links are followed."""

_PARTS = re.compile(r"[=:@,]")
_PIECES = re.compile(r"[\s=:@,;|&<>()\[\]{}'\"`\\!]+")
_OPTION = re.compile(r"-[A-Za-z]{1,8}")
_HOME_OR_COMMENT = re.compile(r"^[~#]|[=:]~")
_WORD_SIGNS = SHELL_SIGNS | frozenset("?'\"")
"""What no wildcard stands for in a command that is allowed."""
_MIN_OPTION = 3
"""Characters of a long option, of which the end may be left out."""


class Fit(IntEnum):
    """How well a text fits a pattern."""

    NO = 0
    DOUBT = 1
    """It is not known; a person is asked."""
    YES = 2


class Command:
    """A command line that is compared with patterns."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.line = read_command_line(text)
        """None: it cannot be read for certain."""
        self._scan = CommandScan()
        if self.line is not None:
            self._scan.add(self.line, 0)

    # ---- what a rule asks about or denies

    def possibly(self, pattern: str, forms: Sequence[Glob]) -> Fit:
        """Return whether a part of it fits a pattern; ``forms`` are its ``denied_forms``."""
        if self.line is None:
            return Fit.DOUBT
        whole = re.sub(r"\s*([|;&]+)\s*", r" \1 ", fold(" ".join(self._text.split())))
        if any(glob.matches_loosely(whole) for glob in forms):
            return Fit.YES
        words = forms[0].words()
        fits = [self._command_fit(forms[0], words)]
        if len(words) == 1 or words[0].is_any:
            fits.append(self._word_fit(forms, is_path="/" in pattern))
        return max(fits)

    def _command_fit(self, whole: Glob, pattern: Sequence[Glob]) -> Fit:
        fit = Fit.DOUBT if self._scan.runs_unknown else Fit.NO
        rest = pattern[1:-1] if pattern[-1].is_any else pattern[1:]
        program = pattern[0].literal.rpartition("/")[0]
        if program:  # found by its name, too
            whole = whole.part(len(program) + 1, len(whole.steps))
        for words in self._commands_named(pattern[0]):
            text = " ".join([name_of(words[0]), *words[1:]])
            if len(pattern) == 1 or not rest or whole.matches_loosely(text):
                if not _fits_by_doubt(pattern[0], words[0]) and (
                    not rest or not _fits_by_doubt(whole, text)
                ):
                    return Fit.YES
                fit = Fit.DOUBT
            elif _has_in_order(rest, words[1:]):
                fit = Fit.DOUBT
        return Fit.DOUBT if fit is Fit.NO and self._may_run(pattern[0]) else fit

    def _commands_named(self, glob: Glob) -> Iterator[list[str]]:
        """Yield the commands whose name fits, folded."""
        for words in self._folded_commands:
            if _name_fits(glob, words[0]):
                yield words
        for words in self._folded_wrapped:
            inner = (n for n in range(1, len(words)) if _name_fits(glob, words[n]))
            for place in islice(inner, MOST_PARTS):
                yield words[place:]

    def _may_run(self, glob: Glob) -> bool:
        """Return whether a program that is not known may run one whose name fits."""
        words = [fold(word) for word in self._scan.loose]
        for command in self._folded_commands:
            words += [] if name_of(command[0]) in READERS else command[1:]
        pieces = {piece for word in words for piece in (word, *_PIECES.split(word)) if piece}
        return any(_name_fits(glob, piece) for piece in pieces)

    @cached_property
    def _folded_commands(self) -> list[list[str]]:
        return [[fold(word) for word in words] for words in self._scan.commands]

    @cached_property
    def _folded_wrapped(self) -> list[list[str]]:
        return [[fold(word) for word in words] for words in self._scan.wrapped]

    def _word_fit(self, forms: Iterable[Glob], *, is_path: bool) -> Fit:
        fit = Fit.DOUBT if self._scan.opens_unknown else Fit.NO
        for glob in forms:
            anywhere = not glob.literal.startswith("/")
            for path in self._paths:
                if path_fits(glob, path, anywhere=anywhere):
                    return Fit.YES
                if is_path and (
                    path.startswith("..")
                    or holds(path, glob.literal)
                    or holds(f"/{path}", glob.literal)
                ):
                    fit = Fit.DOUBT
            if fit is Fit.NO and any(
                path_fits(glob, path, anywhere=anywhere) for path in self._possible_paths
            ):
                fit = Fit.DOUBT
        return fit

    @cached_property
    def _paths(self) -> list[str]:
        """What words and their parts name, folded."""
        known = {each for each in self._scan.words if not DOUBTS.search(each)}
        parts = {part for word in known for part in _parts_of(word)}
        resolved = {path for each in islice(known | parts, MOST_RESOLVED) for path in _links(each)}
        return sorted({path for each in parts | resolved for path in _forms(each)})

    @cached_property
    def _possible_paths(self) -> list[str]:
        """What words may name of which parts are not known, and what stands in texts and code."""
        pieces = {piece for each in self._scan.words for piece in _PIECES.split(each)}
        pieces |= {piece for each in self._scan.inputs for piece in _PIECES.split(each)}
        plain = re.sub(r"\\\n|[\"'\\]", "", self._text)
        pieces |= set(_PIECES.split(plain))
        unknown = {
            each for each in self._scan.words if DOUBTS.search(each) or OPEN_FILES.search(each)
        }
        pieces |= {part for word in unknown for part in _parts_of(word)}
        return sorted({path for each in pieces if each for path in _forms(each)})

    # ---- what a rule allows

    def surely(self, pattern: str) -> Fit:
        """Return whether all of it fits; a doubt if it cannot be read."""
        if self.line is None:
            return Fit.DOUBT
        glob = read_pattern(pattern)
        if glob.is_literal:
            return Fit.YES if self._text == glob.literal else Fit.NO
        if self.line.plain is None or self._has_odd_blanks:
            return Fit.NO
        words = glob.words()
        names_signs = any(each.is_literal and each.literal in OPERATORS for each in words)
        commands = [self.line.tokens] if names_signs else self.line.plain
        return Fit.YES if all(_is_allowed(words, each) for each in commands) else Fit.NO

    @cached_property
    def _has_odd_blanks(self) -> bool:
        return any(is_hidden(each) or (each.isspace() and each != " ") for each in self._text)

    @cached_property
    def parts(self) -> list[str]:
        """The simple commands of a line of several, if each does what it would do alone.

        None, if one of them changes the shell for others, or is given what another one writes and
        does more than read it.
        """
        line = self.line
        if line is None or line.plain is None or self._has_odd_blanks:
            return []
        names = {words[0] for words in line.plain}
        after_pipe = {after for sign, after in pairwise(line.tokens) if sign == "|"}
        if (
            not 1 < len(line.plain) <= MOST_TOGETHER
            or names & CHANGES_SHELL
            or any("=" in name for name in names)
            or after_pipe - READERS
        ):
            return []
        return _split(self._text, line.tokens)


def _split(text: str, tokens: Sequence[str]) -> list[str]:
    """Return what stands between the signs that separate commands."""
    parts, begin, end = [], 0, 0
    for token in tokens:
        at = text.index(token, end)
        end = at + len(token)
        if token in SEPARATORS:
            parts.append(text[begin:at].strip())
            begin = end
    return [each for each in (*parts, text[begin:].strip()) if each]


def _is_allowed(pattern: Sequence[Glob], words: Sequence[str]) -> bool:
    if pattern[-1].is_any:
        further = len(words) - len(pattern) + 1
        pattern = [*pattern[:-1], *[pattern[-1]] * further]
    if len(pattern) != len(words) or not all(map(_word_is_allowed, pattern, words)):
        return False
    program = name_of(words[0])
    if program not in ACTING_OPTIONS or any(_acts(program, glob.literal) for glob in pattern):
        return True
    stand_ins = (word for glob, word in zip(pattern, words, strict=True) if not glob.is_literal)
    return not any(_acts(program, decode(word)) for word in stand_ins)


def _acts(program: str, word: str) -> bool:
    """Return whether a word may be an option by which a program that reads does something else."""
    word = word.lstrip("\"'")
    name = word.partition("=")[0]
    return any(
        word.startswith(option)
        or (len(name) >= _MIN_OPTION and option.startswith(name))
        or (len(option) == 2 and _OPTION.match(word) is not None and option[1] in name)  # noqa: PLR2004 - one letter
        for option in ACTING_OPTIONS[program]
    )


def _word_is_allowed(glob: Glob, word: str) -> bool:
    if glob.is_literal:
        return word == glob.literal
    is_quoted = glob.literal[:1] in ("'", '"')
    if "@" in glob.steps and any(word.count(sign) != glob.steps.count(sign) for sign in ROUTING):
        return False
    return all(
        glob.matches(each, excluded=_WORD_SIGNS | (set() if is_quoted else {" "}))
        and (glob.is_deep or each == "." or is_direct(each))
        and not _HOME_OR_COMMENT.search(each)
        for each in (word, decode(word))
    )


def _fits_by_doubt(glob: Glob, text: str) -> bool:
    """Return whether a text fits only because of what is not known of it."""
    known = DOUBTS.sub("\ufffd", text)
    return known != text and not glob.matches_loosely(known)


def _name_fits(glob: Glob, word: str) -> bool:
    names = {word, name_of(word)}
    literal = glob.literal
    if "/" in literal and glob.is_literal:
        names = {literal} if name_of(word) == name_of(literal) else names
    return any(glob.matches_loosely(each) for each in names)


def _has_in_order(globs: Sequence[Glob], words: Sequence[str]) -> bool:
    """Return whether words fit, with others between them."""
    place = 0
    for word in words:
        while place < len(globs) and any(
            path_fits(globs[place], path, anywhere=False) for path in _forms(word)
        ):
            place += 1
            if not DOUBTS.search(word):
                break
    return place == len(globs)


def _parts_of(word: str) -> set[str]:
    """Return a word, and what stands in it after ``=``, ``:``, ``@``, ``,`` or an option."""
    parts = {word, *_PARTS.split(word)}
    ends = [match.end() for match in islice(_PARTS.finditer(word), MOST_PARTS + 1)]
    parts |= {word[end:] for end in ends}
    if len(ends) > MOST_PARTS or OPEN_FILES.search(word):
        parts.add(ANYTHING)
    if option := _OPTION.match(word):
        parts |= {word[place:] for place in range(2, option.end() + 1)}
    return {part for part in parts if part}


def _links(word: str) -> set[str]:
    return set() if word.startswith("-") else resolved_paths(word)


def _forms(word: str) -> set[str]:
    """Return the folded paths that a word names."""
    texts = {fold(word), fold(decode(word))} if "%" in word or not word.isascii() else {fold(word)}
    texts = {re.sub("^file:/*", "/", each) for each in texts}
    return {collapse(each) for each in texts} | {normal_path(each) for each in texts}
