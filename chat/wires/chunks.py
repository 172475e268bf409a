"""The stream of the simple routes: pieces of text, or whole messages (docs/reference/http-api.md).

Both are encoders of the same events as every other wire; each object serves one stream. The
finished event waits for ``done``: only then is the session free for the next message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from mochi_server.chat import StoredMessages
from mochi_server.errors import JSONObject, RunStopped
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ReplyRetry,
    ToolCallStarted,
    ToolContinuationStart,
)
from mochi_server.protocol.fold import DECISIONS, QUESTIONS, Fold
from mochi_server.protocol.llm_response import GenericToolCall, LlmResponse, TokenUsage
from mochi_server.protocol.messages import AssistantMessage, ToolMessage

from .sse import frame

CONFIRMATIONS = (*QUESTIONS, *DECISIONS)
"""Events that are sent as on the other stream."""


class BatchMetadata(TypedDict):
    """How the answer came, and what a client may make of it."""

    batch_mode: Literal[True]
    fake_streaming_note: str


BATCH: BatchMetadata = {
    "batch_mode": True,
    "fake_streaming_note": "Client should simulate word-by-word display",
}


class ChunkEvent(TypedDict):
    """A piece of the answer's text; the last one is finished and empty."""

    content: str
    session_id: str
    finished: bool
    ignored_options: NotRequired[Sequence[str]]


class MessageSource(TypedDict):
    """Where a message comes from: the same in every message of a stream."""

    session_id: str
    model: str
    metadata: BatchMetadata


class ModelReply(TypedDict):
    """A reply of the model, in the generic format."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: tuple[GenericToolCall, ...] | None
    finish_reason: str | None
    usage: TokenUsage | None


class CallingMessage(ModelReply, MessageSource):
    """A reply that calls tools, or what was said before an error."""

    status: str | None
    response: str
    finished: Literal[False]
    interrupted: NotRequired[bool]


class ResultMessage(MessageSource):
    """The result of a call."""

    role: Literal["tool"]
    content: str
    tool_call_id: str | None
    name: str | None
    response: str
    finished: Literal[False]


class FinalMessage(ModelReply, MessageSource):
    """The last message."""

    response: str
    finished: Literal[True]
    tool_rounds_exhausted: NotRequired[bool]
    ignored_options: NotRequired[Sequence[str]]


def failure(event: ErrorEvent, session_id: str) -> JSONObject:
    """Return the data of an ``error``, which may be the first event that names a new session."""
    return {**event.payload(), "details": {**event.details, "session_id": session_id}}


def stopped(fold: Fold) -> ErrorEvent:
    """Return the last event of a stream whose run a person has stopped."""
    return ErrorEvent.of(RunStopped(run_id=fold.run_id))


class Chunks:
    """The text as it comes; the last chunk is finished, after an ``error`` there is none.

    After a ``reply_retry`` the text begins anew.
    """

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._fold = Fold()

    def __call__(self, batch: list[tuple[int, Event]]) -> bytes:
        """Encode a batch; what is no text is left out."""
        return b"".join([self._encode(number, event) for number, event in batch])

    def _encode(self, number: int, event: Event) -> bytes:
        self._fold.add(event)
        match event:
            case ContentDelta():
                return self._chunk(number, event.content, finished=False)
            case ReplyRetry():
                return frame(number, event.type, event.payload())
            case ErrorEvent():
                return frame(number, event.type, failure(event, self._session_id))
            case Done() if self._fold.error is None:
                if self._fold.complete is not None:
                    return self._chunk(number, "", finished=True)
                return frame(number, "error", failure(stopped(self._fold), self._session_id))
            case _:
                return b""

    def _chunk(self, number: int, content: str, *, finished: bool) -> bytes:
        chunk: ChunkEvent = {
            "content": content,
            "session_id": self._session_id,
            "finished": finished,
        }
        complete = self._fold.complete
        if finished and complete is not None and complete.ignored_options:
            chunk["ignored_options"] = complete.ignored_options
        return frame(number, "chunk", chunk)


class Iterations:
    """Each message whole, in the order of the session: a reply with calls before they run.

    The messages are those that were stored; the events say when. Confirmations are passed on.
    """

    def __init__(self, session_id: str, model: str, stored_messages: StoredMessages) -> None:
        self._session_id = session_id
        self._source: MessageSource = {"session_id": session_id, "model": model, "metadata": BATCH}
        self._stored_messages = stored_messages
        self._fold = Fold()
        self._number = 0

    def __call__(self, batch: list[tuple[int, Event]]) -> bytes:
        """Encode a batch; deltas and the work of agents are left out."""
        return b"".join([part for _, event in batch for part in self._encode(event)])

    def _encode(self, event: Event) -> list[bytes]:
        parts: list[bytes] = []
        self._fold.add(event)
        match event:
            case ToolCallStarted() | ConfirmationRequired():
                parts = self._take(AssistantMessage)
            case ToolContinuationStart():
                parts = self._take(ToolMessage)
            case ErrorEvent():
                parts = self._failure(event)
            case Done() if self._fold.error is None:
                if (complete := self._fold.complete) is not None:
                    parts = [self._frame("message", self._final_message(complete))]
                else:
                    parts = self._failure(stopped(self._fold))
            case _:
                pass
        if isinstance(event, CONFIRMATIONS):
            parts.append(self._frame(event.type, event.payload()))
        return parts

    def _failure(self, event: ErrorEvent) -> list[bytes]:
        parts = self._take(AssistantMessage, ToolMessage)
        return [*parts, self._frame(event.type, failure(event, self._session_id))]

    def _take(self, *roles: type[AssistantMessage] | type[ToolMessage]) -> list[bytes]:
        """Encode the stored messages of these roles, up to the first of another role."""
        parts = []
        while self._stored_messages and isinstance(self._stored_messages[0], roles):
            message = self._stored_messages.popleft()
            data: CallingMessage | ResultMessage = (
                self._result(message)
                if isinstance(message, ToolMessage)
                else self._calling_message(message)
            )
            parts.append(self._frame("message", data))
        return parts

    def _result(self, message: ToolMessage) -> ResultMessage:
        return {
            "role": "tool",
            "content": message.text,
            "tool_call_id": message.tool_call_id,
            "name": message.tool_name,
            "response": message.text,
            **self._source,
            "finished": False,
        }

    def _calling_message(self, message: AssistantMessage) -> CallingMessage:
        reply = LlmResponse.of(message)
        status = reply.get_status_text()
        data: CallingMessage = {
            **_reply(reply),
            "status": status,
            "response": status or "",
            **self._source,  # type: ignore[typeddict-item] # the key that is set below
            "finished": False,
        }
        if message.interrupted:
            data["interrupted"] = True
        return data

    def _final_message(self, event: MessageComplete) -> FinalMessage:
        self._stored_messages.clear()
        reply = LlmResponse.of(AssistantMessage.model_validate(event.message), event.finish_reason)
        data: FinalMessage = {
            **_reply(reply),
            "response": reply.content or "",
            **self._source,  # type: ignore[typeddict-item] # the key that is set below
            "finished": True,
        }
        if event.tool_rounds_exhausted:
            data["tool_rounds_exhausted"] = True
        if event.ignored_options:
            data["ignored_options"] = event.ignored_options
        return data

    def _frame(self, event: str, data: Mapping[str, Any]) -> bytes:
        self._number += 1
        return frame(self._number, event, data)


def _reply(reply: LlmResponse) -> ModelReply:
    calls: Any = reply.to_chat_message_dict()
    return {
        "role": "assistant",
        "content": reply.content,
        "tool_calls": calls,
        "finish_reason": reply.finish_reason,
        "usage": reply.usage,
    }
