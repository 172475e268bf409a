"""One reply of a model, folded from its chunks; also a partial one."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import assert_never

from ..core.ids import new_call_id
from ..protocol.completions import Chunk, Finish
from ..protocol.events import ContentDelta, Event, ThinkingDelta
from ..protocol.messages import AssistantMessage, ToolCall
from ..sessions.codec import encode

BLOCK = 64
"""Pieces that are joined at a time."""


class Text:
    """A text that grows by tokens, without keeping an object for each."""

    __slots__ = ("_blocks", "_pieces")

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Append."""
        self._pieces.append(piece)
        if len(self._pieces) == BLOCK:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()

    def __str__(self) -> str:
        return "".join([*self._blocks, *self._pieces])

    def __bool__(self) -> bool:
        return bool(self._blocks or self._pieces)


class Reply:
    """Collects what a model says until it ends, or is cut off."""

    __slots__ = ("_by_id", "_text", "_thinking", "calls", "finish", "size")

    def __init__(self) -> None:
        self._text = Text()
        self._thinking = Text()
        self.calls: list[ToolCall] = []
        self._by_id: dict[str, ToolCall] = {}
        self.finish: Finish | None = None
        self.size = 0
        """Bytes of texts and calls, as a session's file has them."""

    def add(self, chunks: Sequence[Chunk]) -> list[Event]:
        """The next chunks; those that are events as well are handed back."""
        deltas: list[Event] = []
        for chunk in chunks:
            match chunk:  # the commonest first: this runs for each token
                case ContentDelta():
                    self._text.add(chunk.content)
                    self.size += len(encode(chunk.content)) - 2
                    deltas.append(chunk)
                case ThinkingDelta():
                    self._thinking.add(chunk.content)
                    self.size += len(encode(chunk.content)) - 2
                    deltas.append(chunk)
                case ToolCall():
                    self._add_call(chunk)
                case Finish():
                    self.finish = chunk
                    if chunk.provider_data is not None:
                        self.size += len(encode(chunk.provider_data))
                case _:
                    assert_never(chunk)
        return deltas

    def _add_call(self, call: ToolCall) -> None:
        """One call once: a repeated one is dropped, another one of the same id gets its own."""
        if (other := self._by_id.get(call.id)) is not None:
            if call == other:
                return
            call = call.model_copy(update={"id": new_call_id()})
        self.size += len(encode(call.as_stored()))
        self._by_id[call.id] = call
        self.calls.append(call)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither text nor a call: nothing that a person could read."""
        return not self.calls and not str(self._text).strip()

    @property
    def is_blank(self) -> bool:
        """Whether nothing came at all, thinking included."""
        return not self.calls and not self._text and not self._thinking

    def message(self, model: str, *, interrupted: bool = False) -> AssistantMessage:
        """What to store."""
        finish = self.finish
        message = AssistantMessage(
            content=str(self._text),
            model=model,
            eval_count=finish.eval_count if finish else None,
            prompt_eval_count=finish.prompt_eval_count if finish else None,
        )
        if thinking := str(self._thinking):
            message.thinking = thinking
        if self.calls:
            message.tool_calls = [call.as_stored() for call in self.calls]
        if finish is not None and finish.provider_data is not None:
            message.provider_data = finish.provider_data
        if interrupted:
            message.interrupted = True
        return message
