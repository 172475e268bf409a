"""JSON with comments and trailing commas, as editors have it, and changes that keep them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from ....errors import JSONObject

_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT = re.compile(rf"(?P<text>{_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA = re.compile(rf"(?P<text>{_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_SPACE = re.compile(r"\s*")
_INDENT = "  "

_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object, with its position in the text."""

    key: str
    value: JsonValue
    start: int
    value_start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Span:
    """An object in the text: its members, the position after ``{``, and that of ``}``."""

    start: int
    end: int
    members: list[Member]


class CommentedJson:
    """An object as text, in which single members can be changed.

    Raises:
        ValueError: The text is no such object; the message says where.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._plain = _plain(text)
        value = json.loads(self._plain)
        if not isinstance(value, dict):
            raise ValueError("it is no object")  # noqa: TRY004 - as for other texts
        self.value: JSONObject = value

    def line_of(self, member: Member) -> int:
        return self.text.count("\n", 0, member.start) + 1

    def members(self, key: str) -> list[Member]:
        """Return the members of the object under a key, also those of the same name."""
        span = self._span_of(key)
        return [] if span is None else span.members

    def with_member(self, key: str, name: str, value: JsonValue) -> str:
        """Return the text with one more member in the object under a key, or a changed one."""
        span = self._span_of(key)
        if span is None:
            return self._with(self._span(self._start), key, {name: value}, depth=1)
        return self._with(span, name, value, depth=2)

    def without_member(self, key: str, name: str) -> str:
        """Return the text without the members of this name in the object under a key."""
        text = self.text
        while (span := CommentedJson(text)._span_of(key)) is not None:  # noqa: SLF001 - its own
            at = next((i for i, each in enumerate(span.members) if each.key == name), None)
            if at is None:
                break
            if at > 0:
                text = text[: span.members[at - 1].end] + text[span.members[at].end :]
            elif len(span.members) > 1:
                text = text[: span.members[0].start] + text[span.members[1].start :]
            else:
                text = text[: span.start] + text[span.end :]
        return text

    @property
    def _start(self) -> int:
        return self._skip(0)

    def _span_of(self, key: str) -> _Span | None:
        members = self._span(self._start).members
        # As in ``value``, the last of several counts.
        last = next((each for each in reversed(members) if each.key == key), None)
        if last is None or not isinstance(last.value, dict):
            return None
        return self._span(last.value_start)

    def _with(self, span: _Span, name: str, value: JsonValue, *, depth: int) -> str:
        old = next((each for each in span.members if each.key == name), None)
        if old is not None:
            new = _dumped(value, self._indent_before(old.start))
            return self.text[: old.value_start] + new + self.text[old.end :]
        if span.members:
            last = span.members[-1]
            indent = self._indent_before(span.members[0].start)
            member = f"{json.dumps(name, ensure_ascii=False)}: {_dumped(value, indent)}"
            return f"{self.text[: last.end]},\n{indent}{member}{self.text[last.end :]}"
        indent = _INDENT * depth
        member = f"{json.dumps(name, ensure_ascii=False)}: {_dumped(value, indent)}"
        rest = self.text[span.start :]
        end = "" if rest.lstrip(" ").startswith("\n") else f"\n{_INDENT * (depth - 1)}"
        return f"{self.text[: span.start]}\n{indent}{member}{end}{rest}"

    def _indent_before(self, position: int) -> str:
        line = self.text[self.text.rfind("\n", 0, position) + 1 : position]
        return line[: len(line) - len(line.lstrip())]

    def _span(self, start: int) -> _Span:
        members = list(self._members_from(start))
        end = self._skip(members[-1].end if members else start + 1)
        return _Span(start + 1, end, members)

    def _members_from(self, start: int) -> Iterator[Member]:
        """Yield the members of the object that begins here, which is known to be one."""
        position = self._skip(start + 1)
        while self._plain[position] == '"':
            key, after_key = _decoder.raw_decode(self._plain, position)
            value_start = self._skip(self._skip(after_key) + 1)
            value, end = _decoder.raw_decode(self._plain, value_start)
            yield Member(key, value, position, value_start, end)
            position = self._skip(end)
            if self._plain[position] == ",":
                position = self._skip(position + 1)

    def _skip(self, position: int) -> int:
        match = _SPACE.match(self._plain, position)
        return match.end() if match else position


def _plain(text: str) -> str:
    """Return JSON proper of the same length: comments and trailing commas become spaces."""

    def blank(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _COMMA.sub(blank, _COMMENT.sub(blank, text))


def _dumped(value: JsonValue, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=len(_INDENT)).replace("\n", f"\n{indent}")
