"""Reads files that begin with front matter: YAML between two ``---`` lines, then a text.

Values are kept as they are written: ``1.0`` is "1.0", ``yes`` is "yes".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import JsonValue

from ..errors import JSONObject
from .files import NOT_PLAIN, NotUTF8, read_plain, text_of

MAX_CHARACTERS = 32_000

MAX_DEPTH = 16

MAX_FILE_BYTES = 200_000

_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Ends of lines for YAML 1.1, and for no editor."""

_COLON = "mapping values are not allowed here"
"""The YAML library's words for ``description: Use it for: this``."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})

_NAMES = re.compile(r"[\s,]+")

_STRING = "tag:yaml.org,2002:str"


class FrontMatterError(ValueError):
    """The file cannot be read, or is not as its format wants it; the text says why."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class _Loader(yaml.SafeLoader):
    """Composes nodes, which keep texts as they are written: ``1.0`` is "1.0", ``yes`` is "yes".

    Aliases and tags are refused, as the public format's own library does.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line = _line(event)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise FrontMatterError("aliases and anchors (* and &) are not allowed", line)
        if event.tag is not None:
            reason = "tags (!) are not allowed; quote a text that begins with !"
            raise FrontMatterError(reason, line)
        if isinstance(event, yaml.ScalarEvent):
            try:
                event.value.encode()
            except UnicodeEncodeError:
                raise FrontMatterError("a text has half of a surrogate pair", line) from None
            return super().compose_node(parent, index)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FrontMatterError(f"nested more than {MAX_DEPTH} levels deep", line)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known = set[str]()
        for key, _ in node.value:
            text = _text(key)
            if text is None:
                raise FrontMatterError("a key must be a text", _line(key))
            if text in known:
                raise FrontMatterError(f"the key {text!r} stands here twice", _line(key))
            known.add(text)
        return node


def _line(part: Any) -> int:  # noqa: ANN401 - an event or a node
    """Return the line in the file, where the front matter begins in the second line."""
    return int(part.start_mark.line) + 2


def _text(node: yaml.Node) -> str | None:
    """Return the text of a node; None if it is null, a list or a mapping."""
    if not isinstance(node, yaml.ScalarNode) or (node.style is None and node.value in _NULLS):
        return None
    return str(node.value)


def _parse_yaml(front: str) -> yaml.MappingNode:
    try:
        loader = _Loader(front)
        root = loader.get_node() if loader.check_node() else None
        second = loader.get_node() if loader.check_node() else None
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
    except FrontMatterError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # An escape such as \UFFFFFFFF, which no character has.
        raise FrontMatterError(f"not valid YAML: {error}", 1) from error
    if second is not None:
        raise FrontMatterError("more than one YAML document", _line(second))
    if not isinstance(root, yaml.MappingNode):
        raise FrontMatterError("the front matter must be keys with values, such as name: …", 2)
    return root


def read_front_matter(path: Path) -> tuple[FrontMatter, str]:
    """Return the front matter of a file and the text below it; blocks.

    Raises:
        FrontMatterError: it cannot be read, or has no front matter that can be understood.
    """
    try:
        content, _ = read_plain(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = "not a plain file" if error.errno in NOT_PLAIN else f"{error.strerror}"
        raise FrontMatterError(f"cannot be read: {reason}", 1) from error
    return parse_front_matter(content)


def parse_front_matter(content: bytes) -> tuple[FrontMatter, str]:
    """Parse the content of a file; raises as :func:`read_front_matter`."""
    if len(content) > MAX_FILE_BYTES:
        raise FrontMatterError(f"the file is larger than {MAX_FILE_BYTES:,} bytes", 1)
    try:
        text = text_of(content)
    except NotUTF8 as error:
        raise FrontMatterError(str(error), error.line) from error
    front, body = _split_file(text)
    return FrontMatter(_parse_yaml(front)), body


def _split_file(text: str) -> tuple[str, str]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise FrontMatterError("the file must begin with front matter, a line with ---", 1)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise FrontMatterError("the front matter is not closed by a line with ---", 1)
    front = _BREAKS.sub(" ", "\n".join(lines[1:end]))
    if len(front) > MAX_CHARACTERS:
        raise FrontMatterError(f"the front matter is longer than {MAX_CHARACTERS:,} characters", 1)
    return front, "\n".join(lines[end + 1 :])


class FrontMatter:
    """The keys of the front matter; a text is as it is written."""

    def __init__(self, front: yaml.MappingNode) -> None:
        self._values: dict[str, yaml.Node] = {key.value: value for key, value in front.value}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def line(self, key: str) -> int:
        return _line(self._values[key]) if key in self._values else 1

    def typed(self, key: str) -> JsonValue:
        """Read a value; numbers, true, false and null are no texts."""
        return None if (value := self._scalar(key)) is None else _typed(value)

    def _scalar(self, key: str) -> yaml.ScalarNode | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, yaml.ScalarNode):
            raise FrontMatterError(f"{key} must be a text", _line(value))
        return value

    def text(self, key: str, most: int | None = None) -> str | None:
        value = self._scalar(key)
        if value is None:
            return None
        text = (_text(value) or "").strip()
        if most is not None and len(text) > most:
            raise FrontMatterError(f"{key} is longer than {most:,} characters", _line(value))
        return text or None

    def needed(self, key: str) -> str:
        text = self.text(key)
        if text is None:
            reason = "is empty" if key in self else "is missing"
            raise FrontMatterError(f"{key} {reason}", self.line(key))
        return text

    def names(self, key: str) -> tuple[str, ...]:
        """Read a list of names, or a text with white space or commas between them."""
        value = self._values.get(key)
        if not isinstance(value, yaml.SequenceNode):
            return split_names(self.text(key))
        names = [(_text(each) or "").strip() for each in value.value]
        if not all(names):
            raise FrontMatterError(f"{key} must be a list of names", _line(value))
        return tuple(dict.fromkeys(names))

    def mapping(self, key: str, *, typed: bool = False) -> JSONObject:
        """Read keys with values; ``typed``: numbers, true, false and null are no texts."""
        value = self._values.get(key)
        if value is None or (isinstance(value, yaml.ScalarNode) and _text(value) is None):
            return {}
        if not isinstance(value, yaml.MappingNode):
            raise FrontMatterError(f"{key} must be keys with values", _line(value))
        convert = _typed if typed else _text
        return {name.value: _value_of(each, convert) for name, each in value.value}


def _value_of(node: yaml.Node, convert: Callable[[yaml.Node], JsonValue]) -> JsonValue:
    if isinstance(node, yaml.SequenceNode):
        return [_value_of(each, convert) for each in node.value]
    if isinstance(node, yaml.MappingNode):
        return {key.value: _value_of(each, convert) for key, each in node.value}
    return convert(node)


def _typed(node: yaml.Node) -> JsonValue:
    """Return what JSON reads as a number or a boolean as such; anything else is a text."""
    text = _text(node)
    if text is None or node.tag == _STRING:
        return text
    try:
        value: JsonValue = orjson.loads(text.lower())
    except orjson.JSONDecodeError:  # 0x10, 12:30, yes, .inf
        return text
    return value


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the names in a text, which white space or commas separate."""
    return tuple(dict.fromkeys(filter(None, _NAMES.split(text or ""))))
