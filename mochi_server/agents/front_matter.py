"""The YAML between the ``---`` lines at the top of a Markdown file, as text with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

LONGEST = 32_000
"""Characters of a front matter."""

DEEPEST = 16
"""Lists and mappings within each other."""

_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Ends of lines for YAML 1.1, and for no editor."""

_COLON = "mapping values are not allowed here"
"""What the YAML library says of ``description: Use it for: this``."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class FrontMatterError(ValueError):
    """The front matter cannot be read; the text says why."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        """From 1, in the file."""


@dataclass(frozen=True, slots=True)
class Text:
    """A value as it is written: ``1.0`` is "1.0", ``yes`` is "yes". Null where nothing is."""

    value: str | None
    line: int


@dataclass(slots=True)
class Items:
    """A list."""

    line: int
    items: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class Mapping:
    """Keys and values, in their order."""

    line: int
    values: dict[str, Value] = field(default_factory=dict)
    open_key: str | None = None
    """While it is read: the key whose value follows."""


Value: TypeAlias = Text | Items | Mapping


def split(text: str) -> tuple[Mapping, str]:
    """The front matter, and the Markdown after it.

    Aliases, tags and several documents are refused, as the public format's own library does.

    Raises:
        FrontMatterError: there is none, or it cannot be read.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise FrontMatterError("the file must begin with front matter, a line with ---", 1)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise FrontMatterError("the front matter is not closed by a line with ---", 1)
    front = _BREAKS.sub(" ", "\n".join(lines[1:end]))
    if len(front) > LONGEST:
        raise FrontMatterError(f"the front matter is longer than {LONGEST:,} characters", 1)
    return _read(front), "\n".join(lines[end + 1 :])


def _read(front: str) -> Mapping:
    try:
        return _build(front)
    except yaml.reader.ReaderError as error:
        line = front.count("\n", 0, error.position) + 2
        raise FrontMatterError("the front matter has a control character", line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark is not None else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        if error.problem == _COLON:
            reason += "; quote a text that has a colon in it"
        raise FrontMatterError(f"not valid YAML: {reason}", line) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        if isinstance(error, FrontMatterError):
            raise
        # An escape such as \UFFFFFFFF, which no character has.
        raise FrontMatterError(f"not valid YAML: {error}", 1) from error


def _build(front: str) -> Mapping:
    """From events, not by a loader: so its depth is bounded, and no object is made of it."""
    open_: list[Items | Mapping] = []
    root: Value | None = None
    for event in _events(front):
        line = _line(event)
        if isinstance(event, yaml.CollectionEndEvent):
            open_.pop()
            continue
        value = _value(event, line)
        if value is None:
            continue
        if not open_:
            root = value
        else:
            _add(open_[-1], value)
        if not isinstance(value, Text):
            open_.append(value)
        if len(open_) > DEEPEST:
            raise FrontMatterError(f"nested more than {DEEPEST} levels deep", line)
    if not isinstance(root, Mapping):
        raise FrontMatterError("the front matter must be keys with values, such as name: …", 2)
    return root


def _events(front: str) -> Iterator[yaml.Event]:
    documents = 0
    for event in yaml.parse(front, Loader=yaml.SafeLoader):
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise FrontMatterError("more than one YAML document", _line(event))
        yield event


def _line(event: yaml.Event) -> int:
    """Of the file, where the front matter begins in the second line."""
    return event.start_mark.line + 2 if event.start_mark is not None else 1


def _value(event: yaml.Event, line: int) -> Value | None:
    """What an event begins; null where it is nothing of the kind."""
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise FrontMatterError("aliases and anchors (* and &) are not allowed", line)
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
        raise FrontMatterError("tags (!) are not allowed; quote a text that begins with !", line)
    if isinstance(event, yaml.ScalarEvent):
        return Text(_text(event, line), line)
    if isinstance(event, yaml.SequenceStartEvent):
        return Items(line)
    return Mapping(line) if isinstance(event, yaml.MappingStartEvent) else None


def _text(event: yaml.ScalarEvent, line: int) -> str | None:
    if event.style is None and event.value in _NULLS:
        return None
    try:
        event.value.encode()
    except UnicodeEncodeError:
        raise FrontMatterError("a text has half of a surrogate pair", line) from None
    return event.value


def _add(parent: Items | Mapping, value: Value) -> None:
    if isinstance(parent, Items):
        parent.items.append(value)
    elif parent.open_key is not None:
        parent.values[parent.open_key] = value
        parent.open_key = None
    elif not isinstance(value, Text) or value.value is None:
        raise FrontMatterError("a key must be a text", value.line)
    elif value.value in parent.values:
        raise FrontMatterError(f"the key {value.value!r} stands here twice", value.line)
    else:
        parent.open_key = value.value
