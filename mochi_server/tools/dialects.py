"""JSON Schemas as servers send them, in the dialect that vendors and our own checks read.

Servers send what their libraries make of their types: JSON Schema since draft 3, the schemas of
OpenAPI 3.0, null for an empty list (Go), an empty list for an empty object (PHP). What says
something in one of these is said as in draft 2020-12; the rest stays as it is.
https://json-schema.org/specification#migrating-from-older-drafts
https://spec.openapis.org/oas/v3.0.4.html#schema-object
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import JsonValue

from ..errors import JSONObject

DRAFT_2020_12: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_VALUES = frozenset({"default", "const", "example"})
"""Keywords for which null is a value, and does not mean that there is none."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
)
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_OLD_DEFINITIONS = "#/definitions/"


def modern_schema(schema: JSONObject) -> JSONObject:
    """Return a schema as one of draft 2020-12; an argument with a default is not required."""
    root = dict(schema)
    if root.get("$schema") != DRAFT_2020_12:
        root.pop("$schema", None)
    old = root.pop("definitions", None)
    if isinstance(old, dict):
        new = root.get("$defs")
        root["$defs"] = {**old, **(new if isinstance(new, dict) else {})}
    modern: JSONObject = _modern(root)
    return modern


def _modern(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    if schema is None:
        return {}
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if value is not None or key in _VALUES}
    _use_prefix_items(made)
    _use_required_names(made)
    for key in made.keys() & (_MAPS | _LISTS | _SINGLE):
        made[key] = _modern_part(key, made[key])
    _use_exclusive_numbers(made)
    _use_type_names(made)
    if isinstance(reference := made.get("$ref"), str) and reference.startswith(_OLD_DEFINITIONS):
        made["$ref"] = f"#/$defs/{reference.removeprefix(_OLD_DEFINITIONS)}"
    if not made.get("enum", True):
        del made["enum"]
    return _with_null(made) if made.pop("nullable", False) is True else made


def _modern_part(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON
    if key in _MAPS:
        if value == []:
            return {}
        is_map = isinstance(value, dict)
        return {name: _modern(each) for name, each in value.items()} if is_map else value
    if key in _LISTS:
        return [_modern(each) for each in value] if isinstance(value, list) else value
    return {} if value == [] else _modern(value)


def _use_prefix_items(schema: JSONObject) -> None:
    """Say in the place of a list of ``items`` (until draft 2019-09) ``prefixItems``."""
    others = schema.pop("additionalItems", None)
    first = schema.get("items")
    if isinstance(first, list) and first:
        schema["prefixItems"] = first
        del schema["items"]
        if others is not None:
            schema["items"] = others


def _use_required_names(schema: JSONObject) -> None:
    """Say in one list which properties must be there, none that has a default among them.

    Some generators list those, too, as their values are always there once they are read; servers
    take calls without them.
    """
    names = schema.get("required")
    if names == {} or isinstance(names, bool):
        names = []
    properties = schema.get("properties")
    if isinstance(properties, dict):
        own = {name: dict(each) for name, each in properties.items() if isinstance(each, dict)}
        marked = [name for name, each in own.items() if _pop_mark(each)]  # as draft 3 does
        if isinstance(names, list) or (names is None and marked):
            names = [
                name
                for name in [*(names or ()), *marked]
                if not (isinstance(name, str) and "default" in own.get(name, ()))
            ]
        schema["properties"] = {**properties, **own}
    if names:
        schema["required"] = names
    else:
        schema.pop("required", None)


def _pop_mark(schema: JSONObject) -> bool:
    return isinstance(schema.get("required"), bool) and schema.pop("required") is True


def _use_exclusive_numbers(schema: JSONObject) -> None:
    """Say a bound that is excluded by a number, which draft 4 and OpenAPI 3.0 say by true."""
    for exclusive, bound in _BOUNDS.items():
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _use_type_names(schema: JSONObject) -> None:
    """Leave out what is no name of a type, such as ``any`` of draft 3."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if not isinstance(kinds, list):
        return
    known: list[JsonValue] = [
        each.lower() for each in kinds if isinstance(each, str) and each.lower() in _TYPES
    ]
    if not known or len(known) < len(kinds):
        del schema["type"]
    else:
        schema["type"] = known[0] if len(known) == 1 else known


def _with_null(schema: JSONObject) -> JSONObject:
    """Return a schema that allows null besides, as ``nullable`` of OpenAPI 3.0 says."""
    kinds = schema.get("type")
    if kinds is None:
        return {"anyOf": [schema, {"type": "null"}]}
    listed = kinds if isinstance(kinds, list) else [kinds]
    with_null = {**schema, "type": list(dict.fromkeys([*listed, "null"]))}
    if isinstance(values := schema.get("enum"), list) and None not in values:
        with_null["enum"] = [*values, None]
    return with_null
