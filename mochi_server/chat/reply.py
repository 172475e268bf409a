"""Collects what comes in pieces: one reply of a model, and the events of a turn as one answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue
from typing_extensions import assert_never

from ..core.ids import new_call_id
from ..errors import JSONObject
from ..protocol.completions import Chunk, Finish
from ..protocol.events import (
    AgentComplete,
    AgentDelta,
    AgentStart,
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    Event,
    ThinkingDelta,
    ToolCallStarted,
    ToolResultReady,
)
from ..protocol.fold import Fold, FoldedAgent, FoldedCall
from ..protocol.messages import AssistantMessage, ToolCall
from ..providers.text_thinking import split_unopened
from ..sessions.codec import encode

_ESCAPED: Final = re.compile(rb'["\\\x00-\x1f\xed]').search
"""Finds what JSON escapes, and what may be half a surrogate pair."""


class Reply:
    """A model's reply, as far as it has come."""

    __slots__ = ("_by_id", "_text", "_thinking", "calls", "finish", "size")

    def __init__(self) -> None:
        self._text = bytearray()  # UTF-8: a list of texts would keep an object for each token
        self._thinking = bytearray()
        self.calls: list[ToolCall] = []
        self._by_id: dict[str, ToolCall] = {}
        self.finish: Finish | None = None
        self.size = 0
        """Bytes of texts and calls, as a session's file has them."""

    def add(self, chunks: Sequence[Chunk]) -> list[Event]:
        """Add chunks and return those that are events as well."""
        deltas: list[Event] = []
        for chunk in chunks:
            match chunk:  # the commonest first: this runs for each token
                case ContentDelta():
                    text = chunk.content.encode("utf-8", "surrogatepass")
                    self._text += text
                    self.size += _json_size(text, chunk.content)
                    deltas.append(chunk)
                case ThinkingDelta():
                    text = chunk.content.encode("utf-8", "surrogatepass")
                    self._thinking += text
                    self.size += _json_size(text, chunk.content)
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
        """Add a call, unless it is a repeated one; give another call of the same id its own."""
        if (other := self._by_id.get(call.id)) is not None:
            if call == other:
                return
            call = call.model_copy(update={"id": new_call_id()})
        self.size += len(encode(call.as_stored()))
        self._by_id[call.id] = call
        self.calls.append(call)

    def separate_thinking(self) -> None:
        """Take thinking out of a whole text whose template has opened it, unseen."""
        if self._thinking or b"</think" not in self._text:
            return
        if (parts := split_unopened(self.text)) is not None:
            thinking, text = (part.encode("utf-8", "surrogatepass") for part in parts)
            self._thinking, self._text = bytearray(thinking), bytearray(text)

    @property
    def text(self) -> str:
        return _decoded(self._text)

    @property
    def has_answer(self) -> bool:
        """Whether there is a call, or text that a person can read."""
        return bool(self.calls) or bool(self.text.strip())

    @property
    def is_empty(self) -> bool:
        """Whether nothing came at all, thinking included."""
        return not (self.calls or self._text or self._thinking)

    def message(self, model: str, *, interrupted: bool = False) -> AssistantMessage:
        finish = self.finish
        message = AssistantMessage(
            content=self.text,
            model=model,
            eval_count=finish.eval_count if finish else None,
            prompt_eval_count=finish.prompt_eval_count if finish else None,
        )
        if thinking := _decoded(self._thinking):
            message.thinking = thinking
        if self.calls:
            message.tool_calls = [call.as_stored() for call in self.calls]
        if finish is not None and finish.provider_data is not None:
            message.provider_data = finish.provider_data
        if interrupted:
            message.interrupted = True
        return message


def _decoded(text: bytearray) -> str:
    return text.decode("utf-8", "surrogatepass")


_OF_CALL: Final = (
    "tool_name",
    "arguments",
    "call_index",
    "tool_call_id",
    "confirmation_id",
    "recovered",
)
"""What an answer says of the begin of a call."""


class WholeReply:
    """The events of a turn as one JSON answer."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._fold = Fold()
        self._agent_events: dict[FoldedAgent, list[JsonValue]] = {}
        """Of the agents that the model has called, and of those within them."""

    def add(self, event: Event) -> None:
        self._fold.add(event)
        match event:
            case AgentStart() | AgentDelta() | AgentComplete():
                self._add_agent_event(event, event.agent_call_id)
            case (
                ToolCallStarted()
                | ConfirmationRequired()
                | ConfirmationDecided()
                | ToolResultReady()
            ) if event.agent_call_id is not None:
                self._add_agent_event(event, event.agent_call_id)
            case _:
                pass

    def _add_agent_event(self, event: Event, call_id: str) -> None:
        """Add an event of an agent; neighbouring pieces of its text become one."""
        events = self._agent_events.setdefault(self._fold.agents[call_id].outermost, [])
        last = events[-1] if events else None
        data = event.payload()
        if isinstance(event, AgentDelta) and isinstance(last, dict) and last["event"] == event.type:
            before = last["data"]
            if isinstance(before, dict) and before["agent_call_id"] == call_id:
                before["content"] = f"{before['content']}{event.content}"
                return
        events.append({"event": event.type, "data": data})

    def as_json(self) -> JSONObject:
        """Return the answer.

        Raises:
            RunStopped: a person has stopped the run.
        """
        complete = self._fold.answer()
        answer: JSONObject = {
            "session_id": self._session_id,
            "message": complete.message,
            "tool_calls_executed": [
                self._entry_of(call)
                for call in self._fold.calls
                if call.begin.agent_call_id is None
            ],
            "context_window": complete.context_window,
            "finish_reason": complete.finish_reason,
        }
        if complete.tool_rounds_exhausted:
            answer["tool_rounds_exhausted"] = True
        if complete.ignored_options:
            answer["ignored_options"] = list(complete.ignored_options)
        return answer

    def _entry_of(self, call: FoldedCall) -> JSONObject:
        begin = call.begin.payload()
        entry: JSONObject = {name: begin[name] for name in _OF_CALL if name in begin}
        if (decision := call.decision) is not None:
            entry["arguments"] = decision.arguments
            entry["edited"], entry["approved"] = decision.edited, decision.approved
        if call.agent is not None:
            entry["agent_events"] = self._agent_events[call.agent]
        return entry if call.result is None else entry | call.result.payload()


def _json_size(encoded: bytes, text: str) -> int:
    """Return the bytes of a text in a session's file, which escapes some characters."""
    return len(encode(text)) - 2 if _ESCAPED(encoded) else len(encoded)
