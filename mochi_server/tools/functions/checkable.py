"""Which parameters a JSON Schema describes as their function takes them.

Validators, enums with ``_missing_``, aliases and the like are code or settings that no JSON Schema
shows: only pydantic, in the process of the function, can tell what such a parameter takes.
https://docs.pydantic.dev/latest/api/pydantic_core_schema/
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

_EXACT_TYPES = frozenset(
    [
        "any",
        "none",
        "bool",
        "int",
        "float",
        "str",
        "bytes",
        "date",
        "time",
        "datetime",
        "timedelta",
        "literal",
        "enum",
        "uuid",
        "url",
        "multi-host-url",
        "list",
        "tuple",
        "set",
        "frozenset",
        "dict",
        "nullable",
        "union",
        "tagged-union",
        "lax-or-strict",
        "json-or-python",
        "is-instance",
        "default",
        "function-after",
        "definitions",
        "definition-ref",
        "model",
        "model-fields",
        "model-field",
        "typed-dict",
        "typed-dict-field",
        "dataclass",
        "dataclass-args",
        "dataclass-field",
    ]
)
"""Types of pydantic's core whose JSON Schema refuses nothing that they take."""
_INEXACT_SETTINGS = (
    "strict",
    "strip_whitespace",
    "to_lower",
    "to_upper",
    "str_strip_whitespace",
    "str_to_lower",
    "str_to_upper",
    "populate_by_name",
    "validate_by_name",
    "val_temporal_unit",
)
_VALUES = frozenset({"metadata", "serialization", "cls", "default", "expected", "members"})
"""Keys below which no schemas stand."""
_REMARKS = frozenset({"title", "description", "examples", "example", "deprecated"})
"""Words of JSON Schema that refuse nothing."""


def uncheckable(model_schema: Any) -> list[str]:  # noqa: ANN401 - a schema of pydantic's core
    """Return the fields of a model that only its own code can check, by the names in the schema."""
    definitions: dict[str, Any] = {}
    if model_schema["type"] == "definitions":
        definitions = {each["ref"]: each for each in model_schema["definitions"]}
        model_schema = model_schema["schema"]
        if model_schema["type"] == "definition-ref":
            model_schema = definitions[model_schema["schema_ref"]]
    fields = model_schema["schema"]["fields"]
    return [
        name
        for name, field in fields.items()
        if not _is_exact(field["schema"], definitions) or _is_changed(field)
    ]


def _is_exact(schema: Any, definitions: Mapping[str, Any]) -> bool:  # noqa: ANN401
    """Tell whether a schema, with all in it, says in JSON all that it takes."""
    todo, seen = [schema], set[str]()
    while todo:
        each = todo.pop()
        if isinstance(each, list | tuple):
            todo += each
        if not isinstance(each, dict):
            continue
        if _is_inexact(each):
            return False
        ref = each.get("schema_ref")
        if isinstance(ref, str) and ref not in seen:
            seen.add(ref)
            todo.append(definitions.get(ref))
        todo += [value for key, value in each.items() if key not in _VALUES]
    return True


def _is_inexact(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return (
        (isinstance(kind, str) and kind not in _EXACT_TYPES)
        or any(schema.get(name) for name in _INEXACT_SETTINGS)
        or isinstance(schema.get("validation_alias"), list)
        # Equal values count once, but only after the server has counted them.
        or (kind in {"set", "frozenset"} and schema.get("max_length") is not None)
        or _has_own_values(schema.get("cls"))
        or _is_changed(schema)
    )


def _has_own_values(cls: object) -> bool:
    """Tell whether a class is an enum that takes more values than it lists."""
    return (
        isinstance(cls, type)
        and issubclass(cls, Enum)
        and getattr(cls._missing_, "__func__", None) is not Enum.__dict__["_missing_"].__func__
    )


def _is_changed(schema: Mapping[str, Any]) -> bool:
    """Tell whether the author has put words of their own into the JSON Schema."""
    metadata = schema.get("metadata") or {}
    cls = schema.get("cls")
    config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    return (
        bool(metadata.get("pydantic_js_annotation_functions"))
        or any(map(_is_own, metadata.get("pydantic_js_functions", ())))
        or not _is_remark(metadata.get("pydantic_js_extra"))
        or not _is_remark(config.get("json_schema_extra"))
    )


def _is_own(function: object) -> bool:
    return not str(getattr(function, "__module__", "")).startswith("pydantic.")


def _is_remark(extra: object) -> bool:
    return extra is None or (isinstance(extra, dict) and extra.keys() <= _REMARKS)
