"""``SKILL.md``: who an agent is, in the public Agent Skills format with a little of ours.

docs/reference/agents.md has the table of its keys.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from ..core.files import NOT_PLAIN, read_plain
from ..errors import JSONObject
from . import front_matter
from .front_matter import FrontMatterError, Items, Text, Value

SKILL_FILES = ("SKILL.md", "skill.md")
"""Names of the file; the first that is there counts."""

LARGEST_FILE = 200_000
"""Bytes; what is larger is no prompt."""

DESCRIPTION_CHARACTERS = 1024
COMPATIBILITY_CHARACTERS = 500
NAME_CHARACTERS = 64

_NAMES = re.compile(r"[\s,]+")


class SkillFileError(FrontMatterError):
    """The file makes no agent; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """What the file says."""

    name: str
    """The folder's name, which it may repeat."""
    description: str
    """In one line."""
    system_prompt: str
    """The body; the description where it is empty."""
    model: str | None = None
    agents: tuple[str, ...] = ()
    """Agents that this one may call."""
    agents_line: int | None = None
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] | None = None
    """Null where the file does not say; an empty list allows none."""
    allowed_tools_line: int | None = None
    warnings: tuple[tuple[int, str], ...] = ()
    """Line and reason of what the public format forbids, and leaves the agent usable."""


def read_skill_file(path: Path, name: str) -> SkillFile:
    """Read the file of the agent of this name; blocks.

    Raises:
        SkillFileError: it cannot be read, or is not as the format wants it.
    """
    try:
        content, _ = read_plain(path, LARGEST_FILE + 1)
    except OSError as error:
        reason = "not a plain file" if error.errno in NOT_PLAIN else f"{error.strerror}"
        raise SkillFileError(f"cannot be read: {reason}", 1) from error
    return parse_skill_file(content, name)


def parse_skill_file(content: bytes, name: str) -> SkillFile:
    """The same, of what the file has.

    Raises:
        SkillFileError: it is not as the format wants it.
    """
    if len(content) > LARGEST_FILE:
        raise SkillFileError(f"the file is larger than {LARGEST_FILE:,} bytes", 1)
    try:
        front, body = front_matter.split(content.decode())
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
        model=keys.text("model") or _own(metadata, "mochi-model"),
        agents=keys.names("agents") or _split(_own(metadata, "mochi-agents")),
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
    """The front matter's keys, each read as what it must be."""

    def __init__(self, front: front_matter.Mapping) -> None:
        self._values = front.values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def line(self, key: str) -> int:
        return self._values[key].line if key in self._values else 1

    def text(self, key: str, most: int | None = None) -> str | None:
        """A text without the white space around it; null where it is absent or empty."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Text):
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
        """A list of names, or a text with white space or commas between them."""
        value = self._values.get(key)
        if not isinstance(value, Items):
            return _split(self.text(key))
        names = [
            each.value.strip() for each in value.items if isinstance(each, Text) and each.value
        ]
        if len(names) < len(value.items) or not all(names):
            raise SkillFileError(f"{key} must be a list of names", value.line)
        return tuple(dict.fromkeys(names))

    def metadata(self) -> JSONObject:
        value = self._values.get("metadata")
        if value is None or (isinstance(value, Text) and value.value is None):
            return {}
        if not isinstance(value, front_matter.Mapping):
            raise SkillFileError("metadata must be keys with values", value.line)
        return {key: _plain(each) for key, each in value.values.items()}


def _plain(value: Value) -> JsonValue:
    if isinstance(value, Text):
        return value.value
    if isinstance(value, Items):
        return [_plain(each) for each in value.items]
    return {key: _plain(each) for key, each in value.values.items()}


def _own(metadata: JSONObject, key: str) -> str | None:
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
