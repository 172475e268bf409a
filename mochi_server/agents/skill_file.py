"""Reads ``SKILL.md``: the public Agent Skills format with a few keys of our own.

Its front matter is the YAML between two ``---`` lines, kept as text with line numbers. The keys are
in docs/reference/agents.md.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from ..core.front_matter import FrontMatter, FrontMatterError, read_front_matter, split_names
from ..errors import JSONObject

SKILL_FILES = ("SKILL.md", "skill.md")

DESCRIPTION_CHARACTERS = 1024
COMPATIBILITY_CHARACTERS = 500
NAME_CHARACTERS = 64


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
        FrontMatterError: it cannot be read, or is not as the format wants it.
    """
    keys, body = read_front_matter(path)
    _check_folder_name(name)
    description = keys.needed("description")
    warnings = tuple(_warnings(keys, name, description))
    description = " ".join(description.split())
    metadata = keys.mapping("metadata")
    return SkillFile(
        name=name,
        description=description,
        system_prompt=body.strip() or description,
        model=keys.text("model") or _text_in(metadata, "mochi-model"),
        agents=keys.names("agents") or split_names(_text_in(metadata, "mochi-agents")),
        agents_line=keys.line("agents") if "agents" in keys else keys.line("metadata"),
        tools=keys.names("tools") or split_names(_text_in(metadata, "mochi-tools")),
        tools_line=keys.line("tools") if "tools" in keys else keys.line("metadata"),
        license=keys.text("license"),
        compatibility=keys.text("compatibility", COMPATIBILITY_CHARACTERS),
        metadata=metadata,
        allowed_tools=keys.names("allowed-tools") if "allowed-tools" in keys else None,
        allowed_tools_line=keys.line("allowed-tools"),
        warnings=warnings,
    )


def _warnings(keys: FrontMatter, name: str, description: str) -> Iterator[tuple[int, str]]:
    own_name = keys.text("name")
    if own_name is not None and _normal(own_name) != _normal(name):
        reason = f"name is {own_name!r}, and the folder is {name!r}, which counts"
        yield keys.line("name"), reason
    if len(description) > DESCRIPTION_CHARACTERS:
        reason = f"description is longer than {DESCRIPTION_CHARACTERS:,} characters"
        yield keys.line("description"), reason


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _text_in(metadata: JSONObject, key: str) -> str | None:
    value = metadata.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _check_folder_name(name: str) -> None:
    if len(name) > NAME_CHARACTERS:
        raise FrontMatterError(f"the folder's name is longer than {NAME_CHARACTERS} characters", 1)
    if not name[:1].isalnum() or not all(each.isalnum() or each in "-_" for each in name):
        rule = "only letters, digits, - and _ are allowed, a letter or digit first"
        raise FrontMatterError(f"the folder's name is {name!r}: {rule}", 1)
