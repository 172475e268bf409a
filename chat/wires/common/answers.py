"""Answers of the wires: the run of a request in the vendor's form, in one piece or as a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

from django.http import JsonResponse

from mochi_project.http.errors import error_response
from mochi_server.chat.control import StartedRun
from mochi_server.chat.runs.log import Numbered
from mochi_server.chat.service import events_of
from mochi_server.errors import JSONObject, MochiError
from mochi_server.protocol.events import (
    ContentDelta,
    Done,
    ErrorEvent,
    HistoryCompacted,
    HistoryShortened,
    MessageComplete,
    RunStart,
    ThinkingDelta,
)
from mochi_server.protocol.fold import Fold

from ...streaming import RUN_ID, EventStreamResponse, Send
from .api import SESSION

DROPPED = "X-Mochi-Dropped-Messages"
"""Header with the number of messages that were not sent to the model."""


async def whole_run(started: StartedRun) -> Fold:
    """Read a run to its end, and return what it has come to: an answer.

    Raises:
        MochiError: what ended it; ``RunStopped`` if a person has stopped it.
    """
    fold = Fold(keeps_text=True)
    async with aclosing(events_of(started.reader)) as events:
        async for event in events:
            fold.add(event)
    fold.answer()
    return fold


def headers_of(started: StartedRun, dropped: int | None = None) -> dict[str, str]:
    """Return the headers of an answer.

    ``dropped``: messages that the model was not sent; None: it is not known yet.
    """
    headers = {RUN_ID: started.run_id}
    if started.is_kept:
        headers[SESSION] = started.session_id
    if dropped is not None:
        headers[DROPPED] = str(dropped)
    return headers


async def whole_answer(started: StartedRun, form: Callable[[Fold], JSONObject]) -> JsonResponse:
    """Read a run to its end, and answer what it has come to in the vendor's form."""
    fold = await whole_run(started)
    headers = headers_of(started, fold.answer().dropped_messages)
    return JsonResponse(form(fold), headers=headers)


def left_out_of(complete: MessageComplete) -> dict[str, Any]:
    """Return how many messages the model was not sent, and in whose place it had a summary."""
    summarised = complete.context_window.get("summarised_messages")
    found: dict[str, Any] = {"dropped_messages": complete.dropped_messages}
    return found | ({"summarised_messages": summarised} if summarised else {})


def extras_of(started: StartedRun, complete: MessageComplete) -> Any:  # noqa: ANN401 - JSON
    """Return the field ``mochi`` of an answer: what the vendor has no field for."""
    extras: dict[str, Any] = {
        "run_id": started.run_id,
        **left_out_of(complete),
    }
    if started.is_kept:
        extras["session_id"] = started.session_id
    if complete.ignored_options:
        extras["ignored_options"] = [*complete.ignored_options]
    return extras


_BEFORE_REPLY = (RunStart, HistoryCompacted, HistoryShortened)


class Encoder(Protocol):
    """Encodes a run for one stream."""

    content_type: ClassVar[str]
    ping: ClassVar[bytes]
    """What is sent after silence; empty: nothing."""

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode events, or return no bytes."""

    def cut(self, failure: MochiError) -> bytes:
        """End a stream whose run goes on when its process has ended, or return no bytes."""


class WireStreamResponse(EventStreamResponse):
    """A run as a stream of the vendor's.

    It begins with the model's first word, so that what fails before is answered with its status,
    and the headers can say how many messages the model was not sent; or after the first silence.
    """

    def __init__(self, started: StartedRun, encoder: Encoder, path: str) -> None:
        super().__init__(started.reader, encoder)
        self._run_reader = started.reader
        self._cut = encoder.cut
        self._path = path
        self.ping = encoder.ping
        self["Content-Type"] = encoder.content_type
        for name, value in headers_of(started).items():
            self[name] = value

    async def _begin(self, send: Send) -> None:
        events = await self._first()
        dropped = [
            event.dropped_messages for _, event in events if isinstance(event, HistoryShortened)
        ]
        self[DROPPED] = str(dropped[-1] if dropped else 0)
        is_void = all(isinstance(event, _BEFORE_REPLY) for _, event in events)
        if events and isinstance(events[-1][1], ErrorEvent | Done) and not _has_text(events):
            is_void = True
            while await self._run_reader.next() is not None:
                pass  # why it failed is known at its end
        if is_void and (failure := self._run_reader.failure) is not None:
            await self._fail(send, failure)
            return
        await self._send_head(send, self._encode(events))

    def _last(self) -> bytes:
        failure = self._run_reader.failure
        if failure is None or self.status_code != HTTPStatus.OK:  # that is answered by itself
            return b""
        return self._cut(failure)

    async def _first(self) -> list[Numbered]:
        """Return the events up to the first that says how it goes; or those before a silence."""
        events: list[Numbered] = []
        while batch := await self._run_reader.next():
            events += batch
            if any(not isinstance(event, _BEFORE_REPLY) for _, event in batch):
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
