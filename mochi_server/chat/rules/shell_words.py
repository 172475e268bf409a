"""Words of a shell's command as the shell hands them to a program, as far as that can be told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from .glob_patterns import ANY_NAME, ANYTHING

MOST_ALTERNATIVES = 64
"""Words that braces may make of one; with more they are unknown."""

_OPEN, _CLOSE, _COMMA = "\2", "\3", "\4"
"""Braces and commas that are not quoted."""
_MARKS = frozenset({ANYTHING, ANY_NAME, _OPEN, _CLOSE, _COMMA})
_BRACES = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_MARK_TEXTS = {_OPEN: "{", _CLOSE: "}", _COMMA: ","}
_SIGNS = {"*": ANY_NAME, "?": ANY_NAME, "{": _OPEN, "}": _CLOSE, ",": _COMMA}
_ANSI = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})"
    r"|U(?P<U>[0-9a-fA-F]{1,8})|c(?P<control>.)|(?P<sign>.))",
    re.DOTALL,
)
_ANSI_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_HOME = re.compile(r"\$\{HOME\}|\$HOME(?!\w)")
_UNKNOWN_EXPANSION = re.compile(r"\$(?:[\w@*#?$!-]+|\{[^}]*\}?)|`")
_TILDE = re.compile(r"~[^/:\s]*")


@dataclass(slots=True)
class _WordReader:
    """Reads one word.

    ``expansions`` are the ends of what the shell replaces, by their beginning.
    """

    text: str
    position: int
    end: int
    expansions: Mapping[int, int]
    home: str
    """The home folder; ``ANYTHING``: it is not known."""
    parts: list[str] = field(default_factory=list)

    def read(self) -> str:
        """Return the word with marks for what is not known."""
        while self.position < self.end:
            self._step()
        return "".join(self.parts)

    def _step(self) -> None:
        character = self.text[self.position]
        if self._expansion() or self._quotation(character):
            return
        if character == "~" and self._is_home():
            tilde = _TILDE.match(self.text, self.position, self.end)
            length = len(tilde[0]) if tilde else 1
            self._add(self.home if length == 1 else ANYTHING, length, is_mark=True)
        elif character == "[" and "]" in self.text[self.position : self.end]:
            self._add(ANYTHING, self.end - self.position, is_mark=True)
        elif character in _SIGNS:
            self._add(_SIGNS[character], 1, is_mark=True)
        else:
            self._add(character, 1)

    def _quotation(self, character: str) -> bool:
        """Read what is quoted here; return whether something is."""
        if character == "'":
            self._quoted()
        elif character == '"':
            self._double_quoted()
        elif self.text.startswith("$'", self.position):
            self.position += 1
            self._ansi()
        elif self.text.startswith('$"', self.position):
            self.position += 1
        elif character == "\\":
            self._add(self.text[self.position + 1 : self.position + 2], 2)
        else:
            return False
        return True

    def _add(self, text: str, length: int, *, is_mark: bool = False) -> None:
        self.parts.append(text if is_mark or text not in _MARKS else "\ufffd")
        self.position += length

    def _expansion(self) -> bool:
        if variable := _HOME.match(self.text, self.position, self.end):
            self.parts.append(self.home)
            self.position = variable.end()
        elif self.position in self.expansions:
            self.parts.append(ANYTHING)
            self.position = self.expansions[self.position]
        elif unknown := _UNKNOWN_EXPANSION.match(self.text, self.position, self.end):
            self.parts.append(ANYTHING)
            self.position = unknown.end()
        else:
            return False
        return True

    def _is_home(self) -> bool:
        before = self.parts[-1] if self.parts else ""
        return not before or before[-1:] in ("=", ":", _COMMA, _OPEN)

    def _quoted(self) -> None:
        close = self.text.find("'", self.position + 1, self.end)
        close = self.end if close < 0 else close
        for character in self.text[self.position + 1 : close]:
            self._add(character, 1)
        self.position = close + 1

    def _double_quoted(self) -> None:
        self.position += 1
        self.parts.append("")
        while self.position < self.end:
            character = self.text[self.position]
            if character == '"':
                self.position += 1
                return
            if self._expansion():
                continue
            following = self.text[self.position + 1 : self.position + 2]
            if character == "\\" and following in tuple('$`"\\\n'):
                self._add("" if following == "\n" else following, 2)
            else:
                self._add(character, 1)

    def _ansi(self) -> None:
        self.position += 1
        is_cut = False  # the shell drops what follows NUL
        while self.position < self.end and self.text[self.position] != "'":
            escape = _ANSI.match(self.text, self.position, self.end)
            decoded = _decoded(escape) if escape else self.text[self.position]
            is_cut = is_cut or decoded == "\0"
            if not is_cut:
                is_byte = escape is not None and not decoded.isascii() and not escape["u"]
                self._add(ANYTHING if is_byte else decoded, 0, is_mark=is_byte)
            self.position = escape.end() if escape else self.position + 1
        self.position += 1


def _decoded(escape: re.Match[str]) -> str:
    for name, base in (("octal", 8), ("hex", 16), ("u", 16), ("U", 16)):
        if escape[name]:
            code = int(escape[name], base)
            return chr(code % 256 if name == "octal" else min(code, 0x10FFFF))
    if escape["control"]:
        return chr(ord(escape["control"].upper()) & 0x1F)
    return _ANSI_SIGNS.get(escape["sign"], "\x1b" if escape["sign"] in "eE" else escape["sign"])


def words_of(
    text: str, begin: int, end: int, expansions: Mapping[int, int]
) -> tuple[list[str], list[str]]:
    """Return the words that a shell makes of one, and others that it makes with another home.

    ``ANYTHING`` and ``ANY_NAME`` stand in them for what is not known here. ``expansions``: where
    each part ends that the shell replaces, by where it begins.
    """
    is_changed = "HOME" in _HOME.sub("", text)
    home = ANYTHING if is_changed else str(Path.home())
    words = _words(_WordReader(text, begin, end, expansions, home).read())
    if is_changed or not ("~" in text[begin:end] or "HOME" in text[begin:end]):
        return words, []
    others = _words(_WordReader(text, begin, end, expansions, ANYTHING).read())
    return words, [each for each in others if each not in words]


def _words(word: str) -> list[str]:
    expanded = _expand_braces(word) if _OPEN in word else [word]
    return [_without_marks(each) for each in expanded]


def _expand_braces(word: str) -> list[str]:
    words = [word]
    while any(_BRACES.search(each) for each in words):
        expanded = []
        for each in words:
            group = _BRACES.search(each)
            if group is None:
                expanded.append(each)
                continue
            content = group[1]
            if _COMMA in content:
                choices = content.split(_COMMA)
            elif ".." in content:
                choices = [ANYTHING]
            else:  # no group: braces as they are
                choices = [f"{{{content}}}"]
            before, after = each[: group.start()], each[group.end() :]
            expanded += ["".join(made) for made in product([before], choices, [after])]
        words = expanded
        if len(words) > MOST_ALTERNATIVES:
            return [ANYTHING]
    return words


def _without_marks(word: str) -> str:
    for mark, text in _MARK_TEXTS.items():
        word = word.replace(mark, text)
    return word
