"""The server's end of the socket to a tool's process."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any, cast

from ...errors import JSONObject
from .protocol import LENGTH_BYTES, NONSENSE, BadFrame, length_of, pack, unpack


class ChildConnection(asyncio.Protocol):
    """Sends a request, finds its answer; anything else that comes is trouble."""

    def __init__(self, *, on_trouble: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self._on_trouble = on_trouble
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._broken = False
        self._numbers = itertools.count(1)
        self._asked = 0
        self._answer: asyncio.Future[dict[str, Any] | None] | None = None
        self.ended = asyncio.Event()
        """Set when nothing more will come."""

    async def connect(self, sock: socket.socket) -> None:
        """Use this end from now on, and own it."""
        self._socket = sock
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, request: JSONObject) -> asyncio.Future[dict[str, Any] | None]:
        """Send it; the future holds the answer, or null when the socket ends before.

        Raises:
            BadFrame: it cannot be sent.
        """
        number = next(self._numbers)
        frame = pack(request | {"id": number})
        self._asked = number
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or self.ended.is_set():
            self._answer.set_result(None)
        else:
            self._transport.write(frame)
        return self._answer

    def has_ended(self) -> bool:
        """Whether the other end is closed, also when the loop has not noticed it yet."""
        if self._socket is None or self.ended.is_set():
            return True
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close it; the process takes that as its end."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take whole frames out of what came."""
        if self._broken:
            return
        if self._waiting() is None:
            self._break("the tool's process wrote to the server without being asked")
            return
        self._received += data
        try:
            while (body := self._next()) is not None:
                self._on_message(unpack(body))
        except BadFrame:
            self._break(NONSENSE)

    def _break(self, reason: str) -> None:
        """Believe nothing that comes from now on."""
        self._broken = True
        self._on_trouble(reason)

    def _next(self) -> bytes | None:
        """The body of the first frame, once all of it is here."""
        if len(self._received) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + length_of(self._received[:LENGTH_BYTES])
        if len(self._received) < end:
            return None
        body = bytes(self._received[LENGTH_BYTES:end])
        del self._received[:end]
        return body

    def _on_message(self, message: dict[str, Any]) -> None:
        answer = self._waiting()
        if answer is None:
            self._break("the tool's process answered twice")
        elif message.get("id") == self._asked:
            answer.set_result(message)
        # Else it is a second answer to an earlier request, and this one's is still to come.

    def _waiting(self) -> asyncio.Future[dict[str, Any] | None] | None:
        return self._answer if self._answer is not None and not self._answer.done() else None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Nothing more will come."""
        self.ended.set()
        if (answer := self._waiting()) is not None:
            answer.set_result(None)
        self._on_end()
