"""A run as steps: each is a reply of the model with the calls that it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from mochi_server.chat.runs.control import StartedRun
from mochi_server.chat.runs.log import Numbered
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ThinkingDelta,
    ToolCallStarted,
    ToolContinuationStart,
    ToolInputRequired,
    ToolResultReady,
)

from ..sse import PING
from .approvals import ApprovalId

Kind = Literal["text", "thinking"]


class StepEncoder(ABC):
    """Encodes a run for one stream; wires say what each part of it looks like.

    A stream that goes on after a decision gets the run from its first event, and sends what came
    after the question.
    """

    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    ping: ClassVar[bytes] = PING

    def __init__(
        self, started: StartedRun, session_id: str | None, answered: ApprovalId | None = None
    ) -> None:
        """Begin a stream.

        Args:
            started: The run.
            session_id: The session that the request names; None: it is not kept.
            answered: The question that the request answers, if it goes on with a run.
        """
        self.started = started
        self.session_id = session_id
        self.after = 0 if answered is None else answered.number
        self.step = 0
        """Number of the reply, from 0."""
        self.kind: Kind | None = None
        """What the model is at."""
        self.complete: MessageComplete | None = None
        self._has_begun = self._is_over = False

    @property
    def name(self) -> str:
        """What the ids of this run's messages have in common."""
        return self.started.run_id.removeprefix("run_")

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode a batch; what has no place on this wire is left out."""
        return b"".join([self._one(number, event) for number, event in batch])

    def _one(self, number: int, event: Event) -> bytes:
        if self._is_over:
            return b""
        if number <= self.after:
            self._encode(event, number)
            return b""
        if self._has_begun:
            return self._encode(event, number)
        self._has_begun = True
        return self.begin() + self._encode(event, number)

    def _encode(self, event: Event, number: int) -> bytes:
        match event:  # the commonest first: this runs for each token
            case ContentDelta():
                return self._open("text") + self.delta(event.content)
            case ThinkingDelta():
                return self._open("thinking") + self.delta(event.content)
            case MessageComplete():
                self.complete = event
                return self._close() + b"".join([self._client_call(c) for c in event.client_calls])
            case ErrorEvent() | Done():
                self._is_over = True
                return self._close() + self._end(event)
            case _:
                return self._encode_call(event, number)

    def _encode_call(self, event: Event, number: int) -> bytes:
        """Encode an event of the server's tools; what agents call has no place on these wires."""
        match event:
            case ToolContinuationStart():
                ended = self._close() + self.end_step()
                self.step += 1
                return ended + self.begin_step()
            case ToolCallStarted() if event.agent_call_id is None:
                return self._close() + self._call(event)
            case ToolResultReady() if event.agent_call_id is None:
                return self._close() + self.result(event)
            case ConfirmationRequired() | ToolInputRequired():
                return self._ask(event, number)
            case _:
                return b""

    def _open(self, kind: Kind) -> bytes:
        if self.kind == kind:
            return b""
        closed = self._close()
        self.kind = kind
        return closed + self.open(kind)

    def _close(self) -> bytes:
        if self.kind is None:
            return b""
        closed = self.close(self.kind)
        self.kind = None
        return closed

    def _call(self, event: ToolCallStarted | ConfirmationRequired) -> bytes:
        return self.call(event.tool_call_id, event.tool_name, event.arguments, is_clients=False)

    def _client_call(self, call: JSONObject) -> bytes:
        arguments = call["arguments"]
        assert isinstance(arguments, dict)  # noqa: S101
        return self.call(str(call["id"]), str(call["name"]), arguments, is_clients=True)

    def _ask(self, event: ConfirmationRequired | ToolInputRequired, number: int) -> bytes:
        approval = ApprovalId(event.confirmation_id, self.started.run_id, number)
        question = self.ask(event, str(approval))
        if question is None:
            return b""
        parts = self._close()
        if isinstance(event, ConfirmationRequired) and event.agent_call_id is None:
            parts += self._call(event)
        if number > self.after:
            self._is_over = True
            self.started.reader.leave(abandon=False)
        return parts + question

    def _end(self, event: ErrorEvent | Done) -> bytes:
        if isinstance(event, ErrorEvent):
            return self.fail(event)
        return self.stop() if self.complete is None else self.end(self.complete)

    @abstractmethod
    def begin(self) -> bytes:
        """Begin the stream and its first step."""

    @abstractmethod
    def begin_step(self) -> bytes:
        """Begin a reply of the model."""

    @abstractmethod
    def end_step(self) -> bytes:
        """End a reply of the model and its calls."""

    @abstractmethod
    def open(self, kind: Kind) -> bytes:
        """Begin a text or a thought."""

    @abstractmethod
    def delta(self, text: str) -> bytes:
        """Go on with it."""

    @abstractmethod
    def close(self, kind: Kind) -> bytes:
        """End it."""

    @abstractmethod
    def call(self, call_id: str, name: str, arguments: JSONObject, *, is_clients: bool) -> bytes:
        """Call a tool of the server, or a function of the client."""

    @abstractmethod
    def result(self, event: ToolResultReady) -> bytes:
        """Give the result of a tool of the server."""

    @abstractmethod
    def ask(
        self, event: ConfirmationRequired | ToolInputRequired, approval_id: str
    ) -> bytes | None:
        """Ask for a decision and end the stream; None: this wire cannot ask it."""

    @abstractmethod
    def end(self, complete: MessageComplete) -> bytes:
        """End the stream."""

    @abstractmethod
    def fail(self, event: ErrorEvent) -> bytes:
        """End the stream of a run that has failed."""

    @abstractmethod
    def stop(self) -> bytes:
        """End the stream of a run that a person has stopped."""
