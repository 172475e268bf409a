"""Tools as MCP servers describe them, within limits, in a form that is kept on disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.limits import is_too_deep
from ...core.logs import one_line
from ...errors import JSONObject
from ..functions.results import clean, object_or_empty

if TYPE_CHECKING:
    from mcp_types import Tool

MAX_TOOLS = 1_000
"""Tools of one server."""
MAX_NAME = 64
"""Characters that vendors allow for the name of a tool, which has a prefix here."""
MAX_OWN_NAME = 256
MAX_DESCRIPTION = 10_000
"""Characters; the rest is cut."""
MAX_SCHEMA = 65_536
"""Characters of a schema as JSON."""
MAX_OFFERED = 262_144
"""Characters as JSON of all tools of one server: each request to a model has them."""
MAX_LEVELS = 32
"""Levels of nesting of a schema."""
UNUSABLE = "mochi-server/unusable"
"""Key under ``_meta`` of a stand-in for a tool that the SDK would refuse, with the reason."""

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class Unusable(ValueError):
    """A tool cannot be offered; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolDescription:
    """A tool of a server, as the server describes it."""

    name: str
    """The server's own name for it."""
    title: str | None
    description: str
    input_schema: JSONObject
    annotations: Mapping[str, bool | str]
    """As the protocol names them: ``readOnlyHint``, ``title``, …"""
    digest: str = field(init=False, compare=False, repr=False)
    """The SHA-256 of what a model and a person are told about it."""
    size: int = field(init=False, compare=False, repr=False)
    """Characters of that, as JSON."""

    def __post_init__(self) -> None:
        told = [self.title, self.description, self.input_schema, dict(self.annotations)]
        text = json.dumps(told, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        object.__setattr__(self, "size", len(text))
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest())

    def as_json(self) -> JSONObject:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "input_schema": self.input_schema,
            "annotations": dict(self.annotations),
        }


def read_tool(tool: Tool) -> McpToolDescription:
    """Return what the SDK read of a tool.

    Raises:
        Unusable: its name or its schema cannot be used.
    """
    reason = (tool.meta or {}).get(UNUSABLE)
    if reason is not None:
        raise Unusable(one_line(str(reason)))
    if not tool.name or len(tool.name) > MAX_OWN_NAME or not tool.name.isprintable():
        raise Unusable("its name is empty, too long, or has characters that are not shown")
    annotations: dict[str, bool | str] = {}
    if (hints := tool.annotations) is not None:
        for field, name in _HINTS.items():
            if (value := getattr(hints, f"{field}_hint")) is not None:
                annotations[name] = value
        if hints.title:
            annotations["title"] = one_line(clean(hints.title))
    return McpToolDescription(
        name=clean(tool.name),
        title=None if tool.title is None else one_line(clean(tool.title)),
        description=_description(clean(tool.description or "")),
        input_schema=_schema(tool.input_schema),
        annotations=annotations,
    )


def _description(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]}…"


def _schema(schema: JSONObject) -> JSONObject:
    """Return the schema as vendors expect it: an object with ``properties``."""
    if is_too_deep(schema, MAX_LEVELS):
        raise Unusable(f"its schema is nested deeper than {MAX_LEVELS} levels")
    try:
        text = json.dumps(schema, ensure_ascii=False)
        text.encode()
    except ValueError as error:
        raise Unusable("its schema is no valid JSON") from error
    if len(text) > MAX_SCHEMA:
        raise Unusable(f"its schema has more than {MAX_SCHEMA:,} characters")
    if schema.get("type", "object") != "object":
        raise Unusable("its schema describes no object")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(
        isinstance(each, dict | bool) for each in properties.values()
    ):
        raise Unusable("the properties of its schema are no schemas")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise Unusable("'required' in its schema is no list of names")
    return {**schema, "type": "object", "properties": properties}


def read_stored(value: Any) -> McpToolDescription:  # noqa: ANN401 - JSON of a file
    """Return what :meth:`McpToolDescription.as_json` wrote.

    Raises:
        Unusable: it is something else.
    """
    match value:
        case {
            "name": str(name),
            "title": None | str() as title,
            "description": str(description),
            "input_schema": dict(schema),
            "annotations": dict(annotations),
        }:
            return McpToolDescription(
                name=name,
                title=title,
                description=_description(description),
                input_schema=_schema(schema),
                annotations=annotations,
            )
    raise Unusable("it is no description of a tool")


def offered_name(prefix: str, tool: str) -> str:
    """Return the name under which models call a server's tool: ``{prefix}__{tool}``.

    Characters that vendors refuse become ``_``; the end of a name that is too long becomes a hash.
    """
    name = f"{prefix}__{offered_part(tool)}"
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def approval_key(prefix: str, tool: str) -> str:
    """Return the name by which an approval is kept: what rules and models see of a tool's name."""
    return offered_name(prefix, tool).removeprefix(f"{prefix}__")


def offered_part(tool: str) -> str:
    """Return a tool's own name with ``_`` for what vendors refuse, before it is cut."""
    return _FOREIGN.sub("_", tool)


def is_read_only(tool: McpToolDescription) -> bool | None:
    """Return what ``readOnlyHint`` says; False where ``destructiveHint`` says that it destroys."""
    if tool.annotations.get("readOnlyHint") is True:
        return True
    return False if tool.annotations.get("destructiveHint") is True else None


def takes_other_arguments(schema: JSONObject) -> bool:
    """Return whether a call may have arguments that the schema does not name."""
    others = schema.get("additionalProperties")
    if others is None:
        return not object_or_empty(schema.get("properties"))
    return others is not False
