"""What servers of OpenAI's protocol refuse, and what is learnt from it.

Each of them takes a little less than the others, or wants a little more. A request that was refused
is changed as the words of the refusal want it; when that helped, the next ones are made so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import JSONObject
from .wire import DETAILS, THOUGHT_FIELDS

OPTIONS: Final = "stream_options"
EFFORT: Final = "reasoning_effort"
BLANK_THOUGHT: Final = " "

_WANTS_THOUGHTS: Final = re.compile(
    r"reasoning_content\W.*(missing|must be passed)|missing\W+reasoning_content", re.IGNORECASE
)
_THOUGHTS: Final = re.compile(r"\breasoning(_content|_details)?\b")
_REFUSED: Final = re.compile(
    r"unsupported|not supported|forbidden|not permitted|not allowed|un(known|expected|recognized)",
    re.IGNORECASE,
)
_NO_EFFORT: Final = "tools with reasoning_effort are not supported"
"""OpenAI's words, since GPT-5.4; its newer API takes both."""

_TOO_LONG: Final = re.compile(
    r"description\W+string too long\. Expected a string with maximum length (\d+)"
)

Payload = dict[str, Any]


def changed(payload: Payload, words: str) -> Payload:
    """A request without what was refused in these words, or with what was missed.

    Mistral's own API and some gateways refuse options of streams, and send the counts unasked.
    Groq's and Mistral's refuse the thinking that gateways show of their models.
    """
    if OPTIONS in payload and OPTIONS in words:
        return {key: value for key, value in payload.items() if key != OPTIONS}
    if _WANTS_THOUGHTS.search(words):
        return {**payload, "messages": _with_thoughts(payload["messages"])}
    if _NO_EFFORT in words and "tools" in payload and EFFORT not in payload:
        return {**payload, EFFORT: "none"}
    if (found := _TOO_LONG.search(words)) and "tools" in payload:
        return {**payload, "tools": _cut(payload["tools"], int(found[1]))}
    if _THOUGHTS.search(words) and _REFUSED.search(words):
        return {**payload, "messages": _without_thoughts(payload["messages"])}
    return payload


def _with_thoughts(messages: Sequence[JSONObject]) -> list[JSONObject]:
    """The messages of a request, each reply with its thinking, or a blank where there is none.

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


def _described(tool: Mapping[str, Any]) -> str:
    return (tool.get("function") or {}).get("description") or ""


def _cut(tools: Sequence[Payload], most: int) -> list[Payload]:
    """The tools, none of them with a longer description."""
    short = [f"{_described(tool)[: max(most - 1, 0)]}…" for tool in tools]
    return [
        {**tool, "function": {**tool["function"], "description": text}}
        if len(_described(tool)) > most
        else tool
        for tool, text in zip(tools, short, strict=True)
    ]


class Ways:
    """How the models behind one address want their requests, as far as it is known."""

    def __init__(self) -> None:
        self._no_options: set[str] = set()
        self._want_thoughts: set[str] = set()
        """Models whose requests must have the thinking of each reply."""
        self._take_no_thoughts: set[str] = set()
        self._reason_or_call: set[str] = set()
        """Models that call no tools while they reason, which they do unless told not to."""
        self._longest_description: int | None = None

    def applied(self, payload: Payload) -> Payload:
        """The request as its model wants it."""
        model, messages = payload["model"], payload["messages"]
        made = dict(payload)
        if model in self._no_options:
            made.pop(OPTIONS, None)
        if model in self._want_thoughts:
            made["messages"] = _with_thoughts(messages)
        elif model in self._take_no_thoughts:
            made["messages"] = _without_thoughts(messages)
        if "tools" in made and model in self._reason_or_call:
            made.setdefault(EFFORT, "none")
        if "tools" in made and self._longest_description is not None:
            made["tools"] = _cut(made["tools"], self._longest_description)
        return made

    def learn(self, asked: Mapping[str, Any], taken: Mapping[str, Any]) -> None:
        """Note what helped: a request, and what it was when it was taken."""
        model, messages = taken["model"], taken["messages"]
        if OPTIONS not in taken:
            self._no_options.add(model)
        if messages != asked["messages"]:
            refused = messages == _without_thoughts(messages)
            (self._take_no_thoughts if refused else self._want_thoughts).add(model)
        if taken.get(EFFORT) != asked.get(EFFORT):
            self._reason_or_call.add(model)
        if taken.get("tools") != asked.get("tools"):
            self._longest_description = max(map(len, map(_described, taken["tools"])))
