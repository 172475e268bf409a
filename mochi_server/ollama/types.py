"""Models and messages of Ollama in our terms, and ours in Ollama's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ..core.json_text import read_json, repair_json
from ..core.limits import CALL_LEVELS, CALL_VALUES, has_more_values, is_too_deep
from ..core.times import read_time
from ..errors import JSONObject
from ..protocol.completions import ModelInfo, ModelRequest
from ..protocol.files import files_of
from ..protocol.messages import Message as ChatMessage
from ..protocol.response_format import JsonObjectFormat

__all__ = ["ChatMessage", "ModelInfo"]

DETAILS = ("format", "family", "parameter_size", "quantization_level")
SIGHT = frozenset({"clip", "mllama"})
"""Families of models that see images, by which servers before 0.6.4 tell it."""
TOO_MANY = f"(more than {CALL_VALUES:,} values)"
"""Stands for the arguments of a call that would take long to read."""
_WEIGHTS = re.compile(r"^FROM .*sha256-([0-9a-f]{64})\s*$", re.MULTILINE)
_NUM_CTX = re.compile(r"^num_ctx\s+([1-9]\d{0,8})\s*$", re.MULTILINE)


def full_name(name: str) -> str:
    """Return the name with its tag; one without means ``:latest``."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def info_of(
    name: str,
    *,
    listed: Mapping[str, Any] | None = None,
    shown: Mapping[str, Any] | None = None,
    provider: str = "ollama",
) -> ModelInfo:
    """Return a model, described by its entry in ``/api/tags``, by ``/api/show``, or by both."""
    listed, shown = listed or {}, shown or {}
    own = {key: value for key, value in (listed.get("details") or {}).items() if value}
    details = {**(shown.get("details") or {}), **own}
    size = listed.get("size")
    described: dict[str, Any] = {key: details.get(key) or None for key in DETAILS}
    return ModelInfo(
        name=name,
        size_mb=round(size / 1e6, 1) if isinstance(size, (int, float)) else None,
        capabilities=_capabilities_of(listed, shown),
        context_length=_context_length_of(shown) or details.get("context_length"),
        provider=provider,
        remote_host=listed.get("remote_host") or shown.get("remote_host"),
        modified_at=read_time(listed.get("modified_at") or shown.get("modified_at")),
        **described,
    )


def tells_abilities(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry in ``/api/tags`` or ``/api/show`` says what the model can do."""
    return bool(entry.get("capabilities")) and isinstance(entry["capabilities"], list)


def tells_enough(listed: Mapping[str, Any]) -> bool:
    """Return whether the entry in ``/api/tags`` needs no ``/api/show`` (servers since 0.30)."""
    if not tells_abilities(listed):
        return False
    length = (listed.get("details") or {}).get("context_length")
    return bool(length) or "completion" not in listed["capabilities"]


def _capabilities_of(listed: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """Return what the model can do; servers before 0.6.4 do not say, the template does."""
    for source in (listed, shown):
        if tells_abilities(source):
            return [str(item) for item in source["capabilities"]]
    abilities = ["completion"]
    if ".Tools" in (shown.get("template") or ""):
        abilities.append("tools")
    families = (listed.get("details") or shown.get("details") or {}).get("families") or ()
    if SIGHT.intersection(families):
        abilities.append("vision")
    return abilities


def _context_length_of(shown: Mapping[str, Any]) -> int | None:
    """Return the longest context of the weights, in tokens.

    The key begins with their architecture, which need not be the ``family`` of the details.
    """
    info = shown.get("model_info") or {}
    key = f"{info.get('general.architecture')}.context_length"
    candidates = [info.get(key), *(v for k, v in info.items() if k.endswith(".context_length"))]
    return next((value for value in candidates if isinstance(value, int) and value > 0), None)


def weights_in(shown: Mapping[str, Any]) -> str | None:
    """Return the digest of the weights, which all names of the same file have in common."""
    match = _WEIGHTS.search(shown.get("modelfile") or "")
    return match[1] if match else None


def window_in(shown: Mapping[str, Any]) -> int | None:
    """Return the ``PARAMETER num_ctx`` of the Modelfile, in tokens."""
    match = _NUM_CTX.search(shown.get("parameters") or "")
    return int(match[1]) if match else None


def can_chat(model: ModelInfo) -> bool:
    """Return whether the model is one to talk to (not for embeddings or images only)."""
    return "completion" in model.capabilities


def chat_body(
    request: ModelRequest, *, options: JSONObject, keep_alive: str | float | None = None
) -> bytes:
    """Return the body of a streamed request to ``/api/chat``; ``options`` as Ollama names them.

    ``think`` is always there (left out, it means *on*), ``truncate`` is false (else the oldest
    messages are dropped without a word), and ``shift`` never is (it would reload the model).
    """
    body: JSONObject = {
        "model": request.model,
        "messages": chat_messages(request.messages),
        "stream": True,
        "think": request.think or False,
        "truncate": False,
    }
    if request.tools:
        body["tools"] = list(request.tools)
    if isinstance(request.response_format, JsonObjectFormat):
        body["format"] = "json"
    elif request.response_format is not None:
        body["format"] = request.response_format.schema_of_reply
    if options := options | chat_options(num_ctx=request.num_ctx, num_predict=request.max_tokens):
        body["options"] = options
    if keep_alive is not None:
        body["keep_alive"] = as_duration(keep_alive)
    try:
        return orjson.dumps(body)
    except TypeError:  # half a surrogate pair in some text; escaped, the server copes with it
        return json.dumps(body).encode()


def chat_options(**options: float | None) -> JSONObject:
    return {name: value for name, value in options.items() if value is not None}


def as_duration(value: str | float) -> int | float | str:
    """Return a ``keep_alive`` as Ollama wants it: seconds as a number, ``5m`` as a text."""
    try:
        seconds = float(value)
    except ValueError:
        return value
    return int(seconds) if seconds.is_integer() else seconds


def chat_messages(messages: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the stored messages that a model may see, without what only we know of them."""
    return [message for stored in messages if (message := _message(stored)) is not None]


def _message(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    role, content = stored.get("role"), stored.get("content")
    message: dict[str, Any] = {"role": role, "content": content if isinstance(content, str) else ""}
    if role == "assistant":
        return _assistant(message, stored)
    keys = {"tool": ("tool_name", "tool_call_id"), "user": ("images",), "system": ("images",)}
    if role not in keys:
        return None
    message |= {key: stored[key] for key in keys[role] if stored.get(key)}
    if images := [file.data for file in files_of(stored) if file.is_image]:
        message["images"] = images
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


def as_arguments(value: object) -> dict[str, Any]:
    """Return the arguments of a call as an object; a text that is none is kept under ``input``.

    What could not be stored and sent, too deep or with too many values, is replaced by saying so.
    """
    if isinstance(value, str):
        if has_more_values(value.encode(), CALL_VALUES):
            return {"input": TOO_MANY}
        text = value.strip()
        read = {} if text in {"", "null"} else read_json(text)
        read = repair_json(text) if read is None else read
        value = {"input": value} if read is None else read
    if value is None:
        return {}
    if is_too_deep(value, CALL_LEVELS):
        return {"input": f"(nested more than {CALL_LEVELS} levels deep)"}
    if has_more_values(orjson.dumps(value), CALL_VALUES):
        return {"input": TOO_MANY}
    return value if isinstance(value, dict) else {"input": value}
