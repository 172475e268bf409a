"""What tools take, in the words of JSON Schema that Ollama hands on to its models.

Its own type of a property keeps ``anyOf``, ``type``, ``items`` (whole), ``description``, ``enum``,
``properties`` and ``required``, and drops everything else without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from ...errors import JSONObject
from ..common.tools import parameters_of, resolved

DROPPED: Final = (
    "default", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "examples",
)  # fmt: skip
"""Keywords that Ollama drops, and that a model should know."""
KEPT_TOOLS: Final = 256
"""Tools that are kept as Ollama takes them; converting one takes 30 µs."""
MAX_REFERENCES: Final = 100
"""References that are written out in one tool; each may lead to many others."""
_NO_SCHEMAS: Final = frozenset({"default", "enum", "const", "examples", "$defs"})
"""Keywords whose values are not schemas, or not needed any more."""
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}

Schema = dict[str, Any]


def tool_for_ollama(tool: Mapping[str, Any]) -> JSONObject:
    """Return a tool with its references written out, and with dropped words in descriptions.

    Tools stay the same between requests: what was made of one is kept, and must not be changed.
    """
    try:
        return _converted(orjson.dumps(tool))
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits
        return _convert(tool)


@lru_cache(maxsize=KEPT_TOOLS)
def _converted(encoded: bytes) -> JSONObject:
    return _convert(orjson.loads(encoded))


def _convert(tool: Mapping[str, Any]) -> JSONObject:
    parameters = parameters_of(tool)
    inlined = _ReferenceWriter(parameters).inline(parameters, ())
    inlined.pop("$defs", None)
    inlined["properties"] = _describe_all(inlined["properties"])
    return {**tool, "function": {**tool["function"], "parameters": inlined}}


class _ReferenceWriter:
    """Writes out what the references within one schema lead to."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MAX_REFERENCES

    def inline(self, schema: Any, within: tuple[str, ...]) -> Any:  # noqa: ANN401 - any JSON
        """Return the schema without references; one to itself, or one too many, is any object."""
        if isinstance(schema, list):
            return [self.inline(each, within) for each in schema]
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            target = resolved(schema, self._root)
            if target is schema or reference in within or self._left <= 0:
                return {"type": "object", **self.inline(rest, within)}
            self._left -= 1
            return {**self.inline(target, (*within, reference)), **self.inline(rest, within)}
        return {key: self._inline_value(key, value, within) for key, value in schema.items()}

    def _inline_value(self, key: str, value: Any, within: tuple[str, ...]) -> Any:  # noqa: ANN401
        if key in _NO_SCHEMAS:
            return value
        if key == "properties" and isinstance(value, dict):
            return {name: self.inline(each, within) for name, each in value.items()}
        return self.inline(value, within)


def _describe_all(properties: Mapping[str, Any]) -> Schema:
    return {name: _describe(each) for name, each in properties.items()}


def _describe(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a property's schema whose description says what Ollama drops of it."""
    if not isinstance(schema, dict):
        return schema
    plain = _plain(schema)
    if isinstance(plain.get("anyOf"), list):
        plain["anyOf"] = [_describe(each) for each in plain["anyOf"]]
    if isinstance(plain.get("properties"), dict):
        plain["properties"] = _describe_all(plain["properties"])
    notes = [f"{key}: {_as_text(plain[key])}" for key in DROPPED if plain.get(key) is not None]
    if isinstance(values := plain.get("additionalProperties"), dict) and values:
        notes.append(f"values: {_as_text(values)}")
    if notes:
        description, note = plain.get("description"), "; ".join(notes)
        plain["description"] = f"{description} ({note})" if description else note
    return plain


def _plain(schema: Schema) -> Schema:
    """Say the same choices in the words that Ollama keeps."""
    plain: Schema = {}
    parts = schema.get("allOf")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            plain |= part
    plain |= {key: value for key, value in schema.items() if key != "allOf"}
    if "const" in plain:
        plain.setdefault("enum", [plain["const"]])
    if isinstance(plain.get("oneOf"), list):
        plain.setdefault("anyOf", plain.pop("oneOf"))
    if isinstance(plain.get("prefixItems"), list):
        plain.setdefault("items", {"anyOf": plain["prefixItems"]})
    if isinstance(plain.get("enum"), list) and "type" not in plain:
        types = {_TYPES.get(type(value)) for value in plain["enum"]}
        if len(types) == 1 and None not in types:
            plain["type"] = types.pop()
    return plain


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
