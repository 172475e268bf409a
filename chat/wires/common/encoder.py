"""A stream that says what the model says, piece by piece, and ends with what the run was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from mochi_server.chat.control import StartedRun
from mochi_server.chat.runs.log import Numbered
from mochi_server.errors import MochiError, ResponseFormatNotMet, RunStopped
from mochi_server.protocol.events import (
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    MessageComplete,
    ReplyRetry,
    RunStart,
    ThinkingDelta,
)
from mochi_server.protocol.fold import Fold

from ..sse import PING


class WireEncoder(ABC):
    """Encodes a run for one stream; what has no place on the wire is left out.

    After its end nothing follows.
    """

    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    ping: ClassVar[bytes] = PING

    def __init__(self, started: StartedRun) -> None:
        self.started = started
        self.fold = Fold()
        self.is_over = False

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode a batch of events."""
        return b"".join([self.encode(number, event) for number, event in batch if not self.is_over])

    @abstractmethod
    def encode(self, number: int, event: Event) -> bytes:
        """Encode an event, and add it to the fold."""

    def encode_end(self, event: ErrorEvent | Done | ReplyRetry) -> bytes:
        """Encode the end of the stream: what it has said of a void reply cannot be unsaid."""
        self.is_over = True
        if isinstance(event, ReplyRetry):
            event = not_met(event)
        if isinstance(event, ErrorEvent):
            return self.fail(event)
        return self.stop() if self.fold.complete is None else self.end(self.fold.complete)

    def cut(self, failure: MochiError) -> bytes:
        """End the stream of a run that waits on: its silence would look like the answer's end."""
        return b"" if self.is_over else self.encode_end(ErrorEvent.of(failure))

    @abstractmethod
    def begin(self) -> bytes:
        """Begin the stream."""

    @abstractmethod
    def end(self, complete: MessageComplete) -> bytes:
        """End the stream."""

    @abstractmethod
    def fail(self, event: ErrorEvent) -> bytes:
        """End the stream of a run that has failed."""

    def stop(self) -> bytes:
        """End the stream of a run that a person has stopped."""
        return self.fail(ErrorEvent.of(RunStopped(run_id=self.started.run_id)))


class TextEncoder(WireEncoder):
    """Encodes texts and thoughts of the model, and at the end the calls of the client's functions.

    What tools of the server do has no place.
    """

    def encode(self, number: int, event: Event) -> bytes:  # noqa: ARG002 - as the others
        """Encode an event, and add it to the fold."""
        before = self.fold.part
        self.fold.add(event)
        match event:  # the commonest first: this runs for each token
            case ContentDelta():
                part = self.fold.part
                if part is before or part is None:
                    return self.text(event.content)
                return self.text(part.separator + event.content)
            case ThinkingDelta():
                return self.thought(event.content)
            case RunStart():
                return self.begin()
            case ErrorEvent() | Done() | ReplyRetry():
                return self.encode_end(event)
            case _:
                return b""

    def begin(self) -> bytes:
        return b""

    @abstractmethod
    def text(self, text: str) -> bytes:
        """Encode a piece of the answer's text."""

    @abstractmethod
    def thought(self, text: str) -> bytes:
        """Encode a piece of the model's thinking."""


def not_met(event: ReplyRetry) -> ErrorEvent:
    """Return the error of a stream whose answer does not have its form, and cannot be unsaid."""
    message = "The answer does not have the form that it must have; ask again, or without a stream."
    return ErrorEvent(
        code=ResponseFormatNotMet.code, message=message, details={"reason": event.problem}
    )
