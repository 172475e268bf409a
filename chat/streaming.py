"""The response that streams the log of a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

from django.conf import settings
from django.http import StreamingHttpResponse

from mochi_server.core.tcp import TakenBytes

from .wires import events, sse

logger = logging.getLogger(__name__)

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    # No middleware or proxy may compress: each event would wait for the next one.
    "Content-Encoding": "identity",
}

RUN_ID = "X-Run-Id"
"""Header that names the run of an answer."""

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Encode = Callable[[list[tuple[int, Any]]], bytes]


class EventReader(Protocol):
    """What a stream reads: a ``LogReader`` of a run, or a ``FeedReader``."""

    async def next(self) -> list[tuple[int, Any]] | None:
        """Wait for events; return none after ``poke()``, and None at the end."""

    def poke(self) -> None:
        """Let ``next()`` return an empty list."""

    def leave(self, *, abandon: bool = True) -> None:
        """Stop reading; may be called again."""


class EventStreamResponse(StreamingHttpResponse):
    """Events as server-sent events, which the handler sends by ``send_to``.

    Of a run it only reads the log: a slow client delays nobody else. Closing the response, even
    before its body started, removes the reader from the log.
    """

    ping = sse.PING
    """What is sent after silence."""
    open_streams: ClassVar[int] = 0
    """Number of the streams that this process sends now."""

    def __init__(
        self, reader: EventReader, encode: Encode = events.encode_all, *, run_id: str | None = None
    ) -> None:
        """Send what the reader reads. ``encode`` makes the frames of a batch, or no bytes."""
        super().__init__(headers=HEADERS if run_id is None else {**HEADERS, RUN_ID: run_id})
        self._reader = reader
        self._encode = encode
        self._heartbeat = settings.MOCHI.heartbeat_seconds
        self._stall = settings.MOCHI.client_stall_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._moment = 0.0
        self._sending = False
        self.stalled = False
        """Whether the connection was closed because the client did not read."""

    async def send_to(self, send: Send) -> None:
        """Send all events that are in the log whenever the reader wakes up, until the turn ends.

        A generator of parts would cost something per token.
        """
        loop = asyncio.get_running_loop()
        read, encode = self._reader.next, self._encode
        self._task = asyncio.current_task()
        self._taken = TakenBytes(transport_of(send))
        self._moment = loop.time()
        self._timer = loop.call_later(min(self._heartbeat, self._stall), self._tick, loop)
        EventStreamResponse.open_streams += 1
        try:
            await self._begin(send)
            while (batch := await read()) is not None:
                if part := encode(batch) if batch else self.ping:
                    self._moment = loop.time()
                    self._sending = True
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    self._sending = False
            await send({"type": "http.response.body", "body": self._last(), "more_body": False})
        finally:
            EventStreamResponse.open_streams -= 1
            self.end()

    async def _begin(self, send: Send) -> None:
        await self._send_head(send, sse.RETRY)

    def _last(self) -> bytes:
        """Return what is sent when the reader is at its end."""
        return b""

    async def _send_head(self, send: Send, body: bytes) -> None:
        """Send the status, the headers and the first bytes of the body."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send a comment after silence; close the connection of a client that does not read."""
        self._timer = None
        if self._sending and self._taken.have_grown():
            self._moment = loop.time()
        silent = loop.time() - self._moment
        if self._sending and silent >= self._stall:
            self._drop_stalled_client(silent)
            return
        wait = self._heartbeat - silent
        if wait <= 0:
            self._reader.poke()
            wait = self._heartbeat
        self._timer = loop.call_later(min(wait, self._stall), self._tick, loop)

    def _drop_stalled_client(self, silent: float) -> None:
        """Close the connection; the turn goes on to its end and is stored whole.

        A client that leaves is noticed by ``DisconnectWatch`` in ``mochi_project.http.handler``.
        """
        logger.warning("A client has not read its stream for %.0f s; closing it", silent)
        self.stalled = True
        self._reader.leave(abandon=False)
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Leave the log, which ends a body that waits for events. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._task = None
        self._reader.leave()

    def close(self) -> None:
        """Leave the log, also when the body never started."""
        self.end()
        super().close()


def transport_of(send: object) -> asyncio.WriteTransport | None:
    """Return what writes to the client, of asyncio or of uvloop; None on others than uvicorn."""
    transport: asyncio.WriteTransport | None
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    return transport


def drop_connection(send: object) -> None:
    """Cut the connection of a client that does not read.

    ASGI cannot say it, and a return lets the server close politely: it would wait for the client
    to read what is left, for ever (uvicorn does, also at its end). On other servers than uvicorn
    nothing happens.
    """
    if (transport := transport_of(send)) is not None:
        transport.abort()


def is_unread(send: object) -> bool:
    """Return whether the WebSocket ended because its client did not read what was sent.

    ASGI cannot say it; on other servers than the command ``mochi-server`` it is not known.
    """
    return getattr(getattr(send, "__self__", None), "is_unread", False)
