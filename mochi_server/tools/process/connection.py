"""The server's end of the socket to a worker process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from ...errors import JSONObject
from ..progress import Report
from .protocol import LENGTH_BYTES, NONSENSE, PROGRESS, BadFrame, length_of, pack, unpack


class WorkerGone(Exception):
    """The process ended, or had to be ended; the text says how, for the model."""


class WorkerConnection(asyncio.Protocol):
    """The server's end of the socket: sends a request and finds its answer.

    Anything else that arrives is reported by ``on_trouble``.
    """

    def __init__(self, *, on_trouble: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self._on_trouble = on_trouble
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._broken = False
        self._number = 0
        self._answer: asyncio.Future[dict[str, Any] | None] | None = None
        self._report: Report | None = None
        self.ended = asyncio.Event()

    async def connect(self, sock: socket.socket) -> None:
        self._socket = sock
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(
        self, request: JSONObject, report: Report | None = None
    ) -> asyncio.Future[dict[str, Any] | None]:
        """Send a request, or raise BadFrame; the answer is None when the socket ends before.

        The request has no id yet; ``report`` gets what is reported before the answer.
        """
        self._report = report
        self._number += 1
        frame = pack(request | {"id": self._number})
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or self.ended.is_set():
            self._answer.set_result(None)
        else:
            self._transport.write(frame)
        return self._answer

    def has_ended(self) -> bool:
        """Tell whether the other end is closed, also when the loop has not noticed it yet."""
        if self._socket is None or self.ended.is_set():
            return True
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
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
        elif message.get("id") == self._number:
            if message.get("kind") == PROGRESS:
                self._on_progress(message)
            else:
                answer.set_result(message)
        # Else it is a second answer to an earlier request, and this one's is still to come.

    def _on_progress(self, message: dict[str, Any]) -> None:
        match message:
            case {
                "progress": float(progress),
                "total": None | float() as total,
                "message": None | str() as text,
            } if self._report is not None:
                self._report(progress, total, text)

    def _waiting(self) -> asyncio.Future[dict[str, Any] | None] | None:
        return self._answer if self._answer is not None and not self._answer.done() else None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self.ended.set()
        if (answer := self._waiting()) is not None:
            answer.set_result(None)
        self._on_end()
