"""Tools: calls, stored in messages or sent in fragments, and the schemas of what they take."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from ...core.ids import new_call_id
from ...core.json_text import read_json, repair_json
from ...core.limits import (
    CALL_LEVELS,
    CALL_VALUES,
    MAX_RESPONSE,
    has_more_values,
    is_too_deep,
    too_large,
)
from ...errors import JSONObject, ProviderError
from ...protocol.completions import is_in_full
from ...protocol.messages import ToolCall
from .values import plain_text

_ALTERNATIVES: Final = ("anyOf", "oneOf")
REFUSED_AT_ROOT: Final = frozenset({*_ALTERNATIVES, "allOf", "not", "enum"})
"""Words that vendors take at no root of a tool's schema."""
_READ_HERE: Final = frozenset({"type", "properties", "required"})
_LEVELS: Final = 4
"""How deep alternatives may be nested; those that refer to themselves have no end."""
TOO_DEEP: Final = f"they are nested more than {CALL_LEVELS} levels deep"
TOO_MANY: Final = f"{TOO_DEEP}, or have more than {CALL_VALUES:,} values"
"""Problems of arguments; those of many values would take long to read, and are not read."""

Schema = dict[str, Any]


def stored_calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the calls of a stored message that are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


@dataclass(slots=True)
class CallFragments:
    """A call as far as it has come."""

    id: str = ""
    name: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """What the service sent beside it and wants back."""
    _pieces: list[str] = field(default_factory=list)
    _size: int = 0

    @property
    def arguments(self) -> str:
        return "".join(self._pieces)

    @property
    def may_be_whole(self) -> bool:
        """Whether the arguments end as an object does; reading them takes long."""
        return bool(self._pieces) and self._pieces[-1].rstrip().endswith("}")

    def add(self, call_id: str | None, name: str | None, arguments: object) -> None:
        """Add a fragment. Some servers repeat the id and the name in each."""
        self.id = self.id or plain_text(call_id or "")
        if name and name != self.name and not self._pieces:
            self.name += plain_text(name)
        if arguments:
            self.add_arguments(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def add_arguments(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > MAX_RESPONSE:
            raise too_large(MAX_RESPONSE)

    def drop_arguments(self) -> None:
        self._pieces.clear()
        self._size = 0

    def complete(self, reason: str | None = None) -> ToolCall:
        """Return the call of a reply that ended for this reason.

        One whose arguments cannot be read has a ``problem``.

        Raises:
            ProviderError: the reply was cut within the call, perhaps before its arguments came:
                without any it would be another call.
        """
        text = self.arguments.strip()
        in_full = is_in_full(reason)
        arguments, problem = _read_arguments(text, in_full=in_full)
        if not in_full and (problem or not text):
            how = "reached its limit" if reason == "length" else f"ended with {reason!r}"
            raise ProviderError(
                f"The model's reply {how} within a call of {self.name!r}.",
                details={"arguments": plain_text(self.arguments[:1000]), "finish_reason": reason},
            )
        if problem:
            arguments = {"input": plain_text(self.arguments)}
        call_id = self.id or new_call_id()
        return ToolCall(id=call_id, name=self.name, arguments=arguments, problem=problem)


class FragmentedCalls:
    """The calls of one reply, from fragments that say where they belong.

    Servers may send every call at the same place, each with its own id (Ollama, LM Studio), or
    without any id.
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, list[CallFragments]] = {}

    def add(
        self, place: Hashable, call_id: str | None, name: str | None, arguments: object
    ) -> CallFragments:
        """Return the call that a fragment belongs to, with the fragment added."""
        calls = self._calls.setdefault(place, [])
        if not calls or _begins_another(calls[-1], call_id, name):
            calls.append(CallFragments())
        calls[-1].add(call_id, name, arguments)
        return calls[-1]

    def __iter__(self) -> Iterator[CallFragments]:
        for place in sorted(self._calls):  # type: ignore[type-var]
            yield from self._calls[place]


def _begins_another(last: CallFragments, call_id: str | None, name: str | None) -> bool:
    if not name or not last.name:
        return False
    if call_id and last.id:
        return call_id != last.id
    return last.may_be_whole and isinstance(read_json(last.arguments), dict)


def _read_arguments(text: str, *, in_full: bool) -> tuple[Any, str | None]:
    if has_more_values(text.encode("utf-8", "replace"), CALL_VALUES):
        return None, TOO_MANY
    arguments = {} if text in {"", "null"} else read_json(text)
    if isinstance(arguments, dict):
        return arguments, TOO_DEEP if is_too_deep(arguments, CALL_LEVELS) else None
    try:
        value = json.loads(text, strict=False)
    except RecursionError:
        return arguments, TOO_DEEP
    except ValueError as error:
        repaired = repair_json(text) if in_full else None
        is_read = isinstance(repaired, dict)
        return repaired, None if is_read else f"they are not JSON ({error})"
    if isinstance(value, dict):  # what Python reads and JSON does not know
        return arguments, "they have a number that is not finite"
    return arguments, "they are not a JSON object"


def parameters_of(tool: Mapping[str, Any]) -> Schema:
    """Return the JSON Schema of a tool's arguments as one object with its properties.

    Schemas that are not made from Python functions may have alternatives (``anyOf``) at the top,
    for which Anthropic and OpenAI refuse the whole request. The object gets the properties of all
    alternatives; if a model mixes them, the tool's own check of its arguments says so. Words of the
    schema that have values of a wrong kind, as clients may send them, count as not there.
    """
    parameters = tool["function"]["parameters"]
    schema = parameters if isinstance(parameters, dict) else {}
    if schema.keys() & REFUSED_AT_ROOT:
        schema = _merged(schema, schema, _LEVELS)
    rest = {key: value for key, value in schema.items() if key not in _READ_HERE}
    required = {"required": required_of(schema)} if "required" in schema else {}
    return {"type": "object", "properties": _properties_of(schema), **required, **rest}


def _merged(schema: Mapping[str, Any], root: Mapping[str, Any], levels: int) -> Schema:
    """Return one object that allows all that any of the alternatives does."""
    merged = {key: value for key, value in schema.items() if key not in REFUSED_AT_ROOT}
    properties, required = _properties_of(schema), set(required_of(schema))
    for part in _parts(schema, ("allOf",), root, levels):
        properties = {**_properties_of(part), **properties}
        required |= {*required_of(part)}
    choices = _parts(schema, _ALTERNATIVES, root, levels)
    variants: dict[str, list[Any]] = {}
    for part in choices:
        for name, value in _properties_of(part).items():
            if value not in variants.setdefault(name, []):
                variants[name].append(value)
    optional = {n: own[0] if len(own) == 1 else {"anyOf": own} for n, own in variants.items()}
    if choices:
        required |= set.intersection(*({*required_of(part)} for part in choices))
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


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the properties that a schema requires; what is no name is left out."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def without_nulls(arguments: JSONObject, tool: Mapping[str, Any]) -> JSONObject:
    """Return arguments without optional ones that are null and cannot be, by the tool's schema.

    Models write null for what they leave out.
    """
    schema = parameters_of(tool)
    optional = schema["properties"].keys() - {*required_of(schema)}
    absent = {
        name
        for name in optional
        if arguments.get(name, name) is None and not takes_null(schema["properties"][name], schema)
    }
    return {name: value for name, value in arguments.items() if name not in absent}


def takes_null(schema: object, root: Mapping[str, Any], levels: int = _LEVELS) -> bool:
    """Return whether a schema says nothing against null."""
    if not isinstance(schema, dict) or levels == 0:
        return True
    schema = {**resolved(schema, root), **schema}
    choices = next((schema[kind] for kind in _ALTERNATIVES if kind in schema), None)
    if isinstance(choices, list):
        return any(takes_null(each, root, levels - 1) for each in choices)
    if schema.get("nullable") is True:  # OpenAPI 3.0
        return True
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return None in values
    kinds = schema.get("type", "null")
    return kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
