"""Rules that a person may keep with an approval: patterns made of the call that is asked about.

What is suggested surely allows this call, and names what it does and where: the first words of a
command, a folder, a host. Where that cannot be told, it is this call again and nothing else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pydantic import JsonValue

from ...core.shown_text import shown_text
from ...errors import JSONObject
from ...protocol.payload import FieldPayload
from .comparer import is_command, words_of_name
from .glob_patterns import pattern_of
from .rule import CallFacts, CallRule, RuleSet, match_rules, text_of
from .shell import OPERATORS, CommandLine

_READING = frozenset(
    {(name,) for name in ("cat", "ls", "pwd", "echo", "grep", "egrep", "fgrep", "wc", "head")}
    | {(name,) for name in ("tail", "cut", "stat", "du", "df", "diff", "cmp", "basename")}
    | {(name,) for name in ("dirname", "realpath", "readlink", "which", "id", "whoami", "uname")}
    | {("git", name) for name in ("status", "log", "diff", "show", "blame", "ls-files")}
    | {("git", name) for name in ("rev-parse", "describe")}
)
"""First words of commands that read, to which any options and names may be added."""
_WORKING = frozenset({("git", "add"), ("git", "commit"), ("mkdir",), ("touch",)}) | frozenset(
    {("pytest",), ("mypy",), ("ruff", "check"), ("ruff", "format")}
)
"""First words of commands that do the same with other files, but not with other options."""
_TEXT_OPTIONS: Mapping[tuple[str, ...], frozenset[str]] = {
    ("git", "commit"): frozenset({"-m", "-am", "--message"}),
    ("pytest",): frozenset({"-k", "-m"}),
}
"""Options of these, after which comes a text, whatever it begins with."""
_QUOTED = re.compile(r"""(["'])([^"'\\]*)\1""")
_FOLDER = re.compile(r"[^\s=:@-][^\s=:@]*/")
"""The folder of a path that is a word of a command."""

_CODE_NAMES = frozenset(
    {"code", "sql", "statement", "python", "javascript", "js", "node", "ruby", "perl", "eval"}
    | {"exec", "execute", "powershell", "pwsh", "interpreter"}
)
"""Words in names of what runs as code; in that of a tool that has no command."""
_FILE_NAMES = frozenset({"path", "file", "filename", "filepath"})
_PATH_NAMES = _FILE_NAMES | frozenset(
    {"paths", "files", "folder", "folders", "dir", "directory", "cwd", "source", "destination"}
)
_PLACE_NAMES = _PATH_NAMES | frozenset({"target", "root", "url", "uri", "address", "host", "to"})
_REMARK_NAMES = frozenset({"description", "explanation", "reason", "comment", "note", "title"})
_LIMIT_NAMES = frozenset({"timeout", "limit", "max"})
_CONTENT_NAMES = frozenset({"content", "text", "body", "message", "subject", "query", "old", "new"})

_HOST = re.compile(r"([a-z][a-z0-9+.-]*://[A-Za-z0-9.:-]+/).+")
_PLACE = re.compile(r"\S*[/@]\S*")
_PLACE_WITHIN = re.compile(r'"[^"\s]*[/@][^"\s]*"')
"""A path or an address in JSON."""

_SEVERAL = re.compile(r"[\s,]")
"""What may stand between several paths; a pattern with it fits several."""

_SWITCH = re.compile(r"[A-Za-z][\w-]{0,31}")
"""A text that may say what a tool does, such as ``append``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSuggestion(FieldPayload):
    """Patterns with which an approval may be remembered."""

    patterns: Mapping[str, str]
    """Patterns by the name of an argument; none: every call of the tool."""
    allows: str
    """What a rule with them allows, for a person; nothing is hidden in it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What may stand for one argument."""

    pattern: str | None
    """None: anything."""
    says: str = ""
    """What may stand for it, for a person."""
    is_place: bool = False
    """Whether it names what is done, or where."""


_FREE = _Part(None)


def suggestions_for(
    call: CallFacts, parameters: JSONObject, rules: Sequence[RuleSet] = ()
) -> list[RuleSuggestion]:
    """Return what an approval of a call may be remembered as, the narrowest first.

    What the rules ask about all the same is not suggested.
    """

    def is_allowed(patterns: Mapping[str, str]) -> bool:
        try:
            rule = CallRule(
                tool=call.tool, action="allow", tool_source=call.source, arguments=patterns
            )
        except ValueError:  # a text that is too long, or has hidden characters
            return False
        match = match_rules([*rules, RuleSet((rule,))], call)
        return match is not None and match.action == "allow"

    suggested = _SuggestedPatterns(call, parameters).suggestions()
    return [each for each in suggested if is_allowed(each.patterns)]


class _SuggestedPatterns:
    """Patterns of the arguments of one call."""

    def __init__(self, call: CallFacts, parameters: JSONObject) -> None:
        self._tool = call.tool
        self._comparer = call.comparer
        self._arguments = call.arguments
        properties = parameters.get("properties")
        self._properties = properties if isinstance(properties, dict) else {}
        is_open = parameters.get("additionalProperties") not in (None, False)
        self._others = "; arguments that the tool does not name: anything" if is_open else ""
        others = [name for name in self._properties if name not in call.arguments]
        self._names = [*call.arguments, *others]
        """Names of arguments, also of those that the call does not have."""

    def suggestions(self) -> Iterator[RuleSuggestion]:
        """Yield suggestions, the narrowest first; it is not sure that each allows the call."""
        exact = {name: pattern_of(text_of(self._arguments.get(name))) for name in self._names}
        if exact:
            allows = f"this call again, with exactly the same arguments{self._others}"
            yield RuleSuggestion(patterns=exact, allows=allows)
        names = self._names if self._commands else [self._tool, *self._names]
        if any(words_of_name(name) & _CODE_NAMES for name in names):
            return
        parts = {name: self._part(name) for name in self._names}
        patterns = {name: each.pattern for name, each in parts.items() if each.pattern is not None}
        if any(each.is_place for each in parts.values()) and patterns != exact:
            places_first = sorted(patterns, key=lambda name: not parts[name].is_place)
            says = [f"{shown_text(name)}: {parts[name].says}" for name in places_first]
            if len(patterns) < len(parts):
                says.append("other arguments: anything")
            yield RuleSuggestion(patterns=patterns, allows="; ".join(says) + self._others)
        if not self._commands:
            allows = f"every call of {shown_text(self._tool)}, whatever its arguments are"
            yield RuleSuggestion(patterns={}, allows=allows)

    @cached_property
    def _commands(self) -> frozenset[str]:
        return frozenset(
            name for name in self._names if is_command(self._tool, name, self._arguments)
        )

    def _part(self, name: str) -> _Part:
        value = self._arguments.get(name)
        words = words_of_name(name)
        if name in self._commands and isinstance(value, str):
            pattern = _command_pattern(self._comparer.line_of(value))
            if pattern is not None:
                return _Part(pattern, _says_of_command(pattern), is_place=True)
            return _only(value, is_place=False)
        if self._commands:
            return _FREE if words & (_REMARK_NAMES | _LIMIT_NAMES) else _only(value)
        if isinstance(value, str):
            return self._text_part(name, value, words)
        if isinstance(value, list | dict):
            named = _PLACE_WITHIN.search(text_of(value))
            return _only(value, is_place=True) if named else _FREE
        is_switch = isinstance(value, bool) or self._is_choice(name) or words & _PLACE_NAMES
        return _only(value) if is_switch else _FREE

    def _text_part(self, name: str, text: str, words: frozenset[str]) -> _Part:
        if words & _CONTENT_NAMES:
            return _FREE
        if host := _HOST.fullmatch(text):
            says = f"any address that begins with {host[1]}"
            return _Part(f"{pattern_of(host[1])}**", says, is_place=True)
        is_path = words & _PATH_NAMES or _is_path(text)
        folder = posixpath.dirname(text)
        if is_path and folder.strip("/") and not _SEVERAL.search(folder):
            says = f"any name in the folder {shown_text(folder)}"
            return _Part(f"{pattern_of(folder)}/*", says, is_place=True)
        if words & _FILE_NAMES and "/" not in text:
            return _Part("*", "any name without “/”", is_place=True)
        if words & _PLACE_NAMES or _PLACE.fullmatch(text):
            return _only(text, is_place=True)
        return _only(text) if _SWITCH.fullmatch(text) or self._is_choice(name) else _FREE

    def _is_choice(self, name: str) -> bool:
        schema = self._properties.get(name)
        return isinstance(schema, dict) and ("enum" in schema or schema.get("type") == "boolean")


def _only(value: JsonValue, *, is_place: bool = False) -> _Part:
    text = text_of(value)
    says = "not given" if value is None else f"only {shown_text(text)}"
    return _Part(pattern_of(text), says, is_place)


def _is_path(text: str) -> bool:
    """Return whether a text that may be anything is the path of a file."""
    is_word = _PLACE.fullmatch(text) is not None
    return is_word and (text.startswith(("/", "./")) or "." in posixpath.basename(text)[1:])


def _command_pattern(line: CommandLine | None) -> str | None:
    """Return a pattern of a command line in which names may be others; None: there is none.

    Of several commands it is the last one whose words may be others, unless all are alike.
    """
    if line is None or not line.plain:
        return None
    patterns = {_simple_pattern(words) for words in line.plain}
    if len(patterns) == 1:
        return patterns.pop()
    last = _simple_pattern(line.plain[-1])
    before = line.tokens[: -len(line.plain[-1])]
    if last is None or line.tokens[len(before) :] != line.plain[-1]:
        return None
    return " ".join([*map(pattern_of, before), last])


def _simple_pattern(words: Sequence[str]) -> str | None:
    """Return a pattern of a simple command; None: the server does not know the program."""
    known = _READING | _WORKING
    first = next((head for head in (tuple(words[:1]), tuple(words[:2])) if head in known), None)
    if first is None or not OPERATORS.isdisjoint(words):
        return None
    rest = [*map(_word_pattern, words[len(first) :])]
    if first in _WORKING:  # a name in quotes may be an option as well
        texts = _TEXT_OPTIONS.get(first, frozenset())
        for at, (before, word) in enumerate(pairwise(words[len(first) - 1 :])):
            if rest[at][1:-1] == "*" and before not in texts:
                rest[at] = pattern_of(word)
    if first in _READING:
        places = [at for at, word in enumerate(words[len(first) :]) if re.search("[/'\"]", word)]
        named = places[-1] + 1 if places else 0
        if not places or named < len(rest):
            rest = [*rest[:named], "*"]
    return " ".join([*first, *rest])


def _word_pattern(word: str) -> str:
    quoted = _QUOTED.fullmatch(word)
    sign, inner = quoted.groups() if quoted else ("", word)
    if folder := _FOLDER.match(inner):
        inner = f"{pattern_of(folder[0])}*"
    elif quoted and "/" not in inner:
        inner = "*"
    else:
        inner = pattern_of(inner)
    return f"{sign}{inner}{sign}"


def _says_of_command(pattern: str) -> str:
    inner = pattern.removesuffix(" *")
    says = ["any text without “/” for *"] if "*" in inner else []
    if inner != pattern:
        at_the_end = "at the end " if says else ""
        says.append(f"{at_the_end}any options and words without “/”")
    return f"{pattern} ({', '.join(says)}, and nothing else in the line)"
