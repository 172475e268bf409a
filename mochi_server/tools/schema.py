"""Make the schemas that tell models and people what a function takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import docstring_parser
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from ..errors import JSONObject
from .functions.model import FunctionArguments, culprit
from .functions.python_tool import PythonTool, check_callable, is_async, runnable, source_of
from .functions.results import clean, encodable, object_or_empty, reason_of
from .functions.signature import (
    Function,
    Signature,
    Unsupported,
    bare,
    check_result,
    is_union,
    read_signature,
    shown,
    unwrapped,
)

SECTION = re.compile(r"^[ \t]*(args|returns|yields|raises):", re.MULTILINE)

NO_FILE = Path("the program")
"""Stands for the file of a function whose source is not found."""


class _Quiet(GenerateJsonSchema):
    """A default that JSON cannot say is left out without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


class ToolSchemaService:
    """Describes functions as tools."""

    def describe(self, function: Function, name: str, *, file: Path = NO_FILE) -> PythonTool:
        """Describe a callable, or raise Unsupported; ``file`` is for one without source."""
        check_callable(function)
        text, descriptions = read_docstring(_docstring(function))
        signature = read_signature(function)
        check_result(signature.result)
        arguments = FunctionArguments(signature.parameters)
        parameters = _json_schema(arguments, signature, descriptions)
        path, line, source = source_of(function, file)
        return PythonTool(
            name=name,
            description=clean(text),
            parameters=parameters,
            short_parameters=_short_form(signature, parameters),
            file=path,
            line=line or 1,
            source=source,
            is_async=is_async(function),
            function=runnable(function),
            arguments=arguments,
            unchecked=arguments.unchecked(),
            exported=function,
        )


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring without its sections, and descriptions of parameters.

    The style is Google's, NumPy's or Sphinx's; any other is text as a whole.
    """
    try:
        parsed = docstring_parser.parse(doc)
        if not parsed.params:  # ollama reads ``args:`` as well
            parsed = docstring_parser.parse(SECTION.sub(lambda word: word[0].title(), doc))
    except (docstring_parser.ParseError, LookupError, ValueError, AttributeError):
        return doc.strip(), {}
    parts = [parsed.short_description, parsed.long_description]
    texts = {each.arg_name: " ".join((each.description or "").split()) for each in parsed.params}
    text = "\n\n".join(part.strip() for part in parts if part) or doc.strip()
    return text, {name.lstrip("*"): each for name, each in texts.items() if each}


def _docstring(function: Function) -> str:
    own = None if inspect.isroutine(function) else getattr(function, "__dict__", {}).get("__doc__")
    doc = own or inspect.getdoc(unwrapped(function))
    if not isinstance(doc, str) or not doc.strip():
        raise Unsupported("has no docstring; it tells the model what the tool does")
    return inspect.cleandoc(doc)


def _json_schema(
    arguments: FunctionArguments, signature: Signature, descriptions: Mapping[str, str]
) -> JSONObject:
    try:
        full = arguments.model.model_json_schema(schema_generator=_Quiet)
    except BaseException as error:  # hooks of the user's own types
        raise Unsupported(culprit(signature.parameters) or reason_of(error)) from error
    full = encodable(to_jsonable_python(_without_titles(full), fallback=str))
    properties: JSONObject = {
        name: _described(own, descriptions.get(name))
        for name, own in full.get("properties", {}).items()
    }
    required = full.get("required", [])
    made: JSONObject = {"type": "object", "properties": properties, "required": required}
    return {**made, "$defs": full["$defs"]} if "$defs" in full else made


def _described(schema: JSONObject, text: str | None) -> JSONObject:
    made = {key: value for key, value in schema.items() if key != "description"}
    description = schema.get("description") or text
    if isinstance(description, str) and description.strip():
        made["description"] = clean(description)
    return made


NAMED = {"properties", "$defs", "patternProperties"}
PLAIN = {"default", "enum", "const", "examples", "example"}


def _without_titles(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Remove the titles that pydantic makes of names."""
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
    """Return ``{"a": {"type": "float", "description": "…"}}``; see docs/reference/tools.md."""
    properties = object_or_empty(parameters["properties"])
    required = parameters["required"]
    short: JSONObject = {}
    for each in signature.parameters:
        own = object_or_empty(properties.get(each.name))
        entry: JSONObject = {
            "type": type_name(each.hint),
            "description": own.get("description", ""),
        }
        if choices := _choices(each.hint):
            entry["choices"] = encodable(to_jsonable_python(choices, fallback=str))
        if "default" in own:
            entry["default"] = own["default"]
        if isinstance(required, list) and each.name not in required:
            entry["required"] = False
        short[each.name] = entry
    return short


def _choices(hint: Any) -> list[Any]:  # noqa: ANN401 - hints are anything
    """Return the values that a ``Literal`` or an enum allows, also in a union."""
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
    """Write the hint as people do: ``float``, ``list[int]``, ``int | str``, a model's name."""
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
