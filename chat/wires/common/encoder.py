"""A stream that says what the model says, piece by piece, and ends with what the run was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from mochi_server.chat.runs.control import StartedRun
from mochi_server.chat.runs.log import Numbered
from mochi_server.errors import RunStopped
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

from ..sse import PING
from .answers import Separator, not_met


class StreamEncoder(ABC):
    """Encodes a run for one stream; what has no place on the wire is left out.

    After an error nothing follows.
    """

    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    ping: ClassVar[bytes] = PING

    def __init__(self, started: StartedRun, session_id: str | None) -> None:
        self._started = started
        self._session_id = session_id
        self._separator = Separator()
        self._complete: MessageComplete | None = None
        self._failed = False

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode a batch of events."""
        return b"".join([self._encode(event) for _, event in batch if not self._failed])

    def _encode(self, event: Event) -> bytes:
        match event:  # the commonest first: this runs for each token
            case ContentDelta():
                return self._text(self._separator.before(event) + event.content)
            case ThinkingDelta():
                return self._thought(event.content)
            case RunStart():
                return self._begin()
            case MessageComplete():
                self._complete = event
            case ErrorEvent() | ReplyRetry():
                self._failed = True
                error = not_met(event) if isinstance(event, ReplyRetry) else event
                return self._error(error.message, error.code)
            case Done():
                return self._done()
            case _:
                self._separator.note(event)
        return b""

    def _done(self) -> bytes:
        if self._complete is not None:
            return self._end(self._complete)
        stopped = RunStopped(run_id=self._started.run_id)
        return self._error(stopped.message, stopped.code)

    def _begin(self) -> bytes:
        """Encode the begin of the answer."""
        return b""

    @abstractmethod
    def _text(self, text: str) -> bytes:
        """Encode a piece of the answer's text."""

    @abstractmethod
    def _thought(self, text: str) -> bytes:
        """Encode a piece of the model's thinking."""

    @abstractmethod
    def _error(self, message: str, code: str) -> bytes:
        """Encode an error."""

    @abstractmethod
    def _end(self, complete: MessageComplete) -> bytes:
        """Encode the end of the answer, and the calls of the client's functions."""
