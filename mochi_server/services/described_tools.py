"""Tools in the words of a system prompt, for models and requests that cannot have them otherwise.

A provider that cannot demand a call can hold a reply to a JSON schema: that of a call. Tools and
such a schema do not go together in one request (Ollama's models then never call any), so the
tools are described.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import JSONObject
from ..protocol.completions import ModelRequest
from ..protocol.files import FILES
from ..protocol.response_format import JsonSchemaFormat
from ..providers.common.tools import parameters_of, required_of, resolved

_MOST_OF_DESCRIPTION: Final = 600
"""Characters of the description of a tool."""
_MOST_OF_PARAMETER: Final = 150
"""Characters of the description of a parameter."""
_MOST_CHOICES: Final = 20
"""Values of a parameter that are named."""
_LEVELS: Final = 3
"""Levels of objects within parameters whose keys are named."""

_IN_GRAMMARS: Final = frozenset(
    {
        *("type", "enum", "const", "required", "additionalProperties", "items", "prefixItems"),
        *("anyOf", "oneOf", "allOf", "$ref", "properties", "$defs", "definitions"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
"""Keywords that every provider's grammar has; llama.cpp refuses many a pattern and long ranges."""
_MAPS: Final = frozenset({"properties", "$defs", "definitions"})
_VALUES: Final = frozenset({"enum", "const", "required"})

_OFFER: Final = (
    "You can call these tools:\n{}\n"
    "To call one, write only this, and wait for its result:\n"
    '<tool_call>{{"name": "…", "arguments": {{…}}}}</tool_call>\n'
    "Answer in words where no tool is needed, and when you have the result."
)
_CALL: Final = "<tool_call>{}</tool_call>"
_RESULT: Final = "Result of {}:\n{}"
_ONE: Final = "Reply with the arguments of a call of this tool, as one JSON object:\n{}"
_SEVERAL: Final = (
    "Reply with a call of one of these tools, as one JSON object "
    '{{"tool_call": {{"name": "…", "arguments": {{…}}}}}}:\n{}'
)


@dataclass(frozen=True, slots=True)
class DescribedTools:
    """Tools that a request has in its system prompt."""

    text: str
    response_format: JsonSchemaFormat | None = None
    """The form of a demanded call."""

    def estimate(self, ratio: float) -> int:
        """Estimate the tokens of the text, at so many characters a token."""
        return int(len(self.text) / ratio)

    def within(self, request: ModelRequest) -> ModelRequest:
        """Return a request that describes its tools, and has none."""
        return replace(
            request,
            messages=with_instruction(request.messages, self.text),
            tools=(),
            must_call=False,
            response_format=self.response_format or request.response_format,
        )


def describe(tools: Sequence[JSONObject], *, must_call: bool) -> DescribedTools:
    """Return tools as a request has them in its system prompt.

    ``must_call``: the reply is a call, and is held to the form of one.
    """
    lines = "\n".join(_line(tool) for tool in tools)
    if not must_call:
        return DescribedTools(_OFFER.format(lines))
    text = (_ONE if len(tools) == 1 else _SEVERAL).format(lines)
    return DescribedTools(text, format_of_call(tools))


def format_of_call(tools: Sequence[JSONObject]) -> JsonSchemaFormat:
    """Return the form of a demanded call: of one tool its arguments, else its name as well.

    Vendors take no form whose root is a choice, so that is within an object.
    """
    if len(tools) == 1:
        return JsonSchemaFormat.of(_for_grammar(parameters_of(tools[0]), ""))
    calls: list[Any] = []
    arguments: dict[str, Any] = {}
    for number, tool in enumerate(tools):
        key = f"arguments{number}"
        arguments[key] = _for_grammar(parameters_of(tool), f"/$defs/{key}")
        function: Any = tool["function"]
        properties = {"name": {"const": function["name"]}, "arguments": {"$ref": f"#/$defs/{key}"}}
        calls.append(
            {"type": "object", "properties": properties, "required": ["name", "arguments"]}
        )
    return JsonSchemaFormat.of(
        {
            "$defs": arguments,
            "type": "object",
            "properties": {"tool_call": {"anyOf": calls}},
            "required": ["tool_call"],
        }
    )


def with_instruction(messages: Sequence[JSONObject], text: str) -> list[JSONObject]:
    """Return messages with a text at the end of the system prompt, which may be new."""
    first = messages[0] if messages and messages[0].get("role") == "system" else None
    return [instructed(first, text), *(messages if first is None else messages[1:])]


def instructed(system: JSONObject | None, text: str) -> JSONObject:
    """Return a system message with a text at its end."""
    texts = [str((system or {}).get("content") or ""), text]
    return {"role": "system", **(system or {}), "content": "\n\n".join(filter(None, texts))}


def with_calls_as_text(messages: Sequence[JSONObject]) -> list[JSONObject]:
    """Return messages of users and replies alone: calls are texts, and results are the user's."""
    made: list[JSONObject] = []
    is_after_result = False
    for message in messages:
        is_result = message.get("role") == "tool"
        said = _result_as_text(message) if is_result else _calls_as_text(message)
        if is_after_result and said.get("role") == "user":  # roles have to alternate
            said = _joined(made.pop(), said)
        made.append(said)
        is_after_result = is_result
    return made


def _result_as_text(message: JSONObject) -> JSONObject:
    text = _RESULT.format(message.get("tool_name"), message.get("content"))
    files = {FILES: message[FILES]} if FILES in message else {}
    return {"role": "user", "content": text, **files}


def _calls_as_text(message: JSONObject) -> JSONObject:
    calls: Any = message.get("tool_calls")
    if not calls:
        return message
    texts = [str(message.get("content") or ""), *(_CALL.format(_json(call)) for call in calls)]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join(filter(None, texts))}


def _joined(first: JSONObject, second: JSONObject) -> JSONObject:
    """Return two messages of the user as one."""
    content = f"{first['content']}\n\n{second.get('content')}"
    parts: Any = (first.get(FILES), second.get(FILES))
    files = [each for part in parts for each in part or ()]
    return {**second, "content": content, **({FILES: files} if files else {})}


def _json(call: Mapping[str, Any]) -> str:
    function = call["function"]
    written = {"name": function["name"], "arguments": function["arguments"]}
    return json.dumps(written, ensure_ascii=False)


def _line(tool: Mapping[str, Any]) -> str:
    """Return a tool with a line for each parameter, or in one line where none is described.

    Of the forms tried this one has the fewest tokens: about half of those of the schema.
    """
    function, schema = tool["function"], parameters_of(tool)
    members = dict(_members(schema, schema, _LEVELS))
    about = {name: _about(schema["properties"][name]) for name in members}
    is_long = any(about.values())
    name = function["name"] if is_long else f"{function['name']}({', '.join(members.values())})"
    lines = [f"- {name}: {_short(function.get('description'), _MOST_OF_DESCRIPTION)}".rstrip(" :")]
    if is_long:
        lines += [f"  {each} - {about[key]}".rstrip(" -") for key, each in members.items()]
    return "\n".join(lines)


def _about(schema: object) -> str:
    """Return what is said of a parameter."""
    return _short(schema.get("description") if isinstance(schema, dict) else None)


def _short(text: object, most: int = _MOST_OF_PARAMETER) -> str:
    """Return the beginning of a description in one line."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _members(
    schema: Mapping[str, Any], root: Mapping[str, Any], levels: int
) -> Iterator[tuple[str, str]]:
    """Yield the name of each property, and the property as TypeScript writes it."""
    needed = required_of(schema)
    properties = schema.get("properties")
    for name, each in properties.items() if isinstance(properties, dict) else ():
        yield name, f"{name}{'' if name in needed else '?'}: {_kind(each, root, levels)}"


def _kind(schema: object, root: Mapping[str, Any], levels: int) -> str:
    """Return a type as TypeScript writes it, which costs the fewest tokens."""
    if not isinstance(schema, dict) or levels == 0:
        return "any"
    schema = {**resolved(schema, root), **schema}
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        shown = [json.dumps(each, ensure_ascii=False) for each in values[:_MOST_CHOICES]]
        return "|".join([*shown, *(["…"] if len(values) > len(shown) else [])])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        kinds = [_kind(each, root, levels - 1) for each in choices]
    else:
        types = schema.get("type")
        types = types if isinstance(types, list) else [types or "any"]
        kinds = [_plain_kind(str(each), schema, root, levels) for each in types]
    return "|".join(dict.fromkeys(each for each in kinds if each != "null")) or "null"


def _plain_kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], levels: int) -> str:
    if kind == "array":
        item = _kind(schema.get("items"), root, levels - 1)
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object" and schema.get("properties"):
        members = (member for _, member in _members(schema, root, levels - 1))
        return f"{{{', '.join(members)}}}"
    return kind


def _for_grammar(schema: Any, place: str) -> Any:  # noqa: ANN401 - any JSON schema
    """Return what a grammar can be made of, with references that lead to its new place."""
    if isinstance(schema, list):
        return [_for_grammar(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key not in _IN_GRAMMARS:
            continue
        if key == "$ref":
            made[key] = re.sub("^#", f"#{place}", str(value))
        elif key in _MAPS and isinstance(value, dict):
            made[key] = {name: _for_grammar(each, place) for name, each in value.items()}
        else:
            made[key] = value if key in _VALUES else _for_grammar(value, place)
    return made
