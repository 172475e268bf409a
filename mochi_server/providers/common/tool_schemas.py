"""What tools take, in the one form that every vendor takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_REFUSED: Final = frozenset({*_ALTERNATIVES, "allOf", "not", "enum"})
_LEVELS: Final = 4
"""How deep alternatives may lie within each other; those that name themselves have no end."""

Schema = dict[str, Any]


def parameters_of(tool: Mapping[str, Any]) -> Schema:
    """The JSON Schema of a tool's arguments: an object with its properties, all in one place.

    Tools of other sources may have alternatives at the top, for which Anthropic and OpenAI refuse
    the whole request. Their properties become those of the object; which go together the tool says
    itself, when it is called otherwise.
    """
    given = (tool.get("function") or {}).get("parameters")
    schema = given if isinstance(given, dict) else {}
    if schema.keys() & _REFUSED:
        schema = _folded(schema, schema, _LEVELS)
    rest = {key: value for key, value in schema.items() if key not in {"type", "properties"}}
    return {"type": "object", "properties": _properties_of(schema), **rest}


def _folded(schema: Mapping[str, Any], root: Mapping[str, Any], levels: int) -> Schema:
    """One object that allows all that any of the alternatives does."""
    kept = {key: value for key, value in schema.items() if key not in _REFUSED}
    properties, required = _properties_of(schema), set(_required_of(schema))
    for part in _parts(schema, ("allOf",), root, levels):
        properties = {**_properties_of(part), **properties}
        required |= _required_of(part)
    choices = _parts(schema, _ALTERNATIVES, root, levels)
    found: dict[str, list[Any]] = {}
    for part in choices:
        for name, value in _properties_of(part).items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    several = {n: one[0] if len(one) == 1 else {"anyOf": one} for n, one in found.items()}
    if choices:
        required |= set.intersection(*(_required_of(part) for part in choices))
    kept |= {"properties": {**several, **properties}}
    return {**kept, "required": sorted(required)} if required else kept


def _parts(
    schema: Mapping[str, Any], kinds: tuple[str, ...], root: Mapping[str, Any], levels: int
) -> list[Schema]:
    lists = (schema.get(kind) for kind in kinds)
    parts = [part for found in lists if isinstance(found, list) for part in found]
    objects = (resolved(part, root) for part in parts if isinstance(part, dict))
    return [_folded(part, root, levels - 1) for part in objects] if levels else []


def resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference within the schema leads to, by a JSON Pointer."""
    reference = part.get("$ref")
    if not (isinstance(reference, str) and reference.startswith("#/")):
        return part
    found: Any = root
    for step in unquote(reference).removeprefix("#/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = next((one for at, one in enumerate(found) if str(at) == name), None)
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else part


def _properties_of(schema: Mapping[str, Any]) -> Schema:
    found = schema.get("properties")
    return dict(found) if isinstance(found, dict) else {}


def _required_of(schema: Mapping[str, Any]) -> set[str]:
    found = schema.get("required")
    return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()
