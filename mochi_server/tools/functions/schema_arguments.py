"""Check arguments against a tool's JSON Schema, where its function is not at hand.

The schema is compiled for pydantic's core, so leniency and words are those of the function's own
model: ``"7"`` is a number, ``"[1]"`` a list. What the core cannot express is let through: the
function decides. https://docs.pydantic.dev/latest/api/pydantic_core_schema/
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from pydantic_core import SchemaError, SchemaValidator, to_jsonable_python
from pydantic_core import core_schema as core

from ...errors import JSONObject
from .arguments import Arguments
from .results import object_or_empty

DEFINITIONS = "#/$defs/"

_FORMATS: Mapping[str, Callable[[], core.CoreSchema]] = {
    "date": core.date_schema,
    "date-time": core.datetime_schema,
    "duration": core.timedelta_schema,
    "time": core.time_schema,
    "uuid": core.uuid_schema,
}
_NUMBER_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_TEXT_BOUNDS = {"minLength": "min_length", "maxLength": "max_length"}
_LIST_BOUNDS = {"minItems": "min_length", "maxItems": "max_length"}


class SchemaArguments(Arguments[dict[str, Any]]):
    """Fits arguments to a JSON Schema of an object.

    Args:
        parameters: The schema.
        unchecked: Names in it that take any value here.
    """

    def __init__(self, parameters: JSONObject, unchecked: Collection[str] = ()) -> None:
        properties = object_or_empty(parameters.get("properties"))
        if unchecked:
            properties = {**properties, **dict.fromkeys(unchecked, True)}
            parameters = {**parameters, "properties": properties}
        super().__init__(list(properties))
        try:
            self._validator = _compile(parameters)
        except (SchemaError, RecursionError, TypeError, ValueError):  # a schema of the user's own
            loose: JSONObject = dict.fromkeys(properties, True)
            self._validator = _compile(
                {"properties": loose, "required": parameters.get("required", [])}
            )

    def _parse(self, arguments: JSONObject) -> dict[str, Any]:
        parsed: dict[str, Any] = self._validator.validate_python(arguments)
        return parsed

    def _dump(self, parsed: dict[str, Any]) -> JSONObject:
        dumped: JSONObject = to_jsonable_python(parsed)
        return dumped


def _compile(schema: JSONObject) -> SchemaValidator:
    compiler = _Compiler(object_or_empty(schema.get("$defs")))
    closed: JSONObject = {"type": "object", "additionalProperties": False}
    return SchemaValidator(compiler.whole({"properties": {}, **schema, **closed}))


class _Compiler:
    """Makes the core's schemas of those in JSON."""

    def __init__(self, definitions: JSONObject) -> None:
        self._definitions = definitions

    def whole(self, schema: JSONObject) -> core.CoreSchema:
        made = self.schema(schema)
        if not self._definitions:
            return made
        named: list[Any] = [
            {**self.schema(each if "$ref" not in object_or_empty(each) else None), "ref": name}
            for name, each in self._definitions.items()
        ]
        return core.definitions_schema(made, named)

    def schema(self, schema: Any) -> core.CoreSchema:  # noqa: ANN401 - any JSON
        """Compile any schema; one that says nothing, or too much, takes any value."""
        made: core.CoreSchema = core.any_schema()
        match schema:
            case {"$ref": str(path)}:
                name = path.removeprefix(DEFINITIONS)
                if name in self._definitions:
                    made = core.definition_reference_schema(name)
            case {"const": value}:
                made = core.literal_schema([value])
            case {"enum": [*values]} if values:
                made = core.literal_schema(values)
            case {"anyOf": [*choices]} | {"oneOf": [*choices]}:
                made = self._union(choices)
            case {"type": [*kinds]}:
                made = self._union([{**schema, "type": kind} for kind in kinds])
            case {"type": str(kind)} if kind in self._TYPES:
                made = self._TYPES[kind](self, schema)
        return made

    def _union(self, choices: list[Any]) -> core.CoreSchema:
        others = [each for each in choices if each != {"type": "null"}]
        made: core.CoreSchema
        if len(others) == 1:
            made = self.schema(others[0])
        elif others:
            made = core.union_schema([self._choice(each) for each in others])
        else:
            return core.none_schema()
        return made if len(others) == len(choices) else core.nullable_schema(made)

    def _choice(self, schema: Any) -> Any:  # noqa: ANN401 - any JSON
        """Compile one choice of a union, with the name that errors in it have."""
        made = self.schema(schema)
        if isinstance(schema, dict) and "$ref" in schema:
            return made, str(schema["$ref"]).removeprefix(DEFINITIONS)
        return made

    def _list(self, schema: JSONObject) -> core.CoreSchema:
        items = self.schema(schema.get("items"))
        first = schema.get("prefixItems")
        if not isinstance(first, list):
            return core.list_schema(items, **_bounds(schema, _LIST_BOUNDS))
        places = [self.schema(each) for each in first]
        if schema.get("maxItems") == len(places):
            return core.tuple_schema(places)
        return core.tuple_schema([*places, items], variadic_item_index=len(places))

    def _object(self, schema: JSONObject) -> core.CoreSchema:
        properties = schema.get("properties")
        others = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            return core.dict_schema(values_schema=self.schema(others))
        required = schema.get("required")
        names = required if isinstance(required, list) else ()
        fields = {
            name: core.typed_dict_field(self.schema(each), required=name in names)
            for name, each in properties.items()
        }
        if others is False:
            return core.typed_dict_schema(fields, extra_behavior="forbid")
        return core.typed_dict_schema(
            fields, extra_behavior="allow", extras_schema=self.schema(others)
        )

    _TYPES: ClassVar[Mapping[str, Callable[[_Compiler, JSONObject], core.CoreSchema]]] = {
        "null": lambda _, __: core.none_schema(),
        "boolean": lambda _, __: core.bool_schema(),
        "integer": lambda _, schema: core.int_schema(**_bounds(schema, _NUMBER_BOUNDS)),
        "number": lambda _, schema: _number(schema),
        "string": lambda _, schema: _text(schema),
        "array": _list,
        "object": _object,
    }


def _number(schema: JSONObject) -> core.CoreSchema:
    return core.float_schema(allow_inf_nan=False, **_bounds(schema, _NUMBER_BOUNDS))


def _text(schema: JSONObject) -> core.CoreSchema:
    kind = str(schema.get("format", ""))
    if kind in _FORMATS:
        return _FORMATS[kind]()
    if kind:  # bytes, for which lengths mean something else, and paths, addresses, …
        return core.str_schema(coerce_numbers_to_str=True)
    pattern = schema.get("pattern")
    made = core.str_schema(coerce_numbers_to_str=True, **_bounds(schema, _TEXT_BOUNDS))
    if isinstance(pattern, str):
        with_pattern: core.CoreSchema = {**made, "pattern": pattern}
        # Without one that the core cannot read, such as a look-ahead.
        with contextlib.suppress(SchemaError):
            SchemaValidator(with_pattern)
            return with_pattern
    return made


def _bounds(schema: JSONObject, names: Mapping[str, str]) -> dict[str, Any]:
    return {ours: schema[word] for word, ours in names.items() if word in schema}
