"""What models and people are told about a function."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from ..errors import JSONObject
from .functions.arguments import Arguments
from .functions.docstring import Docstring, read_docstring
from .functions.hints import bare, is_union, shown
from .functions.results import carried, clean, reason_of
from .functions.signature import (
    Function,
    Signature,
    Unsupported,
    check_result,
    culprit,
    read_signature,
    unwrapped,
)


class _Quiet(GenerateJsonSchema):
    """A default that JSON cannot say is left out without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """A function as a tool."""

    name: str
    description: str
    parameters: JSONObject
    """JSON Schema, as :class:`~.base.ToolDescription` has it."""
    short_parameters: JSONObject
    arguments: Arguments


class ToolSchemaService:
    """Makes schemas of functions; the same function under the same name is looked at once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], tuple[Function, FunctionSchema]] = {}

    def describe(self, function: Function, name: str) -> FunctionSchema:
        """What the function does and takes.

        Raises:
            Unsupported: it lacks a docstring or a hint, or no schema can say what it takes.
        """
        key = (name, id(function))
        if key not in self._made:  # the function is kept, so nobody else gets its id
            self._made[key] = (function, _describe(function, name))
        return self._made[key][1]


def _describe(function: Function, name: str) -> FunctionSchema:
    doc = _docstring(function)
    signature = read_signature(function)
    check_result(signature.result)
    arguments = Arguments(signature.parameters)
    said = read_docstring(doc)
    base: JSONObject = {}
    if any(each.name not in said.parameters for each in signature.parameters):
        base = _base(name, doc, signature)  # which takes as long as all the rest
        said = _said(said, base)
    parameters = _json_schema(arguments, signature, said, base)
    return FunctionSchema(
        name, clean(said.text), parameters, _short_form(signature, parameters), arguments
    )


def _said(said: Docstring, base: JSONObject) -> Docstring:
    """What the docstring says; sections that no style has (``args:``), ollama may know."""
    found = {name: _mapping(own).get("description") for name, own in _properties(base).items()}
    descriptions = {name: text for name, text in found.items() if isinstance(text, str) and text}
    if said.parameters or not descriptions:
        return said
    text = str(base.get("description", "")).strip()
    return Docstring(text or said.text, descriptions)


def _docstring(function: Function) -> str:
    own = None if inspect.isroutine(function) else getattr(function, "__dict__", {}).get("__doc__")
    doc = own or inspect.getdoc(unwrapped(function))
    if not isinstance(doc, str) or not doc.strip():
        raise Unsupported("has no docstring; it tells the model what the tool does")
    return inspect.cleandoc(doc)


def _base(name: str, doc: str, signature: Signature) -> JSONObject:
    """The function as ollama's own converter describes it, ``{}`` where it cannot.

    It gets the resolved hints without what it stumbles over: defaults, and parameters called
    like a method of pydantic's models.
    """
    # A server starts a quarter faster without it.
    from ollama._utils import convert_function_to_tool  # noqa: PLC0415

    def stand_in() -> None: ...

    stand_in.__name__, stand_in.__doc__ = name, doc
    stand_in.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, annotation=each.hint)
            for each in signature.parameters
            if not (each.name.startswith("_") or hasattr(BaseModel, each.name))
        ]
    )
    try:
        tool = convert_function_to_tool(stand_in)
    except BaseException:  # noqa: BLE001 - what it cannot say, ours may
        return {}
    made: JSONObject = tool.model_dump(exclude_none=True)["function"]
    return made


def _properties(base: JSONObject) -> JSONObject:
    return _mapping(_mapping(base.get("parameters")).get("properties"))


def _json_schema(
    arguments: Arguments, signature: Signature, said: Docstring, base: JSONObject
) -> JSONObject:
    """The base's properties with everything put back that it loses."""
    try:
        full = arguments.model.model_json_schema(schema_generator=_Quiet)
    except BaseException as error:  # hooks of the user's own types
        raise Unsupported(culprit(signature.parameters) or reason_of(error)) from error
    full = carried(to_jsonable_python(_without_titles(full), fallback=str))
    properties: JSONObject = {
        name: _property(own, _mapping(_properties(base).get(name)), said.parameters.get(name))
        for name, own in full.get("properties", {}).items()
    }
    made: JSONObject = {"type": "object", "properties": properties}
    made["required"] = full.get("required", [])
    return {**made, "$defs": full["$defs"]} if "$defs" in full else made


def _property(own: JSONObject, base: JSONObject, said: str | None) -> JSONObject:
    """One parameter: the base, our schema over it, and the best description that there is."""
    made: JSONObject = {**base, **own}
    if "type" not in own:  # the base says "string" of all that it does not know
        made.pop("type", None)
    made.pop("description", None)
    description = own.get("description") or said or base.get("description")
    if isinstance(description, str) and description.strip():
        made["description"] = clean(description)
    return made


NAMED = {"properties", "$defs", "patternProperties"}
"""Keys below which names stand, not words of JSON Schema."""
PLAIN = {"default", "enum", "const", "examples", "example"}
"""Keys below which values stand."""


def _without_titles(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """The schema without the titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key in NAMED:
            made[key] = {name: _without_titles(each) for name, each in value.items()}
        elif key in PLAIN:
            made[key] = value
        elif key != "title":
            made[key] = _without_titles(value)
    return made


def _short_form(signature: Signature, parameters: JSONObject) -> JSONObject:
    """``{"a": {"type": "float", "description": "…"}}``; see docs/reference/tools.md."""
    properties = _mapping(parameters["properties"])
    required = parameters["required"]
    short: JSONObject = {}
    for each in signature.parameters:
        own = _mapping(properties.get(each.name))
        entry: JSONObject = {
            "type": type_name(each.hint),
            "description": own.get("description", ""),
        }
        if choices := _choices(each.hint):
            entry["choices"] = carried(to_jsonable_python(choices, fallback=str))
        if "default" in own:
            entry["default"] = own["default"]
        if isinstance(required, list) and each.name not in required:
            entry["required"] = False
        short[each.name] = entry
    return short


def _mapping(value: object) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _choices(hint: Any) -> list[Any]:  # noqa: ANN401 - hints are anything
    """The values that a ``Literal`` or an enum allows, in a union of such or with None too."""
    hint = bare(hint)
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [each.value for each in hint]
    if is_union(hint):
        members = [each for each in get_args(hint) if each is not type(None)]
        found = [_choices(each) for each in members]
        return [value for each in found for value in each] if all(found) else []
    return []


def type_name(hint: Any) -> str:  # noqa: ANN401
    """The hint as people write it: ``float``, ``list[int]``, ``int | str``, a model's name."""
    hint = bare(hint)
    if choices := _choices(hint):
        return " | ".join(dict.fromkeys(type(each).__name__ for each in choices))
    if is_union(hint):
        names = [type_name(each) for each in get_args(hint) if each is not type(None)]
        return " | ".join(dict.fromkeys(names))
    origin = get_origin(hint)
    if origin is None:
        return clean(shown(hint))
    inner = ", ".join("..." if each is ... else type_name(each) for each in get_args(hint))
    return f"{clean(shown(origin))}[{inner}]"
