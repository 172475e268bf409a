"""Reads ``SKILL.md``: the public Agent Skills format with a few keys of our own.

Its front matter is the YAML between two ``---`` lines, kept as text with line numbers. The keys are
in docs/reference/agents.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue

from ..core.files import NOT_PLAIN, read_plain
from ..errors import JSONObject

MAX_CHARACTERS = 32_000

MAX_DEPTH = 16

_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Ends of lines for YAML 1.1, and for no editor."""

_COLON = "mapping values are not allowed here"
"""The YAML library's words for ``description: Use it for: this``."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})

SKILL_FILES = ("SKILL.md", "skill.md")

MAX_FILE_BYTES = 200_000

DESCRIPTION_CHARACTERS = 1024
COMPATIBILITY_CHARACTERS = 500
NAME_CHARACTERS = 64

_NAMES = re.compile(r"[\s,]+")


class SkillFileError(ValueError):
    """The file describes no agent; the text says why."""

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
            raise SkillFileError("aliases and anchors (* and &) are not allowed", line)
        if event.tag is not None:
            reason = "tags (!) are not allowed; quote a text that begins with !"
            raise SkillFileError(reason, line)
        if isinstance(event, yaml.ScalarEvent):
            try:
                event.value.encode()
            except UnicodeEncodeError:
                raise SkillFileError("a text has half of a surrogate pair", line) from None
            return super().compose_node(parent, index)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SkillFileError(f"nested more than {MAX_DEPTH} levels deep", line)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known = set[str]()
        for key, _ in node.value:
            text = _text(key)
            if text is None:
                raise SkillFileError("a key must be a text", _line(key))
            if text in known:
                raise SkillFileError(f"the key {text!r} stands here twice", _line(key))
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


def _read_front_matter(front: str) -> yaml.MappingNode:
    try:
        loader = _Loader(front)
        root = loader.get_node() if loader.check_node() else None
        second = loader.get_node() if loader.check_node() else None
    except yaml.reader.ReaderError as error:
        line = front.count("\n", 0, error.position) + 2
        raise SkillFileError("the front matter has a control character", line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark is not None else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        if error.problem == _COLON:
            reason += "; quote a text that has a colon in it"
        raise SkillFileError(f"not valid YAML: {reason}", line) from error
    except SkillFileError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # An escape such as \UFFFFFFFF, which no character has.
        raise SkillFileError(f"not valid YAML: {error}", 1) from error
    if second is not None:
        raise SkillFileError("more than one YAML document", _line(second))
    if not isinstance(root, yaml.MappingNode):
        raise SkillFileError("the front matter must be keys with values, such as name: …", 2)
    return root


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """The content of the file."""

    name: str
    description: str
    system_prompt: str
    """The body; the description where it is empty."""
    model: str | None = None
    agents: tuple[str, ...] = ()
    agents_line: int | None = None
    tools: tuple[str, ...] = ()
    """Names and patterns of tools of the server."""
    tools_line: int | None = None
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] | None = None
    """Null without the key; an empty list allows no tool."""
    allowed_tools_line: int | None = None
    warnings: tuple[tuple[int, str], ...] = ()
    """Line and reason of what the public format forbids; the agent can be used all the same."""


def read_skill_file(path: Path, name: str) -> SkillFile:
    """Read the file of the agent with this name; blocks.

    Raises:
        SkillFileError: it cannot be read, or is not as the format wants it.
    """
    try:
        content, _ = read_plain(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = "not a plain file" if error.errno in NOT_PLAIN else f"{error.strerror}"
        raise SkillFileError(f"cannot be read: {reason}", 1) from error
    return parse_skill_file(content, name)


def parse_skill_file(content: bytes, name: str) -> SkillFile:
    """Parse the content of the file; raises as :func:`read_skill_file`."""
    if len(content) > MAX_FILE_BYTES:
        raise SkillFileError(f"the file is larger than {MAX_FILE_BYTES:,} bytes", 1)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SkillFileError("not UTF-8 text", line) from error
    front, body = _split_file(text)
    return _skill(_Keys(_read_front_matter(front)), body, name)


def _split_file(text: str) -> tuple[str, str]:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise SkillFileError("the file must begin with front matter, a line with ---", 1)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise SkillFileError("the front matter is not closed by a line with ---", 1)
    front = _BREAKS.sub(" ", "\n".join(lines[1:end]))
    if len(front) > MAX_CHARACTERS:
        raise SkillFileError(f"the front matter is longer than {MAX_CHARACTERS:,} characters", 1)
    return front, "\n".join(lines[end + 1 :])


def _skill(keys: _Keys, body: str, name: str) -> SkillFile:
    _check_folder_name(name)
    description = keys.needed("description")
    warnings = tuple(_warnings(keys, name, description))
    description = " ".join(description.split())
    metadata = keys.metadata()
    return SkillFile(
        name=name,
        description=description,
        system_prompt=body.strip() or description,
        model=keys.text("model") or _text_in(metadata, "mochi-model"),
        agents=keys.names("agents") or _split(_text_in(metadata, "mochi-agents")),
        agents_line=keys.line("agents") if "agents" in keys else keys.line("metadata"),
        tools=keys.names("tools") or _split(_text_in(metadata, "mochi-tools")),
        tools_line=keys.line("tools") if "tools" in keys else keys.line("metadata"),
        license=keys.text("license"),
        compatibility=keys.text("compatibility", COMPATIBILITY_CHARACTERS),
        metadata=metadata,
        allowed_tools=keys.names("allowed-tools") if "allowed-tools" in keys else None,
        allowed_tools_line=keys.line("allowed-tools"),
        warnings=warnings,
    )


def _warnings(keys: _Keys, name: str, description: str) -> Iterator[tuple[int, str]]:
    own_name = keys.text("name")
    if own_name is not None and _normal(own_name) != _normal(name):
        reason = f"name is {own_name!r}, and the folder is {name!r}, which counts"
        yield keys.line("name"), reason
    if len(description) > DESCRIPTION_CHARACTERS:
        reason = f"description is longer than {DESCRIPTION_CHARACTERS:,} characters"
        yield keys.line("description"), reason


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


class _Keys:
    def __init__(self, front: yaml.MappingNode) -> None:
        self._values: dict[str, yaml.Node] = {key.value: value for key, value in front.value}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def line(self, key: str) -> int:
        return _line(self._values[key]) if key in self._values else 1

    def text(self, key: str, most: int | None = None) -> str | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, yaml.ScalarNode):
            raise SkillFileError(f"{key} must be a text", _line(value))
        text = (_text(value) or "").strip()
        if most is not None and len(text) > most:
            raise SkillFileError(f"{key} is longer than {most:,} characters", _line(value))
        return text or None

    def needed(self, key: str) -> str:
        text = self.text(key)
        if text is None:
            reason = "is empty" if key in self else "is missing"
            raise SkillFileError(f"{key} {reason}", self.line(key))
        return text

    def names(self, key: str) -> tuple[str, ...]:
        """Read a list of names, or a text with white space or commas between them."""
        value = self._values.get(key)
        if not isinstance(value, yaml.SequenceNode):
            return _split(self.text(key))
        names = [(_text(each) or "").strip() for each in value.value]
        if not all(names):
            raise SkillFileError(f"{key} must be a list of names", _line(value))
        return tuple(dict.fromkeys(names))

    def metadata(self) -> JSONObject:
        value = self._values.get("metadata")
        if value is None or (isinstance(value, yaml.ScalarNode) and _text(value) is None):
            return {}
        if not isinstance(value, yaml.MappingNode):
            raise SkillFileError("metadata must be keys with values", _line(value))
        return {key.value: _plain(each) for key, each in value.value}


def _plain(node: yaml.Node) -> JsonValue:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each) for each in node.value]
    if isinstance(node, yaml.MappingNode):
        return {key.value: _plain(each) for key, each in node.value}
    return _text(node)


def _text_in(metadata: JSONObject, key: str) -> str | None:
    value = metadata.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, _NAMES.split(text or ""))))


def _check_folder_name(name: str) -> None:
    if len(name) > NAME_CHARACTERS:
        raise SkillFileError(f"the folder's name is longer than {NAME_CHARACTERS} characters", 1)
    if not name[:1].isalnum() or not all(each.isalnum() or each in "-_" for each in name):
        rule = "only letters, digits, - and _ are allowed, a letter or digit first"
        raise SkillFileError(f"the folder's name is {name!r}: {rule}", 1)
