"""A run as steps: each is a reply of the model with the calls that it makes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import orjson

from mochi_server.chat.control import StartedRun
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ReplyRetry,
    ThinkingDelta,
    ToolCallStarted,
    ToolContinuationStart,
    ToolInputRequired,
    ToolResultReady,
)
from mochi_server.protocol.fold import PartKind

from .approvals import ApprovalId
from .encoder import WireEncoder


class StepEncoder(WireEncoder):
    """Encodes a run for one stream; wires say what each part of it looks like.

    A stream that goes on after a decision gets the run from its first event, and sends what came
    after the question.
    """

    def __init__(self, started: StartedRun, answered: ApprovalId | None = None) -> None:
        """Begin a stream.

        Args:
            started: The run.
            answered: The question that the request answers, if it goes on with a run.
        """
        super().__init__(started)
        self.after = 0 if answered is None else answered.number
        self._has_begun = False
        self.before_delta = b""
        """What stands before the text of a delta, as ``frame_before_delta`` makes it."""

    @property
    def extras(self) -> JSONObject:
        """The field ``mochi`` of the beginning: what the vendor has no field for."""
        extras: JSONObject = {"run_id": self.started.run_id, "model": self.started.model}
        if self.started.is_kept:
            extras["session_id"] = self.started.session_id
        return extras

    @property
    def name(self) -> str:
        """What the ids of this run's messages have in common."""
        return self.started.run_id.removeprefix("run_")

    def encode(self, number: int, event: Event) -> bytes:
        """Encode an event, and add it to the fold."""
        if number <= self.after:
            self._encode(event, number)
            return b""
        if self._has_begun:
            return self._encode(event, number)
        self._has_begun = True
        return self.begin() + self._encode(event, number)

    def _encode(self, event: Event, number: int) -> bytes:
        before = self.fold.part
        self.fold.add(event)
        part = self.fold.part
        changed = b""
        if part is not before:
            if before is not None:
                changed = self.close(before.kind)
            if part is not None:
                changed += self.open(part.kind)
        match event:  # the commonest first: this runs for each token
            case ContentDelta() | ThinkingDelta():
                return changed + self.delta(event.content)
            case MessageComplete():
                return changed + b"".join([self._client_call(c) for c in event.client_calls])
            case ErrorEvent() | Done() | ReplyRetry():
                return changed + self.encode_end(event)
            case _:
                return changed + self._encode_call(event, number)

    def _encode_call(self, event: Event, number: int) -> bytes:
        """Encode an event of the server's tools; what agents call has no place on these wires."""
        match event:
            case ToolContinuationStart():
                return self.end_step(self.fold.reply - 1) + self.begin_step()
            case ToolCallStarted() if event.agent_call_id is None:
                return self._call(event)
            case ToolResultReady() if event.agent_call_id is None:
                return self.result(event)
            case ConfirmationRequired() | ToolInputRequired():
                return self._ask(event, number)
            case _:
                return b""

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
        if isinstance(event, ConfirmationRequired) and event.agent_call_id is None:
            question = self._call(event) + question
        if number > self.after:
            self.is_over = True
            self.started.reader.leave(abandon=False)
        return question

    @abstractmethod
    def begin_step(self) -> bytes:
        """Begin a reply of the model."""

    @abstractmethod
    def end_step(self, number: int) -> bytes:
        """End a reply of the model, with its number, and its calls."""

    @abstractmethod
    def open(self, kind: PartKind) -> bytes:
        """Begin a text or a thought."""

    def delta(self, text: str) -> bytes:
        """Go on with it."""
        return b"%b%b}\n\n" % (self.before_delta, orjson.dumps(text))

    @abstractmethod
    def close(self, kind: PartKind) -> bytes:
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


def frame(kind: str, **data: Any) -> bytes:  # noqa: ANN401 - JSON
    return b"data: %b\n\n" % orjson.dumps({"type": kind, **data})


def frame_before_delta(kind: str, **data: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a frame up to its delta."""
    return b'data: %b,"delta":' % orjson.dumps({"type": kind, **data})[:-1]
