"""Arguments fitted to a JSON Schema, which is compiled for pydantic's core.

The server has no function at hand; leniency and words are those of the function's own model
(:mod:`.model`). What the core cannot express is let through: the function decides.
https://docs.pydantic.dev/latest/api/pydantic_core_schema/
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import PydanticOmit, SchemaError, SchemaValidator, to_jsonable_python
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


class SchemaArguments(Arguments):
    """Fits arguments to a JSON Schema of an object.

    Args:
        parameters: The schema.
        unchecked: Names of arguments that take any value.
        takes_others: Whether arguments without a name in the schema are let through.
    """

    def __init__(
        self,
        parameters: JSONObject,
        unchecked: Collection[str] = (),
        *,
        takes_others: bool = False,
    ) -> None:
        properties = object_or_empty(parameters.get("properties"))
        if unchecked:
            properties = {**properties, **dict.fromkeys(unchecked, True)}
            parameters = {**parameters, "properties": properties}
        super().__init__({name: _description(each) for name, each in properties.items()})
        try:
            self._validator = _compile(parameters, is_open=takes_others)
        except (SchemaError, RecursionError, TypeError, ValueError):  # a schema of the user's own
            loose: JSONObject = dict.fromkeys(properties, True)
            self._validator = _compile(
                {"properties": loose, "required": parameters.get("required", [])},
                is_open=takes_others,
            )

    def validate(self, arguments: JSONObject) -> JSONObject:
        """Return the arguments, coerced, in JSON form; what has a default may be absent.

        Raises:
            InvalidArguments: they do not fit.
        """
        return self._fit(arguments)[1]

    def _parse(self, arguments: JSONObject) -> Any:  # noqa: ANN401
        return self._validator.validate_python(arguments)

    def _dump(self, parsed: Any) -> JSONObject:  # noqa: ANN401
        dumped: JSONObject = to_jsonable_python(parsed)
        return dumped


def _description(schema: object) -> str:
    """Return what a schema says of itself, in one line."""
    text = schema.get("description") if isinstance(schema, dict) else None
    return " ".join(text.split()) if isinstance(text, str) else ""


def _compile(schema: JSONObject, *, is_open: bool) -> SchemaValidator:
    compiler = _Compiler(object_or_empty(schema.get("$defs")))
    whole: JSONObject = {"properties": {}, **schema, "type": "object"}
    if not is_open:
        whole["additionalProperties"] = False
    return SchemaValidator(compiler.whole(whole))


class _Compiler:
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
            name: core.typed_dict_field(self.schema(each))
            if name in names
            else core.typed_dict_field(_optional(self.schema(each)), required=False)
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


def _optional(schema: core.CoreSchema) -> core.CoreSchema:
    """Let null stand for an absent value, unless it is a value of its own here."""

    def absent_if_null(value: object, validate: core.ValidatorFunctionWrapHandler) -> object:
        try:
            return validate(value)
        except ValidationError:
            if value is None:
                raise PydanticOmit from None
            raise

    return core.no_info_wrap_validator_function(absent_if_null, schema)


def _number(schema: JSONObject) -> core.CoreSchema:
    return core.float_schema(allow_inf_nan=False, **_bounds(schema, _NUMBER_BOUNDS))


def _text(schema: JSONObject) -> core.CoreSchema:
    kind = str(schema.get("format", ""))
    if kind in _FORMATS:
        return _FORMATS[kind]()
    if kind:  # bytes, for which lengths mean something else, and paths, addresses, …
        return core.str_schema(coerce_numbers_to_str=kind != "binary")
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
