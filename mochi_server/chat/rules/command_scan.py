"""The commands of a line, and those in words of its commands."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .glob_patterns import ANY_NAME, ANYTHING
from .programs import EVALUATORS, NAMES_VARIABLES, SHELLS, WRAPPERS
from .shell import CommandLine, SimpleCommand, read_command_line
from .text_forms import fold

MAX_LEVELS = 4
"""Commands within words of commands that are read."""

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

DOUBTS = re.compile(f"[{ANYTHING}{ANY_NAME}]")


def name_of(word: str) -> str:
    return posixpath.basename(word.rstrip("/")) or word


@dataclass(slots=True)
class CommandScan:
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
        name, arguments = fold(name_of(command.words[0])), command.words[1:]
        if name in WRAPPERS or name in EVALUATORS or DOUBTS.search(name):
            self.wrapped.append(command.words)
            names = {fold(name_of(each)) for each in command.words}
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
        inner = {fold(name_of(each)) for each in command.words} if name in WRAPPERS else {name}
        if any(_runs_code(each, command.words) for each in inner):
            self.runs_unknown = self.opens_unknown = True

    def _note_shells(self, shells: set[str], words: Sequence[str], level: int) -> None:
        for shell in shells:
            place = next(n for n, each in enumerate(words) if fold(name_of(each)) == shell)
            after = words[place + 1 :]
            first = next((each for each in after if not each.startswith(("-", "+"))), None)
            is_code = any(re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", each) for each in after)
            if (
                first is None
                or DOUBTS.search(first)
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
    arguments = [each for each in words if fold(name_of(each)) != name]
    has_code = any(_CODE.search(each) or re.match(r"-[A-Za-z]*[cerEp]", each) for each in arguments)
    return has_code or not any(_SCRIPT.fullmatch(each) for each in arguments)
