"""What the fields of a request to ``/api/chat`` may be; refusals in Go's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import orjson

from .answers import Body, FakeResponse, as_go_reads, kind_of

LEVELS: Final = ("high", "medium", "low", "max")
"""Of thinking, in the order in which Ollama names them."""

_ALLOWED: Final = f"{', '.join(f'{chr(34)}{level}{chr(34)}' for level in LEVELS)}, true, or false"

Fields = Mapping[str, tuple[str, str]]
"""Names, each with its kind in JSON and its type in Go."""

_REQUEST: Final[Fields] = {
    "model": ("string", "string"),
    "messages": ("array", "[]api.Message"),
    "stream": ("bool", "bool"),
    "tools": ("array", "api.Tools"),
    "truncate": ("bool", "bool"),
    "shift": ("bool", "bool"),
    "options": ("object", "map[string]interface {}"),
    "logprobs": ("bool", "bool"),
    "top_logprobs": ("number", "int"),
}
_MESSAGE: Final[Fields] = {
    "role": ("string", "string"),
    "content": ("string", "string"),
    "thinking": ("string", "string"),
    "images": ("array", "[]api.ImageData"),
    "tool_calls": ("array", "[]api.ToolCall"),
    "tool_name": ("string", "string"),
    "tool_call_id": ("string", "string"),
}
_CALL: Final[Fields] = {"id": ("string", "string"), "function": ("object", "api.ToolCallFunction")}
_FUNCTION: Final[Fields] = {
    "index": ("number", "int"),
    "name": ("string", "string"),
    "arguments": ("object", "api.ToolCallFunctionArguments"),
}

_OPTIONS: Final = {
    **dict.fromkeys(
        (
            *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict"),
            *("num_keep", "num_predict", "seed", "top_k", "repeat_last_n"),
        ),
        ("number", "integer"),
    ),
    **dict.fromkeys(
        (
            *("temperature", "top_p", "min_p", "typical_p"),
            *("repeat_penalty", "presence_penalty", "frequency_penalty"),
        ),
        ("number", "float32"),
    ),
    "use_mmap": ("bool", "boolean"),
    "stop": ("array", "array"),
}
"""Kind in JSON, and the word for it; others are passed over."""

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)")
_NO_BASE64: Final = re.compile(r"(?!=*$)[^A-Za-z0-9+/\r\n]")


def body_of(raw: bytes, go: str = "api.ChatRequest") -> Body:
    """The JSON of a request, which has that type in Go.

    Raises:
        FakeResponse: there is none, or it is no object.
    """
    if not raw:
        raise FakeResponse(400, "missing request body")
    try:
        found = as_go_reads(raw.decode("utf-8", "replace"))
    except ValueError as error:
        raise FakeResponse(400, str(error)) from error
    if not isinstance(found, dict):
        raise FakeResponse(
            400, f"json: cannot unmarshal {kind_of(found)} into Go value of type {go}"
        )
    return found


def check_fields(body: Body, name: str = "ChatRequest") -> None:
    """Refuse a request that Go cannot read; ``name`` is that of its type.

    Raises:
        FakeResponse: a field has another type, or a value that it cannot have.
    """
    check_kinds(body, _REQUEST, name)
    for message in body.get("messages") or ():
        _check_message(message)
    _check_think(body.get("think"))
    duration_of(body.get("keep_alive"))


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of other types than theirs; unknown ones are passed over.

    Raises:
        FakeResponse: with status 500, as a real Ollama.
    """
    for name, value in options.items():
        kind, word = _OPTIONS.get(name, (None, ""))
        if kind is not None and value is not None and kind_of(value) != kind:
            raise FakeResponse(500, f'option "{name}" must be of type {word}')
        if kind == "array" and not all(isinstance(item, str) for item in value or ()):
            raise FakeResponse(500, f'option "{name}" must be of an array of strings')


def check_format(wanted: object) -> None:
    """Refuse a format that is neither JSON nor a schema.

    Raises:
        FakeResponse: with status 500, as a real Ollama.
    """
    if wanted in (None, "", "json") or isinstance(wanted, dict):
        return
    text = orjson.dumps(wanted).decode()
    raise FakeResponse(
        500, f'invalid format: {text}; expected "json" or a valid JSON Schema object'
    )


def duration_of(value: object) -> float | None:
    """A ``keep_alive`` in seconds; None where it is left out.

    Raises:
        FakeResponse: it is no number and no duration with units.
    """
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        go = {"bool": "bool", "array": "[]interface {}", "object": "map[string]interface {}"}
        raise FakeResponse(400, f"Unsupported type: '{go[kind_of(value)]}'")
    sign, rest, seconds = (-1 if value.startswith("-") else 1), value.lstrip("+-"), 0.0
    if len(value) - len(rest) > 1 or not rest:
        raise FakeResponse(400, f'time: invalid duration "{value}"')
    while rest and rest != "0":
        part = _PART.match(rest)
        if part is None:
            raise FakeResponse(400, f'time: invalid duration "{value}"')
        number, unit = part.groups()
        if not unit:
            raise FakeResponse(400, f'time: missing unit in duration "{value}"')
        if unit not in _UNITS:
            raise FakeResponse(400, f'time: unknown unit "{unit}" in duration "{value}"')
        seconds += float(number) * _UNITS[unit]
        rest = rest[part.end() :]
    return sign * seconds


def _check_think(think: object) -> None:
    if think is None or isinstance(think, bool) or think in LEVELS:
        return
    if isinstance(think, str):
        raise FakeResponse(400, f'invalid think value: "{think}" (must be {_ALLOWED})')
    raise FakeResponse(400, f"think must be a boolean or string ({_ALLOWED})")


def _check_message(value: object) -> None:
    where = "ChatRequest.messages"
    message = _checked(value, _MESSAGE, where, "api.Message")
    for call in message.get("tool_calls") or ():
        found = _checked(call, _CALL, f"{where}.tool_calls", "api.ToolCall")
        check_kinds(found.get("function") or {}, _FUNCTION, f"{where}.tool_calls.function")
    for image in message.get("images") or ():
        if not isinstance(image, str):
            _refuse(image, f"{where}.images", "api.ImageData")
        if wrong := _NO_BASE64.search(image):
            raise FakeResponse(400, f"illegal base64 data at input byte {wrong.start()}")


def _checked(value: object, fields: Fields, where: str, go: str) -> Body:
    if not isinstance(value, dict):
        _refuse(value, where, go)
    check_kinds(value, fields, where)
    return value


def check_kinds(found: Body, fields: Fields, where: str) -> None:
    """Refuse fields of other types than theirs.

    Raises:
        FakeResponse: ``where`` and the field, and what it should be.
    """
    for name, (kind, go) in fields.items():
        if found.get(name) is not None and kind_of(found[name]) != kind:
            _refuse(found[name], f"{where}.{name}", go)


def _refuse(value: object, where: str, go: str) -> NoReturn:
    text = f"json: cannot unmarshal {kind_of(value)} into Go struct field {where} of type {go}"
    raise FakeResponse(400, text)
