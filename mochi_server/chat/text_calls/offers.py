"""The tools that a request offers, and whether a call that was written as text is one of theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ...core.json_text import parse_json
from ...errors import JSONObject
from ...providers.common.tools import parameters_of, required_of, takes_null
from .reading import ARGUMENT_KEYS, NAMES, WrittenCall, as_object

_LEFTOVER: Final = re.compile(r"<\|channel\|>.*|<[|｜].*?[|｜]>|[\s\"'`]+")
_PREFIX: Final = re.compile(r"^(?:functions?|tools?|default_api|mcp|api)[.:/]")
_NUMBER: Final = re.compile(r":\d+$")
_SCHEMA_WORDS: Final = frozenset({"required", "type", "properties", "description"})
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class Offers:
    """The offered tools by name."""

    def __init__(self, tools: Sequence[JSONObject]) -> None:
        self._parameters: dict[str, Mapping[str, Any]] = {}
        for tool in tools:
            function: Any = tool["function"]
            self._parameters[function["name"]] = parameters_of(tool)

    @property
    def only(self) -> str | None:
        """The name of the tool, if there is one alone."""
        return next(iter(self._parameters)) if len(self._parameters) == 1 else None

    def name_of(self, written: str) -> str | None:
        """Return the one tool that is meant, also where the model has garbled its name."""
        if written in self._parameters:
            return written
        name = _NUMBER.sub("", _LEFTOVER.sub("", written))
        folded = _folded(_PREFIX.sub("", name))
        if not folded:
            return None
        same = [each for each in self._parameters if _folded(each) == folded]
        near = same or [each for each in self._parameters if _is_end(_folded(each), folded)]
        return near[0] if len(near) == 1 else None

    def may_begin(self, text: str) -> bool:
        """Return whether a name begins so, or the text begins with one."""
        return any(name.startswith(text) or text.startswith(name) for name in self._parameters)

    def arguments_of(self, name: str, call: WrittenCall) -> JSONObject:
        """Return the arguments; texts of XML are read as what the tool's schema says.

        Small models copy words of the schema into the arguments: those are left out, also around
        all of them. Of a whole definition with the value in it, that is taken.
        """
        properties = self._properties(name)
        arguments = call.arguments
        takes_others = self._parameters[name].get("additionalProperties") or not properties
        inner = arguments.get("properties")
        if (
            isinstance(inner, dict)
            and not arguments.keys() - _SCHEMA_WORDS
            and not properties.keys() & arguments.keys()
        ):
            arguments = inner
        return {
            key: _typed(str(value), properties.get(key))
            if call.are_texts
            else _value_of(value, properties.get(key))
            for key, value in arguments.items()
            if key in properties or key not in _SCHEMA_WORDS or takes_others
        }

    def fits(self, name: str, arguments: JSONObject) -> bool:
        """Return whether the arguments have the keys and kinds that the schema of a tool wants."""
        schema, properties = self._parameters[name], self._properties(name)
        is_open = schema.get("additionalProperties", not properties) is not False
        if not is_open and arguments.keys() - properties.keys():
            return False
        missing = {key for key in required_of(schema) if not _has(arguments, key, schema)}
        return all(_has_default(properties, key) for key in missing) and all(
            _is_kind(value, properties.get(key)) for key, value in arguments.items()
        )

    def names_parameters(self, name: str, arguments: JSONObject) -> bool:
        """Return whether the arguments fit, and name at least one parameter of the tool."""
        return self.fits(name, arguments) and bool(self._properties(name).keys() & arguments.keys())

    def unwrapped(self, name: str, written: JSONObject) -> JSONObject:
        """Return the arguments of an object that can be a call of this tool alone.

        Models put them under the tool's name or a word for arguments, or write the name beside them
        or in place of none.
        """
        if self.names_parameters(name, written):
            return written
        rest = {
            key: value
            for key, value in written.items()
            if not (key in NAMES and isinstance(value, str) and self.name_of(value) == name)
        }
        inner = self._inner(name, rest)
        fits = self.names_parameters(name, inner) or not (
            inner or required_of(self._parameters[name])
        )
        return inner if fits else written

    def _inner(self, name: str, written: JSONObject) -> JSONObject:
        """Return what stands alone under the tool's name or a word for arguments."""
        for key, value in written.items() if len(written) == 1 else ():
            if key in ARGUMENT_KEYS or self.name_of(key) == name:
                with suppress(ValueError):
                    return as_object(value)
        return written

    def is_definition(self, name: str, arguments: JSONObject) -> bool:
        """Return whether all arguments are what the schema says of them: a tool that is shown."""
        properties = self._properties(name)
        are_copied = [_is_copied(value, properties.get(key)) for key, value in arguments.items()]
        return bool(are_copied) and all(are_copied)

    def _properties(self, name: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self._parameters[name]["properties"]
        return properties


def _folded(name: str) -> str:
    """Return what is the same in ``get_weather``, ``get-weather`` and ``getWeather``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[\W_]+", "_", words.lower()).strip("_")


def _is_end(one: str, other: str) -> bool:
    """Return whether one name is the other with the name of a server before it."""
    return one.endswith(f"_{other}") or other.endswith(f"_{one}")


def _has(arguments: JSONObject, key: str, schema: Mapping[str, Any]) -> bool:
    """Return whether a parameter has a value; null is one where the schema says so."""
    if arguments.get(key) is not None:
        return True
    return key in arguments and takes_null(schema["properties"].get(key), schema)


def _has_default(properties: Mapping[str, Any], key: str) -> bool:
    schema = properties.get(key)
    return isinstance(schema, dict) and "default" in schema


def _kinds(schema: object) -> list[str]:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return [kind for kind in kinds if isinstance(kind, str)]


def _is_kind(value: object, schema: object) -> bool:
    """Return whether a value can be meant, as tools convert numbers that are written as texts."""
    kinds = _kinds(schema)
    if not kinds or value is None:
        return True
    if isinstance(value, str) and not set(kinds) <= {"object", "array"}:
        return True
    return any(isinstance(value, _KINDS.get(kind, (object,))) for kind in kinds)


def _is_copied(value: object, schema: object) -> bool:
    """Return whether a value says of which kind it is to be, as the schema does."""
    kinds = _kinds(schema)
    return isinstance(value, dict) and "object" not in kinds and value.get("type") in kinds


def _value_of(value: Any, schema: object) -> Any:  # noqa: ANN401 - any JSON
    return value["value"] if _is_copied(value, schema) and "value" in value else value


def _typed(text: str, schema: object) -> Any:  # noqa: ANN401 - any JSON
    kinds = _kinds(schema)
    if "string" in kinds or not kinds:
        return text
    try:
        value = parse_json(text)
    except ValueError:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    return value if _is_kind(value, schema) else text
