"""The smallest value that a JSON schema allows: what a model in test mode answers to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEEPEST: Final = 32
"""Levels after which a schema that refers to itself gets null."""

DEEP: Final = 8
"""Levels after which null is taken where it is one of several: a schema may branch into itself."""

TEXT: Final = "Lorem ipsum"

_NULL: Final = {"type": "null"}


def example_of(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """A value that the schema allows, as far as its usual words say: types, enums, references.

    Patterns and formats are not obeyed.
    """
    return _Examples(schema).of(schema, 0)


class _Examples:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def of(self, schema: Any, depth: int) -> Any:  # noqa: ANN401
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return None
        if "$ref" in schema:
            return self.of(self._target(str(schema["$ref"])), depth + 1)
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        for word in ("enum", "examples"):
            if schema.get(word):
                return schema[word][0]
        for word in ("anyOf", "oneOf", "allOf"):
            if schema.get(word):
                ends = depth > DEEP and _NULL in schema[word]
                return self.of(_NULL if ends else schema[word][0], depth + 1)
        return self._of_type(schema, depth)

    def _target(self, reference: str) -> Any:  # noqa: ANN401
        found: Any = self.root
        for name in reference.removeprefix("#").split("/")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401
        kind = schema.get("type", "object" if "properties" in schema else None)
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object":
            fields = schema.get("properties", {})
            return {name: self.of(field, depth + 1) for name, field in fields.items()}
        if kind == "array":
            return [self.of(schema.get("items"), depth + 1)] * max(schema.get("minItems", 1), 1)
        return self._of_scalar(kind, schema)

    @staticmethod
    def _of_scalar(kind: object, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if kind == "string":
            text = TEXT.ljust(schema.get("minLength", 0), ".")
            return text[: schema.get("maxLength", len(text))]
        if kind in {"integer", "number"}:
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return False if kind == "boolean" else None
