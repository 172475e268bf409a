"""Whether a shell's command fits a pattern such as ``git log *``: surely, or possibly.

A pattern with blanks is compared with each simple command word by word, one without blanks with
each word, when a rule denies or asks. What a rule allows fits as a whole, and word by word.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import islice, pairwise

from ...core.shown_text import is_hidden
from .glob_patterns import ANY_NAME, ANYTHING, SHELL_SIGNS, Glob, read_pattern
from .programs import (
    ACTING_OPTIONS,
    CHANGES_SHELL,
    EVALUATORS,
    NAMES_VARIABLES,
    READERS,
    SHELLS,
    WRAPPERS,
)
from .shell import OPERATORS, SEPARATORS, CommandLine, SimpleCommand, read_command_line
from .text_forms import OPEN_FILES, collapse, decode, fold, normal_path, resolved_paths
from .texts import ROUTING, holds, is_direct, path_fits

MAX_LEVELS = 4
"""Commands within words of commands that are read."""

MOST_PARTS = 8
"""Parts of a word after ``=`` and the like that are compared with the rest of it."""

MOST_TOGETHER = 20
"""Simple commands of a line that several rules may allow together."""

MOST_RESOLVED = 200
"""Words of a command whose links are followed."""

_EXPANDED = re.compile(r"(\[|=\().*(\$\(|`)", re.DOTALL)
_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|osascript|pwsh|powershell"
    r"|irb|ipython|guile|rscript|julia|groovy|java|jshell|make|gmake|m4|ed|ex|vi|vim)[\d.]*"
)
_AWK = re.compile(r"[gmn]?awk|original-awk")
_AWK_RUNS = re.compile(r"system|getline|[|>]|ARGV|ENVIRON|@")
_SCRIPT = re.compile(r"[^-][\w./-]*")
"""What names a file with a program."""
_CODE = re.compile(r"[\s;|&<>(){}$`]")
_PARTS = re.compile(r"[=:@,]")
_PIECES = re.compile(r"[\s=:@,;|&<>()\[\]{}'\"`\\!]+")
_OPTION = re.compile(r"-[A-Za-z]{1,8}")
_DOUBTS = re.compile(f"[{ANYTHING}{ANY_NAME}]")
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


def _name(word: str) -> str:
    return posixpath.basename(word.rstrip("/")) or word


@dataclass(slots=True)
class _CommandScan:
    """Collects the commands of a line, and those in words of its commands."""

    commands: list[list[str]] = field(default_factory=list)
    wrapped: list[list[str]] = field(default_factory=list)
    """Commands of which any word may be the name of another one."""
    words: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    """Words that belong to no command."""
    inputs: list[str] = field(default_factory=list)
    runs_unknown: bool = False
    """Whether a program runs that is not seen: input of a shell, or what an interpreter makes."""
    opens_unknown: bool = False
    """Whether files are used that are not seen."""
    _read: set[tuple[str, int]] = field(default_factory=set)
    """Command lines in words, with their levels, that were read."""

    def add(self, line: CommandLine, level: int) -> None:
        self.words += line.words
        self.loose += line.words
        self.inputs += line.inputs
        for command in line.commands:
            self._add_command(command, level)
        if self.runs_unknown and level < MAX_LEVELS:  # then what is read may be run
            for text in line.inputs:
                self._add_code(text, level)

    def _add_command(self, command: SimpleCommand, level: int) -> None:
        self.words += command.words + command.others
        if not command.words:
            return
        self.commands.append(command.words)
        name, arguments = fold(_name(command.words[0])), command.words[1:]
        if name in WRAPPERS or name in EVALUATORS or _DOUBTS.search(name):
            self.wrapped.append(command.words)
            names = {fold(_name(each)) for each in command.words}
            self._note_shells(names & SHELLS, command.words, level)
            self._note_lists(name, names, command.words)
        if name in EVALUATORS:
            self._add_code(" ".join(each.partition("=")[2] or each for each in arguments), level)
            self._add_code(" ".join(arguments), level)
        elif name in WRAPPERS or name in NAMES_VARIABLES:
            is_code = _CODE if name in WRAPPERS else _EXPANDED
            for word in arguments:
                if is_code.search(word):
                    self._add_code(word, level)
        inner = {fold(_name(each)) for each in command.words} if name in WRAPPERS else {name}
        if any(_runs_code(each, command.words) for each in inner):
            self.runs_unknown = self.opens_unknown = True

    def _note_shells(self, shells: set[str], words: Sequence[str], level: int) -> None:
        for shell in shells:
            place = next(n for n, each in enumerate(words) if fold(_name(each)) == shell)
            after = words[place + 1 :]
            first = next((each for each in after if not each.startswith(("-", "+"))), None)
            is_code = any(re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", each) for each in after)
            if (
                first is None
                or _DOUBTS.search(first)
                or first.startswith("/dev/")
                or (
                    not is_code
                    and any(re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", each) for each in after)
                )
            ):
                self.runs_unknown = self.opens_unknown = True
            elif is_code:
                for word in after:
                    self._add_code(word, level)

    def _note_lists(self, name: str, names: set[str], words: Sequence[str]) -> None:
        """Note programs that run others with words, or by names, that they read."""
        if name in ("xargs", "parallel") or names & {"xargs", "parallel"}:
            self.opens_unknown = True
            replaces = any(each.startswith(("-I", "-i", "-J", "--replace")) for each in words)
            if replaces or "parallel" in names or len(names & (WRAPPERS | EVALUATORS)) > 1:
                self.runs_unknown = True
            if not any(re.match(r"[A-Za-z./]", each) for each in words[1:]):
                self.runs_unknown = True
        if name in ("find", "fd"):
            runs = [n for n, each in enumerate(words) if re.match(r"-(exec|ok|x$|X$)", each)]
            self.opens_unknown |= bool(runs)
            self.runs_unknown |= any(words[n + 1 : n + 2] == ["{}"] for n in runs)
        if name in ("at", "batch", "ssh", "expect", "gdb", "tmux", "screen", "script", "su"):
            self.runs_unknown |= not any(_CODE.search(each) for each in words)

    def _add_code(self, text: str, level: int) -> None:
        """Read a command line that stands in a word."""
        if (text, level) in self._read:
            return
        self._read.add((text, level))
        line = None
        if level < MAX_LEVELS and ANY_NAME not in text:
            line = read_command_line(text.replace(ANYTHING, "${_}"))
        if line is None:
            self.runs_unknown = self.opens_unknown = True
        else:
            self.add(line, level + 1)


def _runs_code(name: str, words: Sequence[str]) -> bool:
    """Return whether a program computes what it does from code in its words or its input."""
    if name in (".", "source"):
        return any(ANYTHING in each or each.startswith("/dev/") for each in words[1:])
    if _AWK.fullmatch(name):
        return any(_AWK_RUNS.search(each) or ANYTHING in each for each in words[1:])
    if not _INTERPRETER.fullmatch(name):
        return False
    arguments = [each for each in words if fold(_name(each)) != name]
    has_code = any(_CODE.search(each) or re.match(r"-[A-Za-z]*[cerEp]", each) for each in arguments)
    return has_code or not any(_SCRIPT.fullmatch(each) for each in arguments)


class Command:
    """A command line that is compared with patterns."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.line = read_command_line(text)
        """None: it cannot be read for certain."""
        self._scan = _CommandScan()
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
            text = " ".join([_name(words[0]), *words[1:]])
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
            words += [] if _name(command[0]) in READERS else command[1:]
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
        known = {each for each in self._scan.words if not _DOUBTS.search(each)}
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
            each for each in self._scan.words if _DOUBTS.search(each) or OPEN_FILES.search(each)
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
    program = _name(words[0])
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
    known = _DOUBTS.sub("\ufffd", text)
    return known != text and not glob.matches_loosely(known)


def _name_fits(glob: Glob, word: str) -> bool:
    names = {word, _name(word)}
    literal = glob.literal
    if "/" in literal and glob.is_literal:
        names = {literal} if _name(word) == _name(literal) else names
    return any(glob.matches_loosely(each) for each in names)


def _has_in_order(globs: Sequence[Glob], words: Sequence[str]) -> bool:
    """Return whether words fit, with others between them."""
    place = 0
    for word in words:
        while place < len(globs) and any(
            path_fits(globs[place], path, anywhere=False) for path in _forms(word)
        ):
            place += 1
            if not _DOUBTS.search(word):
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
