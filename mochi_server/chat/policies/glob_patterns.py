"""Whether a text fits a pattern such as ``notes/*``: surely, or possibly.

A tool may take a text for another one: ``notes/../x``, ``NOTES/x``, ``notes%2Fx``. So there are two
questions. Does it fit, whatever a tool makes of it? A rule that allows needs that. Might it fit?
For a rule that denies that is enough.

In a pattern ``?`` is one character and ``*`` any number of them, but no ``/``; ``**`` is any number
of any characters; ``[c]`` is the character ``c`` itself.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from ..confirmations.display import is_hidden

MAX_PATTERN = 256
MAX_TEXT = 4096
"""Characters of the longest text that is compared; a longer one possibly fits every pattern."""

MAX_LAYERS = 8
"""Encodings within each other that are undone."""

_SYNTAX = re.compile(r"\[(?P<literal>.)\]|(?P<wild>\*\*?|\?)|(?P<plain>[^\[\]{}*?\\])", re.DOTALL)
_SHELL = frozenset("$`;|&<>*[]{}\\")
"""Characters of which a shell makes something else; no wildcard of a rule that allows is one."""
_COMMANDS = re.compile(r"[;|&`()<>\n]+")
_UNKNOWN = re.compile(r"\$[A-Za-z_{']|^\s*~")
"""A variable or a home folder: what it stands for is not known here."""
_EXPANDED = re.compile(r"[*\[{]|^(?!\w+:/).*\?", re.DOTALL)
"""What a tool may expand to the names of several files."""
_EXPANDED_COMMAND = re.compile(r"^(?!\[+(\s|$))\S*[*?\[]|\{(?=[^\s{}]*\})[^\s{}]*?(,|\.\.)")
"""What a shell may expand to the name of a command, or to its words: ``r?``, ``{rm,-rf}``."""
_NEXT_ARGUMENT = re.compile(r"[\s,](?=[\"'/~.@]|-\S|[^\s,]*[:=]/)")
"""Where another path, address or option seems to begin."""
_ADDRESS = re.compile(r"^([a-z][a-z0-9+.-]*):/*(?:[^/?#]*@)?([^/?#:]*)(?::\d*)?/*")
_AUTHORITY = re.compile(r"[A-Za-z][\w+.-]*://[A-Za-z0-9.:-]*(?=/|$)")
_HOME = re.compile(r"(^|[\s=:,])~")


@dataclass(frozen=True, slots=True)
class _Glob:
    steps: tuple[str | None, ...]
    """Characters to consume; None is any one."""
    repeats: dict[int, str]
    """``*`` or ``**`` by the position of the step before which it stands."""

    @property
    def literal(self) -> str:
        """The text before the first wildcard."""
        end = min([*self.repeats, (*self.steps, None).index(None)])
        return "".join(step for step in self.steps[:end] if step is not None)

    @property
    def is_literal(self) -> bool:
        return not self.repeats and None not in self.steps

    def matches(self, text: str, *, loosely: bool = False, anywhere: bool = False) -> bool:
        """Return whether the whole text fits, without backtracking.

        Args:
            text: The text.
            loosely: Whether a wildcard is any character, and what is in a folder that fits, fits.
            anywhere: Whether the end of a path may fit.
        """
        positions, last = {0}, len(self.steps)
        for character in text:
            if loosely and character == "/" and last in positions:
                return True
            is_any = loosely or character not in _SHELL
            is_one = loosely or (is_any and character != "/")
            following = {0} if anywhere and character == "/" else set()
            for position in positions:
                repeat = self.repeats.get(position)
                if (repeat == "**" and is_any) or (repeat == "*" and is_one):
                    following.add(position)
                if position < last:
                    step = self.steps[position]
                    if is_one if step is None else step == character:
                        following.add(position + 1)
            positions = following
            if not positions and not anywhere:
                return False
        return last in positions


@lru_cache(maxsize=2048)
def _read(pattern: str) -> _Glob:
    steps: list[str | None] = []
    repeats: dict[int, str] = {}
    end = 0
    while match := _SYNTAX.match(pattern, end):
        end = match.end()
        if match["wild"] == "?":
            steps.append(None)
        elif match["wild"]:
            repeats[len(steps)] = max(match["wild"], repeats.get(len(steps), "*"))
        else:
            steps.append(match["literal"] or match["plain"])
    if end < len(pattern) or not pattern or pattern[0] in "!~" or len(pattern) > MAX_PATTERN:
        text = "is no pattern of 1 to 256 characters: write [c] for c where it is \\, { or [,"
        raise ValueError(f"{pattern!r} {text} or where it is ! or ~ at the beginning.")
    if any(map(is_hidden, pattern)):
        raise ValueError(f"{pattern!a} is no pattern: it has hidden characters.")
    return _Glob(tuple(steps), repeats)


@lru_cache(maxsize=2048)
def _read_folded(pattern: str) -> _Glob:
    """Read a pattern for texts that are folded as well."""
    folder = re.sub(r"(?<=.)/\**$", "", _collapse(pattern))  # what is in it fits as well
    glob = _read(re.sub(" +", " ", folder))
    steps: list[str | None] = []
    repeats = {}
    for position, step in enumerate((*glob.steps, "")):
        if position in glob.repeats:
            repeats[len(steps)] = glob.repeats[position]
        steps += [None] if step is None else list(_fold(step))
    return _Glob(tuple(steps), repeats)


def check_pattern(pattern: str) -> str:
    """Return the pattern.

    Raises:
        ValueError: it is none, or something else to people who know other patterns.
    """
    _read(pattern)
    return pattern


def surely_fits(pattern: str, text: str) -> bool:
    """Return whether the text fits, whatever a tool makes of it."""
    glob = _read(pattern)
    if len(text) > MAX_TEXT or any(map(is_hidden, text)):
        return False
    if glob.is_literal:
        return text == glob.literal
    readings = {text, _decode(text)}
    return all(
        _is_direct(reading) and not _is_list(reading, pattern) and glob.matches(reading)
        for reading in readings
    )


def possibly_fits(pattern: str, text: str) -> bool:
    """Return whether a tool may take the text for one that fits, or for a folder around it."""
    if len(text) > MAX_TEXT or any(map(_is_strange, text + _decode(text))):
        return True
    glob = _read_folded(pattern)
    return any(_reading_fits(glob, reading, is_path="/" in pattern) for reading in _readings(text))


def _reading_fits(glob: _Glob, reading: str, *, is_path: bool) -> bool:
    is_outside = reading == ".." or reading.startswith("../")
    if _UNKNOWN.search(reading) or (is_path and (is_outside or _EXPANDED.search(reading))):
        return True
    if not is_path and glob.literal and _EXPANDED_COMMAND.search(reading):
        return True
    is_absolute, is_rooted = reading.startswith("/"), glob.literal.startswith("/")
    texts = [reading]
    if not is_absolute:
        texts.append(f"/{reading}")
    if is_rooted and not is_absolute:
        texts.append(posixpath.normpath(f"{_fold(str(Path.cwd()))}/{reading}"))
    anywhere = not is_rooted and (is_absolute or not is_path)
    return any(
        glob.matches(each, loosely=True, anywhere=anywhere)
        or (is_path and _holds(each, glob.literal))
        for each in texts
    )


def _is_direct(text: str) -> bool:
    """Return whether a text, taken for a path or an address, leads where it seems to."""
    if any(map(is_hidden, text)) or _HOME.search(text):
        return False
    path = text.removeprefix("/")
    if "://" in text:
        if (authority := _AUTHORITY.match(text)) is None:
            return False
        path = text[authority.end() :].removeprefix("/").removesuffix("/") or "index"
    return all(part.strip(" .?") for part in path.split("/"))


def _is_list(text: str, pattern: str) -> bool:
    """Return whether a text may be several arguments or addresses for a pattern of one."""
    if "@" in pattern and text.count("@") != pattern.count("@"):
        return True
    if re.search(r"[\s,]", pattern):
        return False
    separator = re.compile(r"[\s,]") if "@" in pattern else _NEXT_ARGUMENT
    return separator.search(text) is not None


def _readings(text: str) -> set[str]:
    """Return what a tool may take a text for, folded."""
    folded = {_fold(text), _fold(_decode(text))}
    folded |= {each.replace("\\", "/") for each in folded}
    folded |= {re.sub(r"\\\n|[\"'\\]", "", each) for each in folded}
    commands = {" ".join(part.split()) for each in folded for part in _COMMANDS.split(each)}
    arguments = {part for each in commands for part in _NEXT_ARGUMENT.split(each)}
    folded |= {re.sub(r"[\t\r\n]", "", each) for each in folded}
    folded |= {each for each in commands | arguments if each}
    folded |= {_ADDRESS.sub(_without_user_and_port, each) for each in folded}
    collapsed = {_collapse(re.sub("^file:/*", "/", each)) for each in folded}
    return collapsed | {_normal_path(each) for each in collapsed}


def _without_user_and_port(address: re.Match[str]) -> str:
    host = address[2].replace("\u3002", ".")  # as internationalised names have it
    return f"{address[1]}://{host}/"


def _decode(text: str) -> str:
    """Return what is left when nothing is encoded any more, nor hidden in forms of characters."""
    for _ in range(MAX_LAYERS):
        decoded = unquote(unicodedata.normalize("NFKC", _without_joiners(text)))
        if decoded == text:
            return text
        text = decoded
    return "\0"  # which is a doubt


def _fold(text: str) -> str:
    """Return a text without case, accents apart, and without what has no shape."""
    decomposed = unicodedata.normalize("NFKD", _without_joiners(text))
    return unicodedata.normalize("NFKD", decomposed.casefold())


def _without_joiners(text: str) -> str:
    if text.isascii():
        return text
    return "".join(each for each in text if not is_hidden(each) or _is_strange(each))


def _is_strange(character: str) -> bool:
    """Return whether it is hidden, and neither white space nor a joiner within words and emoji."""
    if character in "\t\n\r" or not is_hidden(character):
        return False
    return unicodedata.category(character) not in ("Cf", "Mn")


def _collapse(text: str) -> str:
    return re.sub(r"(^|/)(\./)+", r"\1", re.sub("/+", "/", text))


def _normal_path(text: str) -> str:
    parts = [part.rstrip(" .") or part.strip() for part in text.split("/")]
    return posixpath.normpath("/".join(parts))


def _holds(folder: str, literal: str) -> bool:
    """Return whether a pattern that begins with this text is about what is in the folder."""
    return folder in ("", ".", "/") or literal.startswith(folder.rstrip("/") + "/")
