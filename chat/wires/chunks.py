"""Frames of the simple routes: pieces of text, or whole messages (docs/reference/http-api.md).

Both are encoders of the same events as every other wire. Each object serves one stream. What is
finished waits for ``done``: only then is the session free for the next message.
"""

from __future__ import annotations

import orjson

from mochi_server.chat import StoredMessages
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import (
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ToolCallStarted,
    ToolContinuationStart,
)
from mochi_server.protocol.llm_response import LlmResponse, tool_message
from mochi_server.protocol.messages import AssistantMessage, ToolMessage

BATCH: JSONObject = {
    "batch_mode": True,
    "fake_streaming_note": "Client should simulate word-by-word display",
}
"""``metadata`` of an answer that comes in one piece."""

PASSED_ON = (ConfirmationRequired, ConfirmationDecided)
"""As on the other stream."""


def frame(number: int, event: str, data: JSONObject) -> bytes:
    """One server-sent event."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, event.encode(), orjson.dumps(data))


def failure(event: ErrorEvent, session_id: str) -> JSONObject:
    """Data of an ``error``, which may be the first event that tells a new session's id."""
    return {**event.payload(), "details": {**event.details, "session_id": session_id}}


def whole_answer(content: str, session_id: str, model: str) -> JSONObject:
    """The answer in one piece."""
    return {
        "response": content,
        "session_id": session_id,
        "model": model,
        "metadata": dict(BATCH),
    }


class Chunks:
    """The text as it comes; the last chunk is finished, after an ``error`` there is none."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._complete = False

    def __call__(self, batch: list[tuple[int, Event]]) -> bytes:
        """The frames of a batch; nothing for what is no text."""
        return b"".join([self._encode(number, event) for number, event in batch])

    def _encode(self, number: int, event: Event) -> bytes:
        match event:
            case ContentDelta():
                return self._chunk(number, event.content, finished=False)
            case ErrorEvent():
                return frame(number, event.type, failure(event, self._session_id))
            case MessageComplete():
                self._complete = True
            case Done() if self._complete:
                return self._chunk(number, "", finished=True)
            case _:
                pass
        return b""

    def _chunk(self, number: int, content: str, *, finished: bool) -> bytes:
        data: JSONObject = {
            "content": content,
            "session_id": self._session_id,
            "finished": finished,
        }
        return frame(number, "chunk", data)


class Iterations:
    """Each message whole, in the order of the session: a reply with calls before they run.

    The messages are what was stored; the events say when. Questions to a person are passed on.
    """

    def __init__(self, session_id: str, model: str, stored_messages: StoredMessages) -> None:
        self._session_id = session_id
        self._of: JSONObject = {"session_id": session_id, "model": model, "metadata": dict(BATCH)}
        self._stored_messages = stored_messages
        self._final: JSONObject | None = None
        self._number = 0

    def __call__(self, batch: list[tuple[int, Event]]) -> bytes:
        """The frames of a batch; nothing for deltas and the work of agents."""
        return b"".join([part for _, event in batch for part in self._encode(event)])

    def _encode(self, event: Event) -> list[bytes]:
        parts: list[bytes] = []
        match event:
            case ToolCallStarted() | ConfirmationRequired():
                parts = self._take(AssistantMessage)
            case ToolContinuationStart():
                parts = self._take(ToolMessage)
            case MessageComplete():
                self._final = self._answer(event)
            case Done() if self._final is not None:
                parts = [self._frame("message", self._final)]
            case ErrorEvent():
                parts = self._take(AssistantMessage, ToolMessage)
                parts.append(self._frame(event.type, failure(event, self._session_id)))
            case _:
                pass
        if isinstance(event, PASSED_ON):
            parts.append(self._frame(event.type, event.payload()))
        return parts

    def _take(self, *roles: type[AssistantMessage] | type[ToolMessage]) -> list[bytes]:
        """What was stored and is of these roles, up to the first that is not."""
        parts = []
        while self._stored_messages and isinstance(self._stored_messages[0], roles):
            parts.append(self._message(self._stored_messages.popleft()))
        return parts

    def _message(self, message: AssistantMessage | ToolMessage) -> bytes:
        if isinstance(message, ToolMessage):
            data = {**tool_message(message), "response": message.text}
        else:
            reply = LlmResponse.of(message)
            status = reply.get_status_text()
            data = {"role": "assistant", **reply.as_json(), "status": status}
            data["response"] = status or ""
            if message.interrupted:
                data["interrupted"] = True
        return self._frame("message", {**data, **self._of, "finished": False})

    def _answer(self, event: MessageComplete) -> JSONObject:
        """The last reply, both as a message and as the answer in one piece."""
        self._stored_messages.clear()
        reply = LlmResponse.of(AssistantMessage.model_validate(event.message), event.finish_reason)
        data: JSONObject = {
            "role": "assistant",
            **reply.as_json(),
            "response": reply.content or "",
            **self._of,
            "finished": True,
        }
        if event.tool_rounds_exhausted:
            data["tool_rounds_exhausted"] = True
        return data

    def _frame(self, event: str, data: JSONObject) -> bytes:
        self._number += 1
        return frame(self._number, event, data)
