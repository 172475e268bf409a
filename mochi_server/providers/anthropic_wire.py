"""The words of Anthropic's Messages API: stored messages to requests, events to chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import JSONObject, ProviderError
from ..messages import new_call_id
from .base import Chunk, ContentDelta, Finish, ModelRequest, ThinkingDelta
from .calls import Fragments, calls_of, parsed, take_call
from .outline import Outline, cut

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent

FORM: Final = "anthropic"
REPLY_TOOL: Final = "reply"
"""The tool that a model without JSON-schema mode must call with its reply."""

LEFT_OUT: Final = "(What was said before is left out.)"
NO_RESULT: Final = "Error: the call was interrupted."
REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")

Blocks = list[dict[str, Any]]


def system_of(messages: Sequence[JSONObject]) -> str:
    """The system prompt, which is a field of its own."""
    texts = (message.get("content") for message in messages if message.get("role") == "system")
    return "\n\n".join(str(text) for text in texts if text)


def to_wire(messages: Sequence[JSONObject], model: str) -> list[dict[str, Any]]:
    """Stored messages as the request has them: roles alternate, the first is a user's.

    The results of a reply's calls stand first in the user message after it, whose text follows.
    """
    wire = _Wire()
    for message in messages:
        match message.get("role"):
            case "user":
                wire.add("user", _text(message.get("content")))
            case "assistant":
                wire.add_assistant(message, model)
            case "tool":
                wire.add_result(message)
    wire.close_calls()
    return wire.messages


class _Wire:
    """The messages of a request as far as they are made."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open: list[tuple[str, str]] = []
        """Id and name of the calls that have no result yet."""

    def add(self, role: str, blocks: Blocks) -> None:
        if not blocks:
            return
        self.close_calls()
        self._join(role, blocks)

    def add_assistant(self, message: Mapping[str, Any], model: str) -> None:
        blocks = _assistant(message, model)
        self.add("assistant", blocks)
        self._open = [(block["id"], block["name"]) for block in blocks if "input" in block]

    def add_result(self, message: Mapping[str, Any]) -> None:
        if not self._open:
            return  # of a call that is not there; the API would refuse the whole request
        given = message.get("tool_call_id")
        asked = {**message, "tool_call_id": _id(given)} if given else message
        before = {call_id for call_id, _ in self._open}
        call_id = take_call(self._open, asked)
        if call_id in before:
            self._join("user", [_result(call_id, str(message.get("content") or ""))])

    def close_calls(self) -> None:
        """Give the calls a result that have none: each must have one."""
        missing = [{**_result(call_id, NO_RESULT), "is_error": True} for call_id, _ in self._open]
        self._open = []
        if missing:
            self._join("user", missing)

    def _join(self, role: str, blocks: Blocks) -> None:
        if not self.messages and role == "assistant":
            self.messages.append({"role": "user", "content": _text(LEFT_OUT)})
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"].extend(blocks)
        else:
            self.messages.append({"role": role, "content": blocks})


def _text(text: object) -> Blocks:
    """A block of text; none for what is blank, which the API refuses."""
    return [{"type": "text", "text": str(text)}] if text and str(text).strip() else []


def _id(call_id: object) -> str:
    """An id in the letters that the API takes; other vendors' ids have more."""
    return _ODD.sub("_", str(call_id)) if call_id else new_call_id()


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    return {
        "type": "tool_use",
        "id": _id(call.get("id")),
        "name": str(function.get("name") or ""),
        "input": arguments if isinstance(arguments, dict) else {},
    }


def _assistant(message: Mapping[str, Any], model: str) -> Blocks:
    parts = cut(message, form=FORM, model=model)
    if parts is None:
        return [*_text(message.get("content")), *map(_call, calls_of(message))]
    return [block for part, value in parts for block in _block(part, value)]


def _block(part: Mapping[str, Any], value: Any) -> Blocks:  # noqa: ANN401 - a text or a call
    match part.get("kind"):
        case "text":
            return _text(value)
        case "call":
            return [_call(value)]
        case "thinking" if part.get("signature"):
            return [{"type": "thinking", "thinking": value, "signature": part["signature"]}]
        case "redacted_thinking":
            return [{"type": "redacted_thinking", "data": part.get("data")}]
    return []


def may_think(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the API lets the model think now.

    A reply with calls whose results come last must begin with its thinking, which replies that
    were cut off, and those of other models, do not have.
    """
    last: Blocks = next((m["content"] for m in reversed(messages) if m["role"] == "assistant"), [])
    has_calls = any(block["type"] == "tool_use" for block in last)
    return not has_calls or last[0]["type"] in {"thinking", "redacted_thinking"}


def tools_of(request: ModelRequest, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields on tools. A history with calls needs their tools also when none may be called."""
    offered = [_tool(tool) for tool in request.tools]
    if offered:
        return {"tools": offered}
    blocks = [block for message in messages for block in message["content"]]
    names = sorted({block["name"] for block in blocks if block["type"] == "tool_use"})
    if not names:
        return {}
    past = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return {"tools": past, "tool_choice": {"type": "none"}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") or {}
    described = {"description": function["description"]} if function.get("description") else {}
    schema = function.get("parameters") or {"type": "object"}
    return {"name": function.get("name"), **described, "input_schema": schema}


@dataclass(slots=True)
class Assembly:
    """Folds the events of one streamed reply into chunks."""

    model: str
    forced: bool = False
    """Whether the call of ``REPLY_TOOL`` is the text."""
    _calls: dict[int, Fragments] = field(default_factory=dict)
    _outline: Outline = field(default_factory=Outline)
    _fresh: bool = True
    """Whether the block has just begun."""
    _reason: str | None = None
    _prompt: int | None = None
    _generated: int | None = None

    def add(self, event: RawMessageStreamEvent) -> Iterator[Chunk]:
        """What an event says at once; calls wait until they are whole."""
        if event.type == "message_start":
            self._count(event.message.usage)
        elif event.type == "content_block_start":
            yield from self._begin(event.index, event.content_block)
        elif event.type == "content_block_delta":
            yield from self._add_delta(event.index, event.delta)
        elif event.type == "message_delta":
            self._reason = event.delta.stop_reason or self._reason
            self._count(event.usage)

    def _count(self, usage: Any) -> None:  # noqa: ANN401 - two classes with the same fields
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        if (usage.input_tokens or 0) > 0 or self._prompt is None:
            self._prompt = sum(getattr(usage, name, None) or 0 for name in names)
        self._generated = usage.output_tokens

    def _begin(self, index: int, block: Any) -> Iterator[Chunk]:  # noqa: ANN401 - many classes
        self._fresh = True
        if block.type == "tool_use":
            call = self._calls[index] = Fragments(id=block.id, name=block.name)
            if not self._is_reply(call):
                self._outline.add("call")
        elif block.type == "redacted_thinking":
            self._outline.add("redacted_thinking", data=block.data)
        elif block.type == "text":
            yield from self._say(block.text)
        elif block.type == "thinking":
            yield from self._think(block.thinking, block.signature or None)

    def _add_delta(self, index: int, delta: Any) -> Iterator[Chunk]:  # noqa: ANN401
        if delta.type == "text_delta":
            yield from self._say(delta.text)
        elif delta.type == "thinking_delta":
            yield from self._think(delta.thinking)
        elif delta.type == "signature_delta":
            yield from self._think("", delta.signature)
        elif delta.type == "input_json_delta" and index in self._calls:
            call = self._calls[index]
            call.arguments += delta.partial_json
            if self._is_reply(call) and delta.partial_json:
                yield ContentDelta(delta.partial_json)

    def _is_reply(self, call: Fragments) -> bool:
        return self.forced and call.name == REPLY_TOOL

    def _say(self, text: str) -> Iterator[Chunk]:
        self._outline.grow("text", text, new=self._fresh)
        self._fresh = False
        if text:
            yield ContentDelta(text)

    def _think(self, text: str, signature: str | None = None) -> Iterator[Chunk]:
        self._outline.grow("thinking", text, signature, new=self._fresh)
        self._fresh = False
        if text:
            yield ThinkingDelta(text)

    def finish(self) -> Iterator[Chunk]:
        """The calls and the end of the reply.

        Raises:
            ProviderError: the stream ended without saying that it is finished.
        """
        if self._reason is None:
            raise ProviderError("The model's reply broke off before its end.")
        calls = [call for _, call in sorted(self._calls.items()) if not self._is_reply(call)]
        for call in calls:
            yield call.whole()
        reason = REASONS.get(self._reason, self._reason)
        yield Finish(
            reason="stop" if reason == "tool_calls" and not calls else reason,
            eval_count=self._generated,
            prompt_eval_count=self._prompt,
            provider_data=self._outline.as_stored(FORM, self.model),
        )
