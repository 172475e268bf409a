"""One reply of a model, folded from its chunks; also a partial one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue
from typing_extensions import assert_never

from ..core.ids import new_call_id
from ..errors import InternalError, JSONObject
from ..protocol.completions import Chunk, Finish
from ..protocol.events import (
    AgentComplete,
    AgentDelta,
    AgentStart,
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    Event,
    MessageComplete,
    ThinkingDelta,
    ToolCallStarted,
    ToolResultReady,
)
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


class WholeReply:
    """Folds the events of a turn into one JSON answer."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._calls: list[JSONObject] = []
        self._open: dict[str, JSONObject] = {}
        """By id; a model may use an id again in its next reply."""
        self._runs: dict[str, list[JsonValue]] = {}
        """What agents did, by the call that started them; agents within are in the outermost."""
        self._final: MessageComplete | None = None

    def add(self, event: Event) -> None:
        """The next event of the turn."""
        match event:
            case AgentStart():
                self._start_run(event)
                self._add_to_run(event, event.agent_call_id)
            case AgentDelta() | AgentComplete():
                self._add_to_run(event, event.agent_call_id)
            case (
                ToolCallStarted()
                | ConfirmationRequired()
                | ConfirmationDecided()
                | ToolResultReady()
            ) if event.agent_call_id is not None:
                self._add_to_run(event, event.agent_call_id)
            case ToolCallStarted():
                self._begin(event.tool_call_id, event.payload())
            case ConfirmationRequired():
                self._begin(event.tool_call_id, announced(event))
            case ConfirmationDecided():
                self._open[event.tool_call_id].update(settled(event))
            case ToolResultReady():
                self._open.pop(event.tool_call_id).update(event.payload())
            case MessageComplete():
                self._final = event
            case _:
                pass

    def _begin(self, call_id: str, entry: JSONObject) -> None:
        self._open[call_id] = entry
        self._calls.append(entry)

    def _start_run(self, event: AgentStart) -> None:
        if event.parent_call_id is not None:
            self._runs[event.agent_call_id] = self._runs[event.parent_call_id]
            return
        run: list[JsonValue] = []
        self._runs[event.agent_call_id] = run
        self._open[event.agent_call_id]["agent_events"] = run

    def _add_to_run(self, event: Event, call_id: str) -> None:
        """One more event of an agent; neighbouring pieces of its text as one."""
        run = self._runs[call_id]
        last = run[-1] if run else None
        data = event.payload()
        if isinstance(event, AgentDelta) and isinstance(last, dict) and last["event"] == event.type:
            before = last["data"]
            if isinstance(before, dict) and before["agent_call_id"] == call_id:
                before["content"] = f"{before['content']}{event.content}"
                return
        run.append({"event": event.type, "data": data})

    def as_json(self) -> JSONObject:
        """The answer.

        Raises:
            InternalError: the turn ended without a final message and without an error.
        """
        if self._final is None:
            raise InternalError
        answer: JSONObject = {
            "session_id": self._session_id,
            "message": self._final.message,
            "tool_calls_executed": list(self._calls),
            "context_window": self._final.context_window,
            "finish_reason": self._final.finish_reason,
        }
        if self._final.tool_rounds_exhausted:
            answer["tool_rounds_exhausted"] = True
        return answer


def announced(event: ConfirmationRequired) -> JSONObject:
    """A call that a person was asked about, as an entry of ``tool_calls_executed``."""
    return {
        "tool_name": event.tool_name,
        "arguments": event.arguments,
        "call_index": event.call_index,
        "tool_call_id": event.tool_call_id,
        "confirmation_id": event.confirmation_id,
    }


def settled(event: ConfirmationDecided) -> JSONObject:
    """What the decision adds to that entry: what ran, and whether a person has changed it."""
    return {"arguments": event.arguments, "edited": event.edited, "approved": event.approved}
