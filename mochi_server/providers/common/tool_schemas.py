"""The JSON Schema of a tool's arguments, in the one form that every vendor takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_REFUSED: Final = frozenset({*_ALTERNATIVES, "allOf", "not", "enum"})
_LEVELS: Final = 4
"""How deep alternatives may be nested; those that refer to themselves have no end."""

Schema = dict[str, Any]


def parameters_of(tool: Mapping[str, Any]) -> Schema:
    """Return the JSON Schema of a tool's arguments as one object with its properties.

    Tools of other sources may have alternatives at the top, for which Anthropic and OpenAI refuse
    the whole request. Their properties become those of the object; which go together the tool says
    itself, when it is called otherwise.
    """
    parameters = (tool.get("function") or {}).get("parameters")
    schema = parameters if isinstance(parameters, dict) else {}
    if schema.keys() & _REFUSED:
        schema = _merged(schema, schema, _LEVELS)
    rest = {key: value for key, value in schema.items() if key not in {"type", "properties"}}
    return {"type": "object", "properties": _properties_of(schema), **rest}


def _merged(schema: Mapping[str, Any], root: Mapping[str, Any], levels: int) -> Schema:
    """Return one object that allows all that any of the alternatives does."""
    merged = {key: value for key, value in schema.items() if key not in _REFUSED}
    properties, required = _properties_of(schema), set(_required_of(schema))
    for part in _parts(schema, ("allOf",), root, levels):
        properties = {**_properties_of(part), **properties}
        required |= _required_of(part)
    choices = _parts(schema, _ALTERNATIVES, root, levels)
    variants: dict[str, list[Any]] = {}
    for part in choices:
        for name, value in _properties_of(part).items():
            if value not in variants.setdefault(name, []):
                variants[name].append(value)
    optional = {n: own[0] if len(own) == 1 else {"anyOf": own} for n, own in variants.items()}
    if choices:
        required |= set.intersection(*(_required_of(part) for part in choices))
    merged |= {"properties": {**optional, **properties}}
    return {**merged, "required": sorted(required)} if required else merged


def _parts(
    schema: Mapping[str, Any], kinds: tuple[str, ...], root: Mapping[str, Any], levels: int
) -> list[Schema]:
    lists = (schema.get(kind) for kind in kinds)
    parts = [part for parts in lists if isinstance(parts, list) for part in parts]
    objects = (resolved(part, root) for part in parts if isinstance(part, dict))
    return [_merged(part, root, levels - 1) for part in objects] if levels else []


def resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference (JSON Pointer) within the schema leads to; else the part itself."""
    reference = part.get("$ref")
    if not (isinstance(reference, str) and reference.startswith("#/")):
        return part
    target: Any = root
    for step in unquote(reference).removeprefix("#/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = next((one for at, one in enumerate(target) if str(at) == name), None)
        else:
            target = target.get(name) if isinstance(target, dict) else None
    return target if isinstance(target, dict) else part


def _properties_of(schema: Mapping[str, Any]) -> Schema:
    properties = schema.get("properties")
    return dict(properties) if isinstance(properties, dict) else {}


def _required_of(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
