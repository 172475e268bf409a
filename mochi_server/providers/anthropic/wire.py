"""The words of Anthropic's Messages API: stored messages to requests, events to chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...errors import JSONObject, ProviderError
from ..base import Chunk, ContentDelta, Finish, ModelRequest, ThinkingDelta
from ..common.history import NO_RESULT, Answer, Call, Names, Question, steps_of
from ..common.reply_parts import Outline, cut
from ..common.tool_calls import Fragments, count_of, plain_text
from ..common.tool_schemas import parameters_of

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent

FORM: Final = "anthropic"
REPLY_TOOL: Final = "reply"
"""The tool that a model without JSON-schema mode must call with its reply."""

LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")

Blocks = list[dict[str, Any]]


def to_wire(messages: Sequence[JSONObject], model: str, names: Names) -> list[dict[str, Any]]:
    """Stored messages as the request has them: roles alternate, the first is a user's.

    The results of a reply's calls stand first in the user message after it, whose text follows.
    """
    wire: list[dict[str, Any]] = []
    for step in steps_of(messages, model, names=names, legal_id=_legal_id):
        match step:
            case Question(text=text):
                _join(wire, "user", _text(text))
            case Answer():
                _join(wire, "assistant", _answer(step, model))
            case _:
                _join(wire, "user", [_result(call.id, text) for call, text in step.results])
    return wire


def _join(wire: list[dict[str, Any]], role: str, blocks: Blocks) -> None:
    if wire and wire[-1]["role"] == role:
        wire[-1]["content"].extend(blocks)
    else:
        wire.append({"role": role, "content": blocks})


def _legal_id(stored: str, own: bool) -> str:  # noqa: ARG001, FBT001 - as the steps ask
    """An id in the letters that the API takes; other vendors' ids have more."""
    return _ODD.sub("_", stored)


def _text(text: str) -> Blocks:
    """A block of text; none for what is blank, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _result(call_id: str, text: str | None) -> dict[str, Any]:
    found = {"type": "tool_result", "tool_use_id": call_id}
    return {**found, "content": NO_RESULT, "is_error": True} if text is None else {
        **found, "content": text}  # fmt: skip


def _call(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def _answer(answer: Answer, model: str) -> Blocks:
    """The blocks of a reply; thinking at its end, which a limit has cut, is left out."""
    parts = cut(answer.message, answer.calls, form=FORM, model=model)
    if parts is None:
        return [*_text(answer.text), *map(_call, answer.calls)]
    blocks = [block for part, value in parts for block in _block(part, value)]
    while blocks and blocks[-1]["type"] in THOUGHTS:
        blocks.pop()
    return blocks


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
    return not has_calls or last[0]["type"] in THOUGHTS


def tools_of(
    request: ModelRequest, messages: Sequence[Mapping[str, Any]], names: Names
) -> dict[str, Any]:
    """The fields on tools. A history with calls needs their tools also when none may be called."""
    offered = [_tool(tool, names) for tool in request.tools]
    if offered:
        return {"tools": offered}
    blocks = [block for message in messages for block in message["content"]]
    used = sorted({block["name"] for block in blocks if block["type"] == "tool_use"})
    if not used:
        return {}
    past = [{"name": name, "input_schema": {"type": "object"}} for name in used]
    return {"tools": past, "tool_choice": {"type": "none"}}


def _tool(tool: Mapping[str, Any], names: Names) -> dict[str, Any]:
    function = tool.get("function") or {}
    described = {"description": function["description"]} if function.get("description") else {}
    name = names.theirs(str(function.get("name")))
    return {"name": name, **described, "input_schema": parameters_of(tool)}


@dataclass(slots=True)
class Assembly:
    """Folds the events of one streamed reply into chunks."""

    model: str
    names: Names
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
            if reason := event.delta.stop_reason:
                self._reason = plain_text(reason)
            self._count(event.usage)

    def _count(self, usage: Any) -> None:  # noqa: ANN401 - two classes with the same fields
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        counts = [count_of(getattr(usage, name, None)) for name in names]
        if counts[0] or (self._prompt is None and any(counts)):
            self._prompt = sum(count or 0 for count in counts)
        self._generated = count_of(getattr(usage, "output_tokens", None)) or self._generated

    def _begin(self, index: int, block: Any) -> Iterator[Chunk]:  # noqa: ANN401 - many classes
        self._fresh = True
        if block.type == "tool_use":
            call = self._calls[index] = Fragments()
            # The vendor's own has no arguments here; some gateways have them nowhere else.
            call.add(block.id, block.name, getattr(block, "input", None))
            if not self._is_reply(call):
                self._outline.add("call")
        elif block.type == "redacted_thinking":
            self._outline.add("redacted_thinking", data=plain_text(block.data))
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
        elif delta.type == "input_json_delta" and delta.partial_json and index in self._calls:
            call = self._calls[index]
            if self._fresh:  # what came with the beginning of the block were none, or these
                call.drop_arguments()
            call.add_arguments(delta.partial_json)
            self._fresh = False

    def _is_reply(self, call: Fragments) -> bool:
        return self.forced and call.name == REPLY_TOOL

    def _say(self, text: str | None) -> Iterator[Chunk]:
        text = text if isinstance(text, str) else ""
        self._outline.grow("text", text, new=self._fresh)
        self._fresh = False
        if text:
            yield ContentDelta(text)

    def _think(self, text: str | None, signature: str | None = None) -> Iterator[Chunk]:
        text = text if isinstance(text, str) else ""
        signed = plain_text(signature) if signature else None
        self._outline.grow("thinking", text, signed, new=self._fresh)
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
        made = [call for _, call in sorted(self._calls.items())]
        yield from (ContentDelta(call.arguments) for call in made if self._is_reply(call))
        calls = [call for call in made if not self._is_reply(call)]
        reason = REASONS.get(self._reason, self._reason)
        for call in calls:
            call.name = self.names.ours(call.name)
            yield call.whole(reason)
        yield Finish(
            reason="stop" if reason == "tool_calls" and not calls else reason,
            eval_count=self._generated,
            prompt_eval_count=self._prompt,
            provider_data=self._outline.as_stored(FORM, self.model),
        )
