"""Requests of Gemini's ``generateContent``: history, tools, thinking and schemas."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import JSONObject
from ..base import ModelInfo, ModelRequest, Think
from ..common.history import (
    NO_RESULT,
    HistoryCall,
    ReplyStep,
    ToolNames,
    UserStep,
    normalize_history,
    system_prompt,
)
from ..common.reply_parts import split
from ..common.tool_schemas import parameters_of

FORM: Final = "gemini"
"""Marks ``provider_data`` that this API made."""

LEGAL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
BUDGETS: Final[dict[Think, int]] = {"low": 1024, "medium": 8192, "high": 24576, "max": -1}
"""Tokens of thinking for models that count them; -1 lets the model choose."""

LEVELS: Final[dict[Think, str]] = {"low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH"}
_COUNTED: Final = re.compile(r"gemini-2\.")
_UNSIGNED: Final = re.compile(r"gemini-[12]\.|(?!gemini)")
"""Models that accept calls without a signature."""

STAND_IN: Final = b"skip_thought_signature_validator"
"""Google's stand-in for a missing signature."""

_THINKING_CAN_BE_OFF: Final = re.compile(r"gemini-2\.5-flash")
"""Models whose thinking is switched off by a budget of 0."""

Parts = list[dict[str, Any]]


def contents_of(
    messages: Sequence[JSONObject], model: str, names: ToolNames
) -> list[dict[str, Any]]:
    """Return the messages of a request: roles alternate, the first is the user's.

    The results of a reply's calls are one message, in the order of the calls.
    """
    contents: list[dict[str, Any]] = []
    for step in normalize_history(
        messages, model, names=names, legal_id=lambda stored, _own: stored
    ):
        match step:
            case UserStep(text=text):
                _join(contents, "user", [{"text": text}])
            case ReplyStep():
                _join(contents, "model", _reply(step, model))
            case _:
                _join(contents, "user", [_result(call, text) for call, text in step.results])
    if not _UNSIGNED.match(model):
        _sign(contents)
    return contents


def without_ids(contents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the same messages without ids; results follow the order of their calls."""

    def plain(part: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {
            key: dict(part[key]) for key in {"function_call", "function_response"} & part.keys()
        }
        for entry in kinds.values():
            entry.pop("id", None)
        return {**part, **kinds}

    return [{**content, "parts": list(map(plain, content["parts"]))} for content in contents]


def _sign(contents: Sequence[Mapping[str, Any]]) -> None:
    """Give the first call of each reply of the present turn a signature, where it has none."""
    for content in reversed(contents):
        calls = [part for part in content["parts"] if "function_call" in part]
        if calls:
            calls[0].setdefault("thought_signature", STAND_IN)
        elif any("text" in part for part in content["parts"]) and content["role"] == "user":
            return


def _join(contents: list[dict[str, Any]], role: str, parts: Parts) -> None:
    if contents and contents[-1]["role"] == role:
        contents[-1]["parts"].extend(parts)
    else:
        contents.append({"role": role, "parts": parts})


def _result(call: HistoryCall, text: str | None) -> dict[str, Any]:
    response = {"error": NO_RESULT} if text is None else {"output": text}
    return {"function_response": {"id": call.id, "name": call.name, "response": response}}


def _call(call: HistoryCall) -> dict[str, Any]:
    return {"function_call": {"id": call.id, "name": call.name, "args": call.arguments}}


def _reply(reply: ReplyStep, model: str) -> Parts:
    parts = split(reply.message, reply.calls, form=FORM, model=model)
    if parts is None:
        text = [{"text": reply.text}] if reply.text else []
        return [*text, *map(_call, reply.calls)]
    return [entry for part, value in parts for entry in _part(part, value)]


def _part(part: Mapping[str, Any], value: Any) -> Parts:  # noqa: ANN401 - a text or a call
    signature = _signature(part.get("signature"))
    signed = {"thought_signature": signature} if signature else {}
    match part.get("kind"):
        case "text" if value or signed:
            return [{"text": value, **signed}]
        case "call":
            return [{**_call(value), **signed}]
    return []  # thoughts are not sent back


def _signature(text: object) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except binascii.Error:
        return None


def config_of(request: ModelRequest, info: ModelInfo | None, names: ToolNames) -> dict[str, Any]:
    """Return the configuration of a request, without its limit.

    Args:
        request: The request.
        info: What is known of the model.
        names: Of the tools.
    """
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if system := system_prompt(request.messages):
        config["system_instruction"] = system
    if request.tools:
        config["tools"] = [
            {"function_declarations": [_tool(tool, names) for tool in request.tools]}
        ]
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.think:
        config["thinking_config"] = _thinking(request.model, request.think)
    elif _thinks(info) and _THINKING_CAN_BE_OFF.match(request.model):
        config["thinking_config"] = {"thinking_budget": 0}
    if request.schema is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = request.schema
    return config


def thinks_unasked(request: ModelRequest, info: ModelInfo | None) -> bool:
    """Return whether the model thinks though it was not asked to: unseen, within its limit."""
    return not request.think and _thinks(info) and not _THINKING_CAN_BE_OFF.match(request.model)


def _thinks(info: ModelInfo | None) -> bool:
    return info is not None and "thinking" in info.capabilities


def _tool(tool: Mapping[str, Any], names: ToolNames) -> dict[str, Any]:
    function = tool.get("function") or {}
    name = names.to_vendor(str(function.get("name")))
    declaration = {"name": name, "description": function.get("description") or ""}
    schema = parameters_of(tool)
    return {**declaration, **({"parameters_json_schema": schema} if schema["properties"] else {})}


def _thinking(model: str, think: Think) -> dict[str, Any]:
    if think is True:
        return {"include_thoughts": True}
    if _COUNTED.search(model):
        return {"include_thoughts": True, "thinking_budget": BUDGETS[think]}
    return {"include_thoughts": True, "thinking_level": LEVELS[think]}
