"""The body of ``/api/chat``: stored messages and our parameters in Ollama's form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ..errors import JSONObject
from ..protocol.completions import ModelRequest
from .reader import as_arguments


def chat_body(request: ModelRequest, *, keep_alive: str | None = None) -> bytes:
    """Return the body of a streamed request.

    ``think`` is always there (left out, it means *on*), ``truncate`` is false (else the oldest
    messages are dropped without a word), and ``shift`` never is (it would reload the model).
    """
    body: JSONObject = {
        "model": request.model,
        "messages": chat_messages(request.messages),
        "stream": True,
        "think": request.think,
        "truncate": False,
    }
    if request.tools:
        body["tools"] = list(request.tools)
    if request.schema is not None:
        body["format"] = request.schema
    if options := chat_options(
        num_ctx=request.num_ctx,
        num_predict=request.max_tokens,
        temperature=request.temperature,
    ):
        body["options"] = options
    if keep_alive is not None:
        body["keep_alive"] = as_duration(keep_alive)
    return _dumps(body)


def chat_options(**options: float | None) -> JSONObject:
    """Return the options that are set."""
    return {name: value for name, value in options.items() if value is not None}


def as_duration(value: str) -> int | float | str:
    """Return a ``keep_alive`` as Ollama wants it: seconds as a number, ``5m`` as a text."""
    try:
        seconds = float(value)
    except ValueError:
        return value
    return int(seconds) if seconds.is_integer() else seconds


def chat_messages(messages: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the messages that a model may see, without what only we know of them."""
    converted = (_message(message) for message in messages)
    return [message for message in converted if message is not None]


def _message(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    role, content = stored.get("role"), stored.get("content")
    message: dict[str, Any] = {"role": role, "content": content if isinstance(content, str) else ""}
    if role == "assistant":
        return _assistant(message, stored)
    if role == "tool":
        for key in ("tool_name", "tool_call_id"):
            if stored.get(key):
                message[key] = stored[key]
        return message
    if role not in {"user", "system"}:
        return None
    if stored.get("images"):
        message["images"] = stored["images"]
    return message


def _assistant(message: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(thinking := stored.get("thinking"), str) and thinking:
        message["thinking"] = thinking
    if calls := [call for item in stored.get("tool_calls") or [] if (call := _call(item))]:
        message["tool_calls"] = calls
    elif stored.get("interrupted") and not message["content"]:
        return None
    return message


def _call(stored: Any) -> dict[str, Any] | None:  # noqa: ANN401 - of an old file
    function = stored.get("function") if isinstance(stored, dict) else None
    if not isinstance(function, dict) or not function.get("name"):
        return None
    arguments = as_arguments(function.get("arguments"))
    call = {"function": {"name": function["name"], "arguments": arguments}}
    return {"id": stored["id"], **call} if stored.get("id") else call


def _dumps(body: JSONObject) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # half a surrogate pair in some text; escaped, the server copes with it
        return json.dumps(body).encode()
