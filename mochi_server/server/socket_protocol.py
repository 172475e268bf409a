"""Limits on WebSockets, and their end with the server.

uvicorn closes all sockets as soon as it stops, before the runs that they read have said how they
end; and it waits without end for clients that do not read.
"""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ..config import MochiServerSettings

CLOSE_SECONDS = 3.0
"""Longest wait for a client to close its end too, or to read the last frames."""


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

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.close_timeout = CLOSE_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def shutdown(self) -> None:
        """Leave an accepted socket to the application, which is told as well that it stops."""
        if not self.handshake_complete:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)  # it may never read the rest

    def pause_writing(self) -> None:
        """Read nothing from a client that does not read: what it sends could be answered."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:  # else a frame waits to be taken
            self.transport.resume_reading()
