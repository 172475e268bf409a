"""Limits on WebSockets, and their end with the server.

uvicorn closes all sockets as soon as it stops, before the runs that they read have said how they
end; and it waits without end for clients that do not read.
"""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ..config import MochiServerSettings
from ..core.tcp import TakenBytes, waiting_bytes

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

CLOSE_SECONDS = 3.0
"""Longest wait for a client to close its end too, or to read the last frames."""

LONGEST_PING = 127
"""Bytes of the longest frame that can be a ping."""

NO_PONG = 1011
"""Code with which a socket is closed whose client does not answer pings."""


def socket_options(settings: MochiServerSettings) -> dict[str, Any]:
    """Return the part of uvicorn's configuration that is about sockets.

    Frames are not compressed, as streams are not: each token would wait for the next one, and each
    socket would need memory for it.
    """
    return {
        "ws_max_size": settings.socket_frame_bytes,
        "ws_ping_interval": settings.heartbeat_seconds,
        "ws_ping_timeout": settings.client_stall_seconds,
        "ws_per_message_deflate": False,
    }


class LimitedSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that ends in time, and that the application closes when the server stops."""

    on_lost: Callable[[], None] | None = None
    """Called when the connection has ended."""
    has_failed = False
    """Whether the protocol itself has closed it, as after a ping without an answer."""

    is_unread = False
    """Whether the client had not read what was sent when its time for a pong was over."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.close_timeout = CLOSE_SECONDS
        self._taken = TakenBytes(transport)

    def _has_unread(self) -> bool:
        """Return whether the client's machine has not taken what was sent, beside the ping."""
        is_buffered = self.transport.get_write_buffer_size() > 0
        return is_buffered or waiting_bytes(self.transport) > LONGEST_PING

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def shutdown(self) -> None:
        """Leave an accepted socket to the application, which is told as well that it stops."""
        if not self.handshake_complete:
            super().shutdown()

    def send_keepalive_ping(self) -> None:
        self._taken.have_grown()  # from now on
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """Fail, unless the client is still taking what was sent."""
        is_open = not (self.close_sent or self.transport.is_closing())
        is_unread = is_open and self._has_unread()
        if is_unread and self._taken.have_grown():
            assert self.ping_timeout is not None  # noqa: S101 - else nothing is timed
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        self.is_unread = is_unread
        super().keepalive_timeout()
        if is_open:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": NO_PONG})
            self._fail()

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self._fail()

    def _fail(self) -> None:
        self.has_failed = True
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)  # it may never read the rest

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the application, which may not know yet that the protocol has failed.

        Raises:
            ClientDisconnected: the connection has ended.
        """
        await self.writable.wait()
        if self.has_failed:
            raise ClientDisconnected
        await super().send(message)

    def pause_writing(self) -> None:
        """Read nothing from a client that does not read: what it sends could be answered."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:  # else a frame waits to be taken
            self.transport.resume_reading()
