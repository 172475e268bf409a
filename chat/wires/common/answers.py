"""Answers of the wires: the run of a request in the vendor's form, in one piece or as a stream."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Literal, Protocol

from mochi_project.http.errors import error_response
from mochi_server.chat.recognition import BETWEEN_REPLIES
from mochi_server.chat.runs.control import StartedRun
from mochi_server.chat.runs.log import Numbered
from mochi_server.chat.service import events_of
from mochi_server.errors import MochiError, ResponseFormatNotMet, RunStopped
from mochi_server.protocol.events import (
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    HistoryShortened,
    MessageComplete,
    ReplyRetry,
    RunStart,
    ThinkingDelta,
    ToolContinuationStart,
)

from ...streaming import RUN_ID, EventStreamResponse, Send
from .api import SESSION

DROPPED = "X-Mochi-Dropped-Messages"
"""Header with the number of messages that were not sent to the model."""


PartKind = Literal["text", "thinking"]


@dataclass(slots=True)
class WholeAnswer:
    """A run in one piece."""

    complete: MessageComplete
    parts: list[tuple[PartKind, str]]
    """Texts and thinking in their order, also between calls of tools; neighbours are joined."""

    @property
    def text(self) -> str:
        """All that the model has said."""
        return "".join(text for kind, text in self.parts if kind == "text")

    @property
    def thinking(self) -> str:
        """All that the model has thought."""
        return "".join(text for kind, text in self.parts if kind == "thinking")

    @classmethod
    async def of(cls, started: StartedRun) -> WholeAnswer:
        """Read a run to its end.

        Raises:
            MochiError: what ended it; ``RunStopped`` if a person has stopped it.
        """
        pieces: list[tuple[PartKind, str]] = []
        separator, complete, begin = Separator(), None, 0
        async with aclosing(events_of(started.reader)) as events:
            async for event in events:
                if isinstance(event, ContentDelta):
                    pieces.append(("text", separator.before(event) + event.content))
                elif isinstance(event, ThinkingDelta):
                    pieces.append(("thinking", event.content))
                elif isinstance(event, MessageComplete):
                    complete = event
                elif isinstance(event, ReplyRetry):  # what it has said is void
                    pieces[begin:] = [each for each in pieces[begin:] if each[0] == "thinking"]
                elif isinstance(event, ToolContinuationStart):
                    begin = len(pieces)
                    separator.note(event)
        if complete is None:
            raise RunStopped(run_id=started.run_id)
        grouped = groupby((each for each in pieces if each[1]), key=itemgetter(0))
        parts = [(kind, "".join(text for _, text in group)) for kind, group in grouped]
        return cls(complete, parts)


@dataclass(slots=True)
class Separator:
    """Sets the texts of several replies apart."""

    has_text: bool = False
    is_next: bool = False

    def before(self, event: ContentDelta) -> str:
        """Return what comes before a piece of text."""
        if self.is_next and self.has_text:
            self.is_next = False
            return BETWEEN_REPLIES
        self.has_text = self.has_text or bool(event.content)
        self.is_next = False
        return ""

    def note(self, event: Event) -> None:
        """Note another event."""
        if isinstance(event, ToolContinuationStart):
            self.is_next = True


def not_met(event: ReplyRetry) -> ErrorEvent:
    """Return the error of a stream whose answer does not have its form, and cannot be unsaid."""
    message = "The answer does not have the form that it must have; ask again, or without a stream."
    return ErrorEvent(
        code=ResponseFormatNotMet.code, message=message, details={"reason": event.problem}
    )


def headers_of(started: StartedRun, session_id: str | None) -> dict[str, str]:
    """Return the headers of an answer: its run, and its session if that is kept."""
    headers = {RUN_ID: started.run_id}
    if session_id is not None:
        headers[SESSION] = started.session_id
    return headers


def dropped_of(complete: MessageComplete) -> int:
    """Return the number of messages that the model was not sent."""
    dropped = complete.context_window.get("dropped_messages")
    return dropped if isinstance(dropped, int) else 0


def extras_of(started: StartedRun, session_id: str | None, complete: MessageComplete) -> Any:  # noqa: ANN401 - JSON
    """Return the field ``mochi`` of an answer: what the vendor has no field for."""
    extras: dict[str, Any] = {
        "run_id": started.run_id,
        "dropped_messages": dropped_of(complete),
    }
    if session_id is not None:
        extras["session_id"] = started.session_id
    if complete.ignored_options:
        extras["ignored_options"] = [*complete.ignored_options]
    return extras


class Encoder(Protocol):
    """Encodes a run for one stream."""

    content_type: ClassVar[str]
    ping: ClassVar[bytes]
    """What is sent after silence; empty: nothing."""

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode events, or return no bytes."""


class WireStreamResponse(EventStreamResponse):
    """A run as a stream of the vendor's.

    It begins with the model's first word, so that what fails before is answered with its status,
    and the headers can say how many messages the model was not sent; or after the first silence.
    """

    def __init__(
        self, started: StartedRun, encoder: Encoder, path: str, session_id: str | None
    ) -> None:
        super().__init__(started.reader, encoder)
        self._run_reader = started.reader
        self._path = path
        self.ping = encoder.ping
        self["Content-Type"] = encoder.content_type
        for name, value in headers_of(started, session_id).items():
            self[name] = value

    async def _begin(self, send: Send) -> None:
        events = await self._first()
        dropped = [
            event.dropped_messages for _, event in events if isinstance(event, HistoryShortened)
        ]
        self[DROPPED] = str(dropped[-1] if dropped else 0)
        if events and isinstance(events[-1][1], ErrorEvent | Done) and not _has_text(events):
            while await self._run_reader.next() is not None:
                pass  # why it failed is known at its end
            if (failure := self._run_reader.failure) is not None:
                await self._fail(send, failure)
                return
        await self._send_head(send, self._encode(events))

    async def _first(self) -> list[Numbered]:
        """Return the events up to the first that says how it goes; or those before a silence."""
        events: list[Numbered] = []
        while batch := await self._run_reader.next():
            events += batch
            if any(not isinstance(event, RunStart | HistoryShortened) for _, event in batch):
                break
        return events

    async def _fail(self, send: Send, failure: MochiError) -> None:
        answer = error_response(failure, self._path)
        self.status_code = answer.status_code
        for name, value in answer.items():
            self[name] = value
        await self._send_head(send, answer.content)


def _has_text(events: list[Numbered]) -> bool:
    return any(isinstance(event, ContentDelta | ThinkingDelta) for _, event in events)
