"""Requests of Anthropic's Messages API (history, tools, limits, thinking, schemas), and replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...errors import JSONObject, ProviderError, ThinkingNotSupported
from ...protocol.files import RequestFile
from ...protocol.response_format import JsonSchemaFormat, ResponseFormat
from ..base import Chunk, ContentDelta, Finish, ModelRequest, Think, ThinkingDelta
from ..common.history import (
    NO_RESULT,
    HistoryCall,
    HistoryStep,
    ReplyStep,
    ToolNames,
    UserStep,
    alternate,
    normalize_history,
    system_prompt,
)
from ..common.options import extra_of, fields_of
from ..common.reply_parts import ReplyParts, split
from ..common.tools import REFUSED_AT_ROOT, CallFragments, parameters_of
from ..common.values import plain_text, token_count

if TYPE_CHECKING:
    from anthropic.types import ModelInfo as VendorsModel
    from anthropic.types import RawMessageStreamEvent

FORM: Final = "anthropic"
REPLY_TOOL: Final = "reply"
"""The tool that a model without JSON-schema mode must call with its reply."""
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")

DEFAULT_MAX_TOKENS: Final = 8192
"""Tokens of the longest reply if nothing else limits it: the API requires a limit."""
BUDGETS: Final[dict[Think, int]] = {
    False: 0,
    "low": 2048,
    True: 8192,
    "medium": 8192,
    "high": 16384,
    "max": 32768,
}
SMALLEST_BUDGET: Final = 1024
SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})
"""Names of the options that models have which do not decide about thinking themselves."""

Blocks = list[dict[str, Any]]
Delta: TypeAlias = ContentDelta | ThinkingDelta
Strict = Callable[[dict[str, Any]], dict[str, Any]]
"""Changes a JSON schema into one that the API accepts."""
REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model accepts."""

    most_tokens: int | None = None
    adaptive: bool = False
    """Whether ``thinking`` may be of type ``adaptive``; the next two are types, too."""
    enabled: bool = False
    disabled: bool = False
    efforts: frozenset[str] = frozenset()
    schema: bool = False

    @classmethod
    def of(cls, model: VendorsModel) -> Traits:
        can = model.capabilities
        if can is None:
            return cls(most_tokens=model.max_tokens)
        kinds = can.thinking.types
        thinks, levels = can.thinking.supported, ("low", "medium", "high", "max")
        efforts = [level for level in levels if getattr(can.effort, level).supported]
        return cls(
            most_tokens=model.max_tokens,
            adaptive=thinks and kinds.adaptive.supported,
            enabled=thinks and kinds.enabled.supported,
            disabled=thinks and kinds.disabled.supported,
            efforts=frozenset(efforts if can.effort.supported else ()),
            schema=can.structured_outputs.supported,
        )


def payload_of(
    request: ModelRequest,
    traits: Traits,
    names: ToolNames,
    *,
    alias: str,
    most: int | None,
    strict: Strict,
) -> dict[str, Any]:
    """Return the fields of a request; ``most`` is the longest reply that the settings allow."""
    messages = messages_of(request.messages, request.model, names)
    payload: dict[str, Any] = {"model": request.model, "messages": messages, "stream": True}
    payload |= tools_of(request, messages, names)
    if system := system_prompt(request.messages):
        payload["system"] = system
    if request.response_format is not None:
        payload |= _format(request.response_format, traits, strict)
    think = (may_think(messages) and not is_forced(payload) and request.think) or False
    limit = _limit(request, traits, think, most)
    payload["max_tokens"] = limit
    if stops := request.options.stops:
        payload["stop_sequences"] = stops
    fields = fields_of(request.options, sampling_of(traits, think))
    if extra := {**fields, **extra_of(request.options, alias)}:
        payload["extra_body"] = extra  # the SDK has dropped the parameters
    return _merged(payload, _thinking(request.model, traits, think, limit))


def sampling_of(traits: Traits, think: Think) -> frozenset[str]:
    """Return the sampling that a model takes: none where it thinks, or decides about thinking."""
    return SAMPLING if traits.enabled and not think else frozenset()


def is_forced(payload: Mapping[str, Any]) -> bool:
    """Return whether a request demands the call of a tool, before which no model thinks."""
    return payload.get("tool_choice", {}).get("type") in {"any", "tool"}


def is_reply_forced(payload: Mapping[str, Any]) -> bool:
    """Return whether a request demands the call that is the reply itself."""
    return bool(payload.get("tool_choice", {}).get("name") == REPLY_TOOL)


def _limit(request: ModelRequest, traits: Traits, think: Think, most: int | None) -> int:
    # A model that cannot be kept from thinking needs the room in any case.
    unasked = BUDGETS[True] if traits.adaptive and not traits.disabled and not think else 0
    requested = request.max_tokens + unasked if request.max_tokens else None
    bounds = (most or DEFAULT_MAX_TOKENS + BUDGETS[think] + unasked, requested, traits.most_tokens)
    return min(bound for bound in bounds if bound)


def knows_format(response_format: ResponseFormat, traits: Traits) -> bool:
    """Return whether a model has a mode for the format, which it also has beside tools."""
    return traits.schema and isinstance(response_format, JsonSchemaFormat)


def is_form_of_tool(response_format: ResponseFormat) -> bool:
    """Return whether a tool may have the schema of a response format."""
    schema = response_format.schema_of_reply
    return schema.get("type") == "object" and not schema.keys() & REFUSED_AT_ROOT


def _format(response_format: ResponseFormat, traits: Traits, strict: Strict) -> dict[str, Any]:
    schema = response_format.schema_of_reply
    if knows_format(response_format, traits):
        return {"output_config": {"format": {"type": "json_schema", "schema": strict(schema)}}}
    tool = {"name": REPLY_TOOL, "description": "Give the reply.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": REPLY_TOOL}}


def _thinking(model: str, traits: Traits, think: Think, limit: int) -> dict[str, Any]:
    if not think:
        return {"thinking": {"type": "disabled"}} if traits.disabled else {}
    if traits.adaptive:
        effort = {"output_config": {"effort": think}} if think in traits.efforts else {}
        return {"thinking": {"type": "adaptive", "display": "summarized"}, **effort}
    budget = min(BUDGETS[think], limit // 2)
    if budget < SMALLEST_BUDGET:
        raise ThinkingNotSupported(
            f"Model {model!r} cannot think within {limit} tokens of output.",
            details={"model": model, "max_tokens": limit},
        )
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _merged(payload: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Join the fields; a schema and an effort share one."""
    config = {**payload.get("output_config", {}), **more.get("output_config", {})}
    return {**payload, **more, **({"output_config": config} if config else {})}


def messages_of(messages: Sequence[JSONObject], model: str, names: ToolNames) -> Blocks:
    """Return the messages of a request: roles alternate, the first is a user's.

    The results of a reply's calls stand first in the user message after it, whose text follows.
    """
    history = normalize_history(messages, model, names=names, legal_id=_legal_id)
    return alternate((_turn(step, model) for step in history), key="content")


def _turn(step: HistoryStep, model: str) -> tuple[str, Blocks]:
    match step:
        case UserStep(text=text, files=files):
            return "user", [*map(_file, files), *_text(text)]
        case ReplyStep():
            return "assistant", _reply(step, model)
        case _:
            return "user", [
                _result(call.id, text, step.images.get(call.id, ())) for call, text in step.results
            ]


def _legal_id(stored: str, own: bool) -> str:  # noqa: ARG001, FBT001 - as the history asks
    """Make an id of the characters that the API takes; other vendors' ids have more."""
    return _ILLEGAL.sub("_", stored)


def _text(text: str) -> Blocks:
    """Return a block of text; none for a blank text, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _file(file: RequestFile) -> dict[str, Any]:
    source = {"type": "base64", "media_type": file.media_type, "data": file.data}
    if file.is_image:
        return {"type": "image", "source": source}
    title = {"title": file.name} if file.name else {}
    return {"type": "document", "source": source, **title}


def _result(call_id: str, text: str | None, images: Sequence[RequestFile]) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    if text is None:
        return {**result, "content": NO_RESULT, "is_error": True}
    return {**result, "content": [*_text(text), *map(_file, images)]} if images else result


def _call(call: HistoryCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def _reply(reply: ReplyStep, model: str) -> Blocks:
    """Return the blocks of a reply; thinking at its end, which a limit has cut, is left out."""
    parts = split(reply.message, reply.calls, form=FORM, model=model)
    if parts is None:
        return [*_text(reply.text), *map(_call, reply.calls)]
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
    """Return whether the API lets the model think now.

    A reply with calls whose results come last must begin with its thinking, which replies that
    were cut off, and those of other models, do not have.
    """
    last: Blocks = next((m["content"] for m in reversed(messages) if m["role"] == "assistant"), [])
    has_calls = any(block["type"] == "tool_use" for block in last)
    return not has_calls or last[0]["type"] in THOUGHTS


def tools_of(
    request: ModelRequest, messages: Sequence[Mapping[str, Any]], names: ToolNames
) -> dict[str, Any]:
    """Return the fields on tools; a history with calls needs theirs even if none may be called."""
    offered = [_tool(tool, names) for tool in request.tools]
    if offered:
        return {"tools": offered, **({"tool_choice": {"type": "any"}} if request.must_call else {})}
    blocks = [block for message in messages for block in message["content"]]
    used = sorted({block["name"] for block in blocks if block["type"] == "tool_use"})
    if not used:
        return {}
    past = [{"name": name, "input_schema": {"type": "object"}} for name in used]
    return {"tools": past, "tool_choice": {"type": "none"}}


def _tool(tool: Mapping[str, Any], names: ToolNames) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if function["description"] else {}
    name = names.to_vendor(function["name"])
    return {"name": name, **described, "input_schema": parameters_of(tool)}


@dataclass(slots=True)
class AnthropicReply:
    """One reply, put together from the events of its stream."""

    model: str
    names: ToolNames
    forced: bool = False
    _calls: dict[int, CallFragments] = field(default_factory=dict)
    _parts: ReplyParts = field(default_factory=ReplyParts)
    _is_new: bool = True
    _reason: str | None = None
    _prompt_tokens: int | None = None
    _reply_tokens: int | None = None
    _stop_sequence: str | None = None

    def add(self, event: RawMessageStreamEvent) -> Iterator[Chunk]:
        if event.type == "message_start":
            self._count(event.message.usage)
        elif event.type == "content_block_start":
            yield from self._begin(event.index, event.content_block)
        elif event.type == "content_block_delta":
            yield from self._add_delta(event.index, event.delta)
        elif event.type == "message_delta":
            if reason := event.delta.stop_reason:
                self._reason = plain_text(reason)
                self._stop_sequence = event.delta.stop_sequence
            self._count(event.usage)

    def _count(self, usage: Any) -> None:  # noqa: ANN401 - two classes with the same fields
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        counts = [token_count(getattr(usage, name, None)) for name in names]
        if counts[0] or (self._prompt_tokens is None and any(counts)):
            self._prompt_tokens = sum(count or 0 for count in counts)
        output = token_count(getattr(usage, "output_tokens", None))
        self._reply_tokens = output or self._reply_tokens

    def _begin(self, index: int, block: Any) -> Iterator[Chunk]:  # noqa: ANN401 - many classes
        self._is_new = True
        if block.type == "tool_use":
            call = self._calls[index] = CallFragments()
            # The vendor's own has no arguments here; some gateways have them nowhere else.
            call.add(block.id, block.name, getattr(block, "input", None))
            if not self._is_reply(call):
                self._parts.add("call")
        elif block.type == "redacted_thinking":
            self._parts.add("redacted_thinking", data=plain_text(block.data))
        elif block.type == "text":
            yield from self._say(ContentDelta, block.text)
        elif block.type == "thinking":
            yield from self._say(ThinkingDelta, block.thinking, block.signature)

    def _add_delta(self, index: int, delta: Any) -> Iterator[Chunk]:  # noqa: ANN401
        if delta.type == "text_delta":
            yield from self._say(ContentDelta, delta.text)
        elif delta.type == "thinking_delta":
            yield from self._say(ThinkingDelta, delta.thinking)
        elif delta.type == "signature_delta":
            yield from self._say(ThinkingDelta, "", delta.signature)
        elif delta.type == "input_json_delta" and delta.partial_json and index in self._calls:
            call = self._calls[index]
            if self._is_new:
                # The arguments at the block's start were empty, or are repeated by the deltas.
                call.drop_arguments()
            call.add_arguments(delta.partial_json)
            self._is_new = False

    def _is_reply(self, call: CallFragments) -> bool:
        return self.forced and call.name == REPLY_TOOL

    def _say(
        self, kind: type[Delta], text: str | None, signature: str | None = None
    ) -> Iterator[Chunk]:
        text = text if isinstance(text, str) else ""
        signed = plain_text(signature) if signature else None
        name = "text" if kind is ContentDelta else "thinking"
        self._parts.add_text(name, text, signed, new=self._is_new)
        self._is_new = False
        if text:
            yield kind(text)

    def finish(self) -> Iterator[Chunk]:
        if self._reason is None:
            raise ProviderError("The model's reply broke off before its end.")
        all_calls = [call for _, call in sorted(self._calls.items())]
        yield from (ContentDelta(call.arguments) for call in all_calls if self._is_reply(call))
        calls = [call for call in all_calls if not self._is_reply(call)]
        reason = REASONS.get(self._reason, self._reason)
        for call in calls:
            call.name = self.names.from_vendor(call.name)
            yield call.complete(reason)
        yield Finish(
            reason="stop" if reason == "tool_calls" and not calls else reason,
            eval_count=self._reply_tokens,
            prompt_eval_count=self._prompt_tokens,
            provider_data=self._parts.provider_data(FORM, self.model),
            stop_sequence=self._stop_sequence,
        )
