"""What tools take, in the words of JSON Schema that Ollama hands on to its models.

Its own type of a property keeps ``anyOf``, ``type``, ``items`` (whole), ``description``, ``enum``,
``properties`` and ``required``, and drops everything else without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..errors import JSONObject
from .parameters import parameters_of, resolved

TOLD: Final = (
    "default", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "examples",
)  # fmt: skip
"""Words that Ollama drops, and that a model should know."""
MOST_REFERENCES: Final = 100
"""References that are written out in one tool; each may lead to many others."""
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}

Schema = dict[str, Any]


def tool_for_ollama(tool: Mapping[str, Any]) -> JSONObject:
    """The same tool with references written out, and dropped words in the descriptions."""
    parameters = parameters_of(tool)
    inlined = _Inliner(parameters).inline(parameters, ())
    inlined.pop("$defs", None)
    inlined["properties"] = _told_all(inlined["properties"])
    return {**tool, "function": {**tool["function"], "parameters": inlined}}


class _Inliner:
    """Writes out what the references within one schema lead to."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MOST_REFERENCES

    def inline(self, schema: Any, within: tuple[str, ...]) -> Any:  # noqa: ANN401 - any JSON
        """The schema without references; one to itself, or one too many, becomes any object."""
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
            return {
                **self.inline(target, (*within, reference)),
                **self.inline(rest, within),
            }
        return {
            key: value if key in {"default", "enum", "const", "examples", "$defs"}
            else {name: self.inline(each, within) for name, each in value.items()}
            if key == "properties" and isinstance(value, dict)
            else self.inline(value, within)
            for key, value in schema.items()
        }  # fmt: skip


def _told_all(properties: Mapping[str, Any]) -> Schema:
    return {name: _told(each) for name, each in properties.items()}


def _told(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """A property's schema whose description says what Ollama drops of it."""
    if not isinstance(schema, dict):
        return schema
    told = _plain(schema)
    if isinstance(told.get("anyOf"), list):
        told["anyOf"] = [_told(each) for each in told["anyOf"]]
    if isinstance(told.get("properties"), dict):
        told["properties"] = _told_all(told["properties"])
    notes = [f"{word}: {_shown(told[word])}" for word in TOLD if told.get(word) is not None]
    if isinstance(values := told.get("additionalProperties"), dict) and values:
        notes.append(f"values: {_shown(values)}")
    if notes:
        said = told.get("description")
        words = "; ".join(notes)
        told["description"] = f"{said} ({words})" if said else words
    return told


def _plain(schema: Schema) -> Schema:
    """The same choices in the words that Ollama keeps."""
    plain: Schema = {}
    for part in schema.get("allOf") or ():
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


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
