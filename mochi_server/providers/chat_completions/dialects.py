"""Differences between servers of this protocol, learnt from their refusals.

Each server accepts a little less than the others, or requires a little more. A refused request is
changed as the text of the refusal demands; if that helps, later requests are changed beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

from ...errors import JSONObject
from .messages import (
    DETAILS,
    EFFORT,
    FORMAT,
    NO_EFFORT,
    STREAM_OPTIONS,
    THOUGHT_FIELDS,
    Payload,
    without_images_of_results,
)

BLANK_THOUGHT: Final = " "

_WANTS_THOUGHTS: Final = re.compile(
    r"reasoning_content\W.*(missing|must be passed)|missing\W+reasoning_content", re.IGNORECASE
)
_THOUGHTS: Final = re.compile(r"\breasoning(_content|_details)?\b")
_REFUSED: Final = re.compile(
    r"unsupported|not supported|forbidden|not permitted|not allowed"
    r"|un(known|expected|recognized|available)",
    re.IGNORECASE,
)
IMAGES: Final = re.compile(r"\b(images?|image_url|vision|multimodal|mmproj)\b", re.IGNORECASE)
"""What refusals of images name; llama.cpp's server says it with the status 500."""
_FORMATS: Final = re.compile(r"response_format|json_schema|json_object")
_INVALID_SCHEMA: Final = "Invalid schema"
"""How OpenAI's refusals of a schema begin, which name the keywords that it does not know."""
_NOT_WITH_TOOLS: Final = "tools with reasoning_effort are not supported"
"""OpenAI's words, since GPT-5.4; its newer API takes both."""
_TOO_LONG: Final = re.compile(
    r"description\W+string too long\. Expected a string with maximum length (\d+)"
)


def adapted(payload: Payload, refusal: str) -> Payload:
    """Return a request without what was refused in these words, or with what was missed.

    Mistral's own API and some gateways refuse options of streams, and send the counts unasked.
    Groq's and Mistral's refuse the thinking that gateways show of their models. DeepSeek's knows no
    JSON schemas.
    """
    if EFFORT in refusal and payload.get(EFFORT) == NO_EFFORT:  # it reasons always, or never
        return {key: value for key, value in payload.items() if key != EFFORT}
    if (field := _refused_field(refusal)) in payload:
        return {key: value for key, value in payload.items() if key != field}
    if _WANTS_THOUGHTS.search(refusal):
        return {**payload, "messages": _with_thoughts(payload["messages"])}
    if _NOT_WITH_TOOLS in refusal and "tools" in payload and EFFORT not in payload:
        return {**payload, EFFORT: NO_EFFORT}
    if (match := _TOO_LONG.search(refusal)) and "tools" in payload:
        return {**payload, "tools": _shortened(payload["tools"], int(match[1]))}
    return {**payload, "messages": _without_refused(payload["messages"], refusal)}


def _without_refused(messages: Sequence[JSONObject], refusal: str) -> list[JSONObject]:
    if _THOUGHTS.search(refusal) and _REFUSED.search(refusal):
        return _without_thoughts(messages)
    return without_images_of_results(messages) if IMAGES.search(refusal) else [*messages]


def _refused_field(refusal: str) -> str | None:
    """Return the field that a server does not take at all."""
    if STREAM_OPTIONS in refusal:
        return STREAM_OPTIONS
    is_format = _FORMATS.search(refusal) and _INVALID_SCHEMA not in refusal
    return FORMAT if is_format and _REFUSED.search(refusal) else None


def _with_thoughts(messages: Sequence[JSONObject]) -> list[JSONObject]:
    """Give each reply its thinking, or a blank where there is none.

    The models of Kimi and DeepSeek want some of each reply of a turn with calls, also of those
    that another model gave; nothing at all counts as none.
    """
    return [
        {THOUGHT_FIELDS[0]: BLANK_THOUGHT, **message} if message["role"] == "assistant" else message
        for message in messages
    ]


def _without_thoughts(messages: Sequence[JSONObject]) -> list[JSONObject]:
    fields = {*THOUGHT_FIELDS, DETAILS}
    return [{key: message[key] for key in message if key not in fields} for message in messages]


def _description(tool: Mapping[str, Any]) -> str:
    return tool["function"].get("description") or ""


def _shortened(tools: Sequence[Payload], most: int) -> list[Payload]:
    short = [f"{_description(tool)[: max(most - 1, 0)]}…" for tool in tools]
    return [
        {**tool, "function": {**tool["function"], "description": text}}
        if len(_description(tool)) > most
        else tool
        for tool, text in zip(tools, short, strict=True)
    ]


def _contents(messages: Sequence[JSONObject]) -> list[JsonValue]:
    return [message.get("content") for message in messages]


class Dialects:
    """What is known of the dialects of the models behind one address."""

    def __init__(self) -> None:
        self._no_stream_options: set[str] = set()
        self._want_thoughts: set[str] = set()
        """Models whose requests must have the thinking of each reply."""
        self._refuse_thoughts: set[str] = set()
        self._reason_or_call: set[str] = set()
        """Models that call no tools while they reason, which they do unless told not to."""
        self._cannot_be_told: set[str] = set()
        """Models that refuse to be told not to reason: they cannot, or always do."""
        self._blind: set[str] = set()
        """Models that see no images."""
        self._longest_description: int | None = None
        self._refused_formats: set[tuple[str, str]] = set()
        """Models, each with a type of response format that it does not know."""

    def takes_format(self, model: str, kind: str) -> bool:
        return (model, kind) not in self._refused_formats

    def apply(self, payload: Payload) -> Payload:
        model, messages = payload["model"], payload["messages"]
        applied = dict(payload)
        if model in self._no_stream_options:
            applied.pop(STREAM_OPTIONS, None)
        if model in self._blind:
            messages = without_images_of_results(messages)
            applied["messages"] = messages
        if model in self._want_thoughts:
            applied["messages"] = _with_thoughts(messages)
        elif model in self._refuse_thoughts:
            applied["messages"] = _without_thoughts(messages)
        if model in self._cannot_be_told and applied.get(EFFORT) == NO_EFFORT:
            del applied[EFFORT]
        if "tools" in applied and model in self._reason_or_call:
            applied.setdefault(EFFORT, NO_EFFORT)
        if "tools" in applied and self._longest_description is not None:
            applied["tools"] = _shortened(applied["tools"], self._longest_description)
        return applied

    def learn(self, first: Payload, accepted: Payload) -> None:
        """Note what helped: the request as it was at first, and as it was accepted."""
        model, messages = accepted["model"], accepted["messages"]
        if STREAM_OPTIONS not in accepted:
            self._no_stream_options.add(model)
        if len(messages) != len(first["messages"]) or _contents(messages) != _contents(
            first["messages"]
        ):
            self._blind.add(model)
        elif messages != first["messages"]:
            refuses = messages == _without_thoughts(messages)
            (self._refuse_thoughts if refuses else self._want_thoughts).add(model)
        if FORMAT in first and FORMAT not in accepted:
            self._refused_formats.add((model, first[FORMAT]["type"]))
        if accepted.get(EFFORT) != first.get(EFFORT):
            was_told = first.get(EFFORT) == NO_EFFORT
            (self._cannot_be_told if was_told else self._reason_or_call).add(model)
        if accepted.get("tools") != first.get("tools"):
            self._longest_description = max(map(len, map(_description, accepted["tools"])))
