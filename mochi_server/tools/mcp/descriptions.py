"""Tools as MCP servers describe them, within limits, in a form that is kept on disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.limits import is_too_deep
from ...core.logs import one_line
from ...errors import JSONObject
from ..dialects import modern_schema
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
SCHEMA = "mochi-server/schema"
"""Key under ``_meta`` of a tool's input schema as its server sent it: the SDK gets one that it does
not refuse."""

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
    """In whatever dialect the server writes it."""
    annotations: Mapping[str, bool | str]
    """As the protocol names them: ``readOnlyHint``, ``title``, …"""
    parameters: JSONObject = field(init=False, compare=False, repr=False)
    """The same schema as vendors expect it: an object with ``properties``, in today's dialect."""
    digest: str = field(init=False, compare=False, repr=False)
    """The SHA-256 of what a model and a person are told about it."""
    size: int = field(init=False, compare=False, repr=False)
    """Characters of that, as JSON."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _parameters(self.input_schema))
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
        input_schema=_schema((tool.meta or {}).get(SCHEMA)),
        annotations=annotations,
    )


def _description(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]}…"


def _schema(schema: Any) -> JSONObject:  # noqa: ANN401 - any JSON
    """Return the schema of an object; nothing, and the empty list of PHP, are one without names."""
    if schema is None or schema == []:
        schema = {}
    if not isinstance(schema, dict):
        raise Unusable("its schema describes no object")
    if is_too_deep(schema, MAX_LEVELS):
        raise Unusable(f"its schema is nested deeper than {MAX_LEVELS} levels")
    try:
        text = json.dumps(schema, ensure_ascii=False)
        text.encode()
    except ValueError as error:
        raise Unusable("its schema is no valid JSON") from error
    if len(text) > MAX_SCHEMA:
        raise Unusable(f"its schema has more than {MAX_SCHEMA:,} characters")
    return {
        **schema,
        "type": schema.get("type") or "object",
        "properties": schema.get("properties") or {},
    }


def _parameters(schema: JSONObject) -> JSONObject:
    modern = modern_schema(schema)
    kinds = modern.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise Unusable("its schema describes no object")
    properties = modern["properties"]
    if not isinstance(properties, dict) or not all(
        isinstance(each, dict | bool) for each in properties.values()
    ):
        raise Unusable("the properties of its schema are no schemas")
    required = modern.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise Unusable("'required' in its schema is no list of names")
    return {**modern, "type": "object"}


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


def offered_name(prefix: str, own_name: str, *, is_taken: bool = False) -> str:
    """Return the name under which a server's tool is offered: ``{prefix}__{tool}``.

    Characters that vendors refuse become ``_``; the end of a name that is too long becomes a hash.

    Args:
        prefix: Of the server.
        own_name: The server's own name for it.
        is_taken: Whether others have the same name then, so that it needs the hash, too.
    """
    name = f"{prefix}__{offered_part(own_name)}"
    if len(name) <= MAX_NAME and not is_taken:
        return name
    digest = hashlib.sha256(own_name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def taken_names(own_names: Iterable[str]) -> frozenset[str]:
    """Return those of a server's names that would be offered under the name of another one.

    A name that is offered as it is keeps it; none of the others does, in whatever order they come.
    """
    names = set(own_names)
    counts = Counter(map(offered_part, names))
    return frozenset(
        name for name in names if counts[part := offered_part(name)] > 1 and name != part
    )


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
