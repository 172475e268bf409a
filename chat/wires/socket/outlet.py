"""Sends the frames of one socket, one after the other, and gives up a client that does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
from channels.generic.websocket import AsyncWebsocketConsumer

from mochi_server.core.tcp import TakenBytes

from ...streaming import drop_connection, transport_of

CLOSE_SECONDS = 5.0
"""Longest wait until a client has read what is sent before it learns why the socket is closed."""


class Outlet:
    """The way to one client."""

    def __init__(
        self, consumer: AsyncWebsocketConsumer, *, stall: float, on_stall: Callable[[], object]
    ) -> None:
        """Call ``on_stall`` when the client has not read for ``stall`` seconds."""
        self._consumer = consumer
        self._stall = stall
        self._on_stall = on_stall
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        """When the frame was begun that is being sent, or the client was last seen to take some."""
        self._taken = TakenBytes(transport_of(consumer.base_send))
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False

    async def send(self, text: str) -> None:
        """Send a frame; nothing where the socket is closed."""
        async with self._lock:
            if self.is_closed:
                return
            if self._timer is None:
                self._check_later()
            self._since = self._loop.time()
            try:
                await self._consumer.send(text_data=text)
            except OSError:  # the client has left
                self.is_closed = True
            finally:
                self._since = None

    def _check_later(self) -> None:
        self._timer = self._loop.call_later(self._stall / 4, self._check)

    def _check(self) -> None:
        """Look whether the client has read, for as long as there is something to read."""
        self._timer = None
        if self._since is None or self.is_closed:
            return
        if self._taken.have_grown():
            self._since = self._loop.time()
        if self._loop.time() - self._since >= self._stall:
            self._on_stall()
        else:
            self._check_later()

    async def close(self, code: int, reason: str) -> None:
        """Close the socket with a code and a reason; cut it if the client does not read them."""
        is_sent = False
        with anyio.move_on_after(CLOSE_SECONDS):
            async with self._lock:
                if self.is_closed:
                    return
                self.is_closed = True
                try:
                    await self._consumer.close(code=code, reason=reason)
                    is_sent = True
                except OSError:  # the client has left
                    pass
        self.end()
        if not is_sent:
            drop_connection(self._consumer.base_send)

    def end(self) -> None:
        """Send nothing any more."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
