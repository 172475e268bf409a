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
from typing import TypeAlias

import yaml
from pydantic import JsonValue

from ..core.files import NOT_PLAIN, read_plain
from ..errors import JSONObject

MAX_CHARACTERS = 32_000
"""Characters of a front matter."""

MAX_DEPTH = 16
"""Most levels of lists and mappings."""

_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Ends of lines for YAML 1.1, and for no editor."""

_COLON = "mapping values are not allowed here"
"""The YAML library's words for ``description: Use it for: this``."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class FrontMatterError(ValueError):
    """The front matter cannot be read; the text says why."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        """From 1, in the file."""


@dataclass(frozen=True, slots=True)
class YamlText:
    """A value as it is written: ``1.0`` is "1.0", ``yes`` is "yes"; null for nothing."""

    value: str | None
    line: int


@dataclass(slots=True)
class YamlList:
    """A list."""

    line: int
    items: list[YamlValue] = field(default_factory=list)


@dataclass(slots=True)
class YamlMapping:
    """Keys with values, in their order."""

    line: int
    values: dict[str, YamlValue] = field(default_factory=dict)
    open_key: str | None = None
    """Key whose value is read next."""


YamlValue: TypeAlias = YamlText | YamlList | YamlMapping


def split_front_matter(text: str) -> tuple[YamlMapping, str]:
    """Split a file into its front matter and the Markdown after it.

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
    if len(front) > MAX_CHARACTERS:
        raise FrontMatterError(f"the front matter is longer than {MAX_CHARACTERS:,} characters", 1)
    return _read(front), "\n".join(lines[end + 1 :])


def _read(front: str) -> YamlMapping:
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


def _build(front: str) -> YamlMapping:
    """Build from events, not by a loader: so the depth is limited, and no object is made."""
    open_: list[YamlList | YamlMapping] = []
    root: YamlValue | None = None
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
        if not isinstance(value, YamlText):
            open_.append(value)
        if len(open_) > MAX_DEPTH:
            raise FrontMatterError(f"nested more than {MAX_DEPTH} levels deep", line)
    if not isinstance(root, YamlMapping):
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
    """Return the line in the file, where the front matter begins in the second line."""
    return event.start_mark.line + 2 if event.start_mark is not None else 1


def _value(event: yaml.Event, line: int) -> YamlValue | None:
    """Return the value that an event begins; None for other events."""
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise FrontMatterError("aliases and anchors (* and &) are not allowed", line)
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
        raise FrontMatterError("tags (!) are not allowed; quote a text that begins with !", line)
    if isinstance(event, yaml.ScalarEvent):
        return YamlText(_text(event, line), line)
    if isinstance(event, yaml.SequenceStartEvent):
        return YamlList(line)
    return YamlMapping(line) if isinstance(event, yaml.MappingStartEvent) else None


def _text(event: yaml.ScalarEvent, line: int) -> str | None:
    if event.style is None and event.value in _NULLS:
        return None
    try:
        event.value.encode()
    except UnicodeEncodeError:
        raise FrontMatterError("a text has half of a surrogate pair", line) from None
    return event.value


def _add(parent: YamlList | YamlMapping, value: YamlValue) -> None:
    if isinstance(parent, YamlList):
        parent.items.append(value)
    elif parent.open_key is not None:
        parent.values[parent.open_key] = value
        parent.open_key = None
    elif not isinstance(value, YamlText) or value.value is None:
        raise FrontMatterError("a key must be a text", value.line)
    elif value.value in parent.values:
        raise FrontMatterError(f"the key {value.value!r} stands here twice", value.line)
    else:
        parent.open_key = value.value


SKILL_FILES = ("SKILL.md", "skill.md")
"""Names of the file; the first that is there counts."""

MAX_FILE_BYTES = 200_000
"""Bytes; a larger file is no prompt."""

DESCRIPTION_CHARACTERS = 1024
COMPATIBILITY_CHARACTERS = 500
NAME_CHARACTERS = 64

_NAMES = re.compile(r"[\s,]+")


class SkillFileError(FrontMatterError):
    """The file describes no agent; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """The content of the file."""

    name: str
    description: str
    """One line."""
    system_prompt: str
    """The body; the description where it is empty."""
    model: str | None = None
    agents: tuple[str, ...] = ()
    """Names of agents that this one may call."""
    agents_line: int | None = None
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
    """Parse the content of the file.

    Raises:
        SkillFileError: it is not as the format wants it.
    """
    if len(content) > MAX_FILE_BYTES:
        raise SkillFileError(f"the file is larger than {MAX_FILE_BYTES:,} bytes", 1)
    try:
        front, body = split_front_matter(content.decode())
        return _skill(_Keys(front), body, name)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SkillFileError("not UTF-8 text", line) from error
    except SkillFileError:
        raise
    except FrontMatterError as error:
        raise SkillFileError(error.reason, error.line) from error


def _skill(keys: _Keys, body: str, name: str) -> SkillFile:
    _check_name(name, 1, "the folder's name")
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
    """The keys of a front matter, with checks of their types."""

    def __init__(self, front: YamlMapping) -> None:
        self._values = front.values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def line(self, key: str) -> int:
        return self._values[key].line if key in self._values else 1

    def text(self, key: str, most: int | None = None) -> str | None:
        """Return a text without the white space around it; None if it is absent or empty."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, YamlText):
            raise SkillFileError(f"{key} must be a text", value.line)
        text = (value.value or "").strip()
        if most is not None and len(text) > most:
            raise SkillFileError(f"{key} is longer than {most:,} characters", value.line)
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
        if not isinstance(value, YamlList):
            return _split(self.text(key))
        names = [
            each.value.strip() for each in value.items if isinstance(each, YamlText) and each.value
        ]
        if len(names) < len(value.items) or not all(names):
            raise SkillFileError(f"{key} must be a list of names", value.line)
        return tuple(dict.fromkeys(names))

    def metadata(self) -> JSONObject:
        value = self._values.get("metadata")
        if value is None or (isinstance(value, YamlText) and value.value is None):
            return {}
        if not isinstance(value, YamlMapping):
            raise SkillFileError("metadata must be keys with values", value.line)
        return {key: _plain(each) for key, each in value.values.items()}


def _plain(value: YamlValue) -> JsonValue:
    if isinstance(value, YamlText):
        return value.value
    if isinstance(value, YamlList):
        return [_plain(each) for each in value.items]
    return {key: _plain(each) for key, each in value.values.items()}


def _text_in(metadata: JSONObject, key: str) -> str | None:
    value = metadata.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, _NAMES.split(text or ""))))


def _check_name(name: str, line: int, what: str) -> None:
    if len(name) > NAME_CHARACTERS:
        raise SkillFileError(f"{what} is longer than {NAME_CHARACTERS} characters", line)
    if not name[:1].isalnum() or not all(each.isalnum() or each in "-_" for each in name):
        rule = "only letters, digits, - and _ are allowed, a letter or digit first"
        raise SkillFileError(f"{what} is {name!r}: {rule}", line)
