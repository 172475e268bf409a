"""Arguments as a model wrote them, fitted to what a tool takes.

The server has no function at hand, so it compiles the tool's JSON Schema for pydantic's core:
leniency and words are those of the function's own model (:mod:`.model`). What the core cannot
express is let through: the function decides.
https://docs.pydantic.dev/latest/api/pydantic_core_schema/
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import PydanticOmit, SchemaError, SchemaValidator, to_jsonable_python
from pydantic_core import core_schema as core

from ...core.limits import REQUEST_LEVELS, is_too_deep
from ...core.problems import place_of, problem_text
from ...errors import JSONObject
from ..base import InvalidArguments
from .results import LARGEST, clean, object_or_empty, reason_of

ROUNDS = 4
"""How often JSON is taken out of text: a list in text in a list in text … ends somewhere."""
SHOWN_ERRORS = 5
SHOWN_CHARACTERS = 60
SHOWN_DESCRIPTION = 150


class Arguments(ABC):
    """Fits arguments to parameters, with pydantic's leniency and its words.

    Models write numbers and whole lists as text; that is read as what it stands for. They write
    null for what they leave out.

    Args:
        names: What the schema says of each parameter, by its name: a model reads it again.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    @abstractmethod
    def _parse(self, arguments: JSONObject) -> Any:  # noqa: ANN401 - a model's values
        """Return the parsed arguments, or raise a ValidationError."""

    @abstractmethod
    def _dump(self, parsed: Any) -> JSONObject:  # noqa: ANN401
        """Return the parsed arguments in JSON form."""

    def _fit(self, arguments: JSONObject) -> tuple[Any, JSONObject]:
        """Return the parsed arguments and their JSON form, or raise InvalidArguments."""
        if not isinstance(arguments, dict):
            raise InvalidArguments("The arguments must be an object with a value for each name.")
        try:
            given, parsed = self._parse_with_text(arguments)
            dumped = self._dump(parsed)
            _check_encodable(dumped)
            _check_numbers(given, dumped)
        except InvalidArguments:
            raise
        except ValidationError as error:
            raise InvalidArguments(self._message(error)) from error
        except BaseException as error:  # validators of the user's own types raise anything
            raise InvalidArguments(f"The arguments were refused: {reason_of(error)}") from error
        return parsed, dumped

    def _parse_with_text(self, arguments: JSONObject) -> tuple[JSONObject, Any]:
        _check_depth(arguments)
        rounds = 0
        while True:
            try:
                return arguments, self._parse(arguments)
            except ValidationError as error:
                rounds += 1
                if rounds > ROUNDS:
                    raise
                arguments = deepcopy(arguments)
                has_changed = False
                for each in error.errors(include_url=False):
                    if _read_text(arguments, each["loc"]):
                        has_changed = True
                if not has_changed:
                    raise
            _check_depth(arguments)

    def _message(self, error: ValidationError) -> str:
        try:
            return clean(self._explain(error))
        except BaseException:  # noqa: BLE001 - an error of the user's that cannot be printed
            return "The arguments were refused, for a reason that cannot be shown."

    def _explain(self, error: ValidationError) -> str:
        missing, unknown, wrong = [], [], []
        for each in error.errors(include_url=False):
            is_own = len(each["loc"]) == 1
            if is_own and each["type"] == "missing":
                missing.append(self._described(str(each["loc"][0])))
            elif is_own and each["type"] == "extra_forbidden":
                unknown.append(str(each["loc"][0]))
            else:
                wrong.append(each)
        parts = [self._line(each) for each in wrong[:SHOWN_ERRORS]]
        if missing:
            parts.append(f"Missing: {', '.join(missing)}.")
        if unknown:
            known = ", ".join(self._names) or "none"
            parts.append(f"Unknown: {_short(', '.join(unknown))}; the names are: {known}.")
        return " ".join(parts)

    def _line(self, error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
        path = _short(place_of(error["loc"])) or "arguments"
        value = "" if error["type"] == "missing" else f", got {_short(_repr(error['input']))}"
        name = str(error["loc"][0]) if error["loc"] else ""
        return f"{self._described(name, path)}: {problem_text(error)}{value}."

    def _described(self, name: str, path: str | None = None) -> str:
        """Return a parameter, or a path into it, with what the schema says of it."""
        description = _short(self._names.get(name, ""), SHOWN_DESCRIPTION)
        return f"{path or name} ({description})" if description else path or name


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 - the user's own __repr__, or an infinite number
        return type(value).__name__


def _short(text: str, most: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _read_text(arguments: JSONObject, path: tuple[int | str, ...]) -> bool:
    """Replace the text at a path by the JSON in it; return False if it is no such text."""
    value: Any = arguments
    holder: Any = None
    key: Any = None
    for step in path:  # some steps name a choice of a union, and lead nowhere
        if _has(value, step):
            holder, key, value = value, step, value[step]
    if holder is None or not isinstance(value, str):
        return False
    try:
        read = json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return False
    if isinstance(read, str):
        return False
    holder[key] = read
    return True


def _has(value: object, step: int | str) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)


def _check_depth(arguments: JSONObject) -> None:
    if is_too_deep(arguments, REQUEST_LEVELS):
        raise InvalidArguments(f"Nested deeper than {REQUEST_LEVELS} levels.")


def _leaves(value: object) -> Iterator[object]:
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            todo += each
        else:
            yield each


def _check_encodable(value: JSONObject) -> None:
    for leaf in _leaves(value):
        if isinstance(leaf, str) and clean(leaf) != leaf:
            raise InvalidArguments("A text has letters that are no Unicode (lone surrogates).")
        if isinstance(leaf, int) and not -LARGEST <= leaf < LARGEST:
            raise InvalidArguments("A whole number is larger than 64 bits.")
        if isinstance(leaf, float) and not -float("inf") < leaf < float("inf"):
            raise InvalidArguments("A number is not finite.")


def _check_numbers(given: object, dumped: object, path: str = "") -> None:
    """Refuse True as a number, a sign of confused parameters, and numbers that are not finite."""
    if isinstance(given, bool):
        if isinstance(dumped, int | float) and not isinstance(dumped, bool):
            raise InvalidArguments(f"{_short(path)}: Input should be a number, got {given}.")
    elif isinstance(given, float) and dumped is None:
        raise InvalidArguments("A number is not finite.")
    elif isinstance(given, dict) and isinstance(dumped, dict):
        for key in given.keys() & dumped.keys():
            _check_numbers(given[key], dumped[key], f"{path}.{key}".lstrip("."))
    elif isinstance(given, list) and isinstance(dumped, list):
        if len(given) != len(dumped):  # a set, in which equal values count once
            has_bools = any(isinstance(each, bool) for each in dumped)
            dumped = [] if has_bools else dumped[:1] * len(given)
        for at, (one, other) in enumerate(zip(given, dumped)):  # noqa: B905 - or none at all
            _check_numbers(one, other, f"{path}.{at}")


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
