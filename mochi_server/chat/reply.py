"""One reply of a model, folded from its chunks; also a partial one."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from typing_extensions import assert_never

from ..completions import Chunk, Finish
from ..events import ContentDelta, Event, ThinkingDelta
from ..messages import AssistantMessage, ToolCall


class Reply:
    """Collects what a model says until it ends, or is cut off.

    Text goes into growing buffers: a list of tokens would cost a hundred bytes for each.
    """

    __slots__ = ("_text", "_thinking", "calls", "finish")

    def __init__(self) -> None:
        self._text = StringIO()
        self._thinking = StringIO()
        self.calls: list[ToolCall] = []
        self.finish: Finish | None = None

    def add(self, chunks: Sequence[Chunk]) -> list[Event]:
        """The next chunks; those that are events as well are handed back."""
        deltas: list[Event] = []
        for chunk in chunks:
            match chunk:
                case ContentDelta():
                    self._text.write(chunk.content)
                    deltas.append(chunk)
                case ThinkingDelta():
                    self._thinking.write(chunk.content)
                    deltas.append(chunk)
                case ToolCall():
                    self.calls.append(chunk)
                case Finish():
                    self.finish = chunk
                case _:
                    assert_never(chunk)
        return deltas

    @property
    def is_empty(self) -> bool:
        """Whether there is neither text nor a call: nothing that a person could read."""
        return not self.calls and not self._text.getvalue().strip()

    @property
    def is_blank(self) -> bool:
        """Whether nothing came at all, thinking included."""
        return not self.calls and not self._text.tell() and not self._thinking.tell()

    def message(self, model: str, *, interrupted: bool = False) -> AssistantMessage:
        """What to store."""
        finish = self.finish
        message = AssistantMessage(
            content=self._text.getvalue(),
            model=model,
            eval_count=finish.eval_count if finish else None,
            prompt_eval_count=finish.prompt_eval_count if finish else None,
        )
        if thinking := self._thinking.getvalue():
            message.thinking = thinking
        if self.calls:
            message.tool_calls = [call.as_stored() for call in self.calls]
        if finish is not None and finish.provider_data is not None:
            message.provider_data = finish.provider_data
        if interrupted:
            message.interrupted = True
        return message
