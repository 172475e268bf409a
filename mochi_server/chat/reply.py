"""Collects what comes in pieces: one reply of a model, and the events of a turn as one answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

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

    @property
    def text(self) -> str:
        """The text so far."""
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


class WholeReply:
    """The events of a turn as one JSON answer."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._calls: list[JSONObject] = []
        self._open_calls: dict[str, JSONObject] = {}
        """Calls without a result, by id; a model may use an id again in its next reply."""
        self._agent_events: dict[str, list[JsonValue]] = {}
        """Lists of events by the id of the call that started the agent; agents within an agent
        share the list of the outermost one."""
        self._final: MessageComplete | None = None

    def add(self, event: Event) -> None:
        match event:
            case AgentStart():
                self._start_agent(event)
                self._add_agent_event(event, event.agent_call_id)
            case AgentDelta() | AgentComplete():
                self._add_agent_event(event, event.agent_call_id)
            case (
                ToolCallStarted()
                | ConfirmationRequired()
                | ConfirmationDecided()
                | ToolResultReady()
            ) if event.agent_call_id is not None:
                self._add_agent_event(event, event.agent_call_id)
            case ToolCallStarted():
                self._start_call(event.tool_call_id, event.payload())
            case ConfirmationRequired():
                entry: JSONObject = {
                    "tool_name": event.tool_name,
                    "arguments": event.arguments,
                    "call_index": event.call_index,
                    "tool_call_id": event.tool_call_id,
                    "confirmation_id": event.confirmation_id,
                }
                self._start_call(event.tool_call_id, entry)
            case ConfirmationDecided():
                self._open_calls[event.tool_call_id].update(
                    arguments=event.arguments, edited=event.edited, approved=event.approved
                )
            case ToolResultReady():
                self._open_calls.pop(event.tool_call_id).update(event.payload())
            case MessageComplete():
                self._final = event
            case _:
                pass

    def _start_call(self, call_id: str, entry: JSONObject) -> None:
        self._open_calls[call_id] = entry
        self._calls.append(entry)

    def _start_agent(self, event: AgentStart) -> None:
        if event.parent_call_id is not None:
            self._agent_events[event.agent_call_id] = self._agent_events[event.parent_call_id]
            return
        events: list[JsonValue] = []
        self._agent_events[event.agent_call_id] = events
        self._open_calls[event.agent_call_id]["agent_events"] = events

    def _add_agent_event(self, event: Event, call_id: str) -> None:
        """Add an event of an agent; neighbouring pieces of its text become one."""
        events = self._agent_events[call_id]
        last = events[-1] if events else None
        data = event.payload()
        if isinstance(event, AgentDelta) and isinstance(last, dict) and last["event"] == event.type:
            before = last["data"]
            if isinstance(before, dict) and before["agent_call_id"] == call_id:
                before["content"] = f"{before['content']}{event.content}"
                return
        events.append({"event": event.type, "data": data})

    @property
    def is_complete(self) -> bool:
        """Whether the answer is complete."""
        return self._final is not None

    def as_json(self) -> JSONObject:
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
        if self._final.ignored_options:
            answer["ignored_options"] = list(self._final.ignored_options)
        return answer


def _json_size(encoded: bytes, text: str) -> int:
    """Return the bytes of a text in a session's file, which escapes some characters."""
    return len(encode(text)) - 2 if _ESCAPED(encoded) else len(encoded)
