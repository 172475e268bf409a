"""Compares arguments of calls with patterns, each pair once."""

from __future__ import annotations

import re

from ...errors import JSONObject
from .commands import Command, Fit
from .glob_patterns import Glob, denied_forms
from .shell import CommandLine
from .texts import MAX_TEXT, may_fit, readings_of, surely_fits

_COMMAND_WORDS = frozenset(
    {
        "command",
        "commands",
        "cmd",
        "commandline",
        "cmdline",
        "shell",
        "bash",
        "sh",
        "zsh",
        "script",
        "terminal",
    }
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def is_command(tool: str, name: str, arguments: JSONObject) -> bool:
    """Return whether an argument is a command for a shell.

    Its name says so, as ``command`` or ``shellScript``; or that of the tool, as ``run_bash``, if no
    name of an argument does.
    """
    if _names_command(name):
        return True
    return _names_command(tool) and not any(_names_command(each) for each in arguments)


def _names_command(name: str) -> bool:
    return not _COMMAND_WORDS.isdisjoint(words_of_name(name))


def words_of_name(name: str) -> frozenset[str]:
    """Return the words of a name, ``shellScript`` or ``shell_script``, in small letters."""
    return frozenset(word.lower() for word in _WORD.findall(name))


class Comparer:
    """Remembers texts that were read, and which patterns they fit, for the calls of one reply.

    Not longer: a link may lead elsewhere then.
    """

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}
        self._readings: dict[str, frozenset[str] | None] = {}
        self._forms: dict[str, list[Glob]] = {}
        self._fits: dict[tuple[str, str, bool, bool], Fit] = {}

    def fit(self, pattern: str, text: str, *, is_command: bool, is_allowing: bool) -> Fit:
        """Return how well a text fits a pattern of a rule.

        ``is_command``: the text is a command for a shell; ``is_allowing``: the rule allows.
        """
        key = (pattern, text, is_command, is_allowing)
        if key not in self._fits:
            compare = self._command_fit if is_command else self._text_fit
            self._fits[key] = compare(pattern, text, is_allowing=is_allowing)
        return self._fits[key]

    def line_of(self, text: str) -> CommandLine | None:
        """Return what a shell reads in a text; None: it cannot be read for certain."""
        return self._command(text).line

    def parts_of(self, text: str) -> list[str]:
        """Return the simple commands of a line that may be allowed each by a rule of its own.

        None, if one of them decides what another one does, or runs.
        """
        return self._command(text).parts

    def _command(self, text: str) -> Command:
        if text not in self._commands:
            self._commands[text] = Command(text)
        return self._commands[text]

    def _command_fit(self, pattern: str, text: str, *, is_allowing: bool) -> Fit:
        command = self._command(text)
        return (
            command.surely(pattern)
            if is_allowing
            else command.possibly(pattern, self._forms_of(pattern))
        )

    def _text_fit(self, pattern: str, text: str, *, is_allowing: bool) -> Fit:
        if is_allowing:
            return Fit.YES if surely_fits(pattern, text) else Fit.NO
        if len(text) > MAX_TEXT:
            return Fit.YES
        if text not in self._readings:
            self._readings[text] = readings_of(text)
        fits = may_fit(pattern, self._forms_of(pattern), self._readings[text])
        return Fit.YES if fits else Fit.NO

    def _forms_of(self, pattern: str) -> list[Glob]:
        if pattern not in self._forms:
            self._forms[pattern] = denied_forms(pattern)
        return self._forms[pattern]
