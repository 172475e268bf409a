"""The chunks of a streamed reply of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...errors import ProviderError
from ..base import Chunk, ContentDelta, Finish, ThinkingDelta
from ..common.history import ToolNames
from ..common.reply_parts import ReplyParts
from ..common.tool_calls import CallFragments
from ..common.values import plain_text, token_count
from .requests import FORM, REPLY_TOOL

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent

REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


@dataclass(slots=True)
class AnthropicReply:
    """One reply, put together from the events of its stream."""

    model: str
    names: ToolNames
    forced: bool = False
    """Whether the call of ``REPLY_TOOL`` is the text."""
    _calls: dict[int, CallFragments] = field(default_factory=dict)
    _parts: ReplyParts = field(default_factory=ReplyParts)
    _is_new: bool = True
    """Whether the block has just begun."""
    _reason: str | None = None
    _prompt_tokens: int | None = None
    _reply_tokens: int | None = None

    def add(self, event: RawMessageStreamEvent) -> Iterator[Chunk]:
        """Yield what an event says at once; calls wait until they are whole."""
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
        counts = [token_count(getattr(usage, name, None)) for name in names]
        if counts[0] or (self._prompt_tokens is None and any(counts)):
            self._prompt_tokens = sum(count or 0 for count in counts)
        self._reply_tokens = (
            token_count(getattr(usage, "output_tokens", None)) or self._reply_tokens
        )

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
            if self._is_new:  # what came with the beginning of the block were none, or these
                call.drop_arguments()
            call.add_arguments(delta.partial_json)
            self._is_new = False

    def _is_reply(self, call: CallFragments) -> bool:
        return self.forced and call.name == REPLY_TOOL

    def _say(self, text: str | None) -> Iterator[Chunk]:
        text = text if isinstance(text, str) else ""
        self._parts.add_text("text", text, new=self._is_new)
        self._is_new = False
        if text:
            yield ContentDelta(text)

    def _think(self, text: str | None, signature: str | None = None) -> Iterator[Chunk]:
        text = text if isinstance(text, str) else ""
        signed = plain_text(signature) if signature else None
        self._parts.add_text("thinking", text, signed, new=self._is_new)
        self._is_new = False
        if text:
            yield ThinkingDelta(text)

    def finish(self) -> Iterator[Chunk]:
        """Yield the calls and the end of the reply.

        Raises:
            ProviderError: the stream ended without saying that it is finished.
        """
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
        )
