"""Stored messages and tools as requests of chat completions have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import JSONObject
from ..base import ModelRequest
from ..common.history import (
    NO_RESULT,
    HistoryCall,
    ReplyStep,
    ToolNames,
    UserStep,
    normalize_history,
    short_id,
    system_prompt,
)
from ..common.tool_schemas import parameters_of

FORM: Final = "openai"
"""Marks ``provider_data`` that this protocol made."""

THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning")
"""Where servers put thinking: DeepSeek and llama.cpp the first, vLLM and OpenRouter the second."""

DETAILS: Final = "reasoning_details"
"""OpenRouter's parts of the thinking, some signed or encrypted."""

STREAM_OPTIONS: Final = "stream_options"
EFFORT: Final = "reasoning_effort"
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CUT_OFF: Final = "(The reply was cut off.)"
_MISTRAL: Final = re.compile(r"[a-z]stral|mixtral", re.IGNORECASE)
"""Models whose API and templates refuse a message of the user right after results."""

_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")

Payload = dict[str, Any]


def messages_of(request: ModelRequest, names: ToolNames) -> list[JSONObject]:
    """Return the messages of a request; the system prompt is the first."""
    messages: list[JSONObject] = []
    if system := system_prompt(request.messages):
        messages.append({"role": "system", "content": system})
    history = normalize_history(request.messages, request.model, names=names, legal_id=_legal_id)
    for step in history:
        match step:
            case UserStep(text=text):
                if messages and messages[-1]["role"] == "tool" and _MISTRAL.search(request.model):
                    messages.append({"role": "assistant", "content": CUT_OFF})
                messages.append({"role": "user", "content": text})
            case ReplyStep():
                _add_reply(messages, step, request.model)
            case _:
                messages += [
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "name": call.name,
                        "content": NO_RESULT if text is None else text,
                    }
                    for call, text in step.results
                ]
    return messages


def _legal_id(stored: str, own: bool) -> str:  # noqa: FBT001 - as the history asks
    """Keep the server's own ids; others get the one form that no template refuses."""
    return stored if own or _NINE.fullmatch(stored) else short_id(stored)


def _add_reply(messages: list[JSONObject], reply: ReplyStep, model: str) -> None:
    """Add a reply; two in a row become one, since many templates want the roles to alternate."""
    data = reply.message.get("provider_data")
    if not isinstance(data, dict) or (data.get("form"), data.get("model")) != (FORM, model):
        data = {}  # nothing of another model's goes back
    entry: JSONObject = {"role": "assistant", "content": reply.text, **_thinking(reply, data)}
    if reply.calls:
        extras = data.get("calls")
        if not isinstance(extras, list) or len(extras) != len(reply.calls):
            extras = [None] * len(reply.calls)
        entry["tool_calls"] = [
            _call(call, extra if isinstance(extra, dict) else {})
            for call, extra in zip(reply.calls, extras, strict=True)
        ]
    if messages and (last := messages[-1])["role"] == "assistant":
        entry["content"] = "\n\n".join(text for text in (str(last["content"]), reply.text) if text)
        messages[-1] = {**last, **entry}
    else:
        messages.append(entry)


def _thinking(reply: ReplyStep, data: Mapping[str, Any]) -> JSONObject:
    thought, thought_field = reply.message.get("thinking"), data.get("thinking")
    fields: JSONObject = {}
    if thought and thought_field in THOUGHT_FIELDS:
        fields[str(thought_field)] = str(thought)
    if isinstance(data.get(DETAILS), list):
        fields[DETAILS] = data[DETAILS]
    return fields


def _call(call: HistoryCall, extra: Mapping[str, Any]) -> JSONObject:
    function: JSONObject = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function, **extra}


def tools_of(tools: Sequence[JSONObject], names: ToolNames) -> list[JSONObject]:
    """Return the tools of a request, by the names that the vendor takes."""
    sent: list[JSONObject] = []
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, dict):
            # OpenAI and LM Studio refuse an object that names no properties.
            name, parameters = names.to_vendor(str(function.get("name"))), parameters_of(tool)
            tool = {**tool, "function": {**function, "name": name, "parameters": parameters}}  # noqa: PLW2901
        sent.append(tool)
    return sent
