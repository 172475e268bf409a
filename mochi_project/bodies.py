"""The bodies of requests: each within a limit and a time, all together within a limit."""

from __future__ import annotations

from types import TracebackType

import anyio

from mochi_server.errors import PayloadTooLarge, RequestTimeout, ServerBusy

from .gate import Receive

SMALL = 65_536
"""Bytes up to which a body is not counted: large ones must not keep ordinary requests out."""

AT_ONCE = 10
"""How many bodies of the largest size may be in memory at the same time."""

SECONDS = 120.0
"""Longest wait for the end of a body."""

RETRY_SECONDS = 1


class Bodies:
    """The bodies that are in memory now."""

    def __init__(self, limit: int, *, seconds: float = SECONDS) -> None:
        """Have none yet.

        Args:
            limit: the largest size of one body, in bytes.
            seconds: longest wait for the end of one.
        """
        self.limit = limit
        self.seconds = seconds
        self.room = AT_ONCE * limit
        """Bytes that may still come."""

    def one(self) -> Body:
        """The body of one request; use it as a context manager."""
        return Body(self)


class Body:
    """The body of one request, counted until it is released."""

    __slots__ = ("_bodies", "_counted")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._counted = 0

    async def read(self, receive: Receive) -> bytes | None:
        """Read the whole body; None when the client left meanwhile.

        Raises:
            PayloadTooLarge: it is longer than one may be; the rest is not read.
            ServerBusy: with it, all bodies together are longer than they may be.
            RequestTimeout: its end did not arrive in time.
        """
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        first: bytes = message.get("body", b"")
        self._count(len(first))
        if not message.get("more_body", False):
            return first
        with anyio.move_on_after(self._bodies.seconds):
            return await self._rest(bytearray(first), receive)
        raise RequestTimeout(seconds=self._bodies.seconds)

    async def _rest(self, body: bytearray, receive: Receive) -> bytes | None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            self._count(len(body))
            more = message.get("more_body", False)
        return bytes(body)

    def _count(self, size: int) -> None:
        bodies = self._bodies
        if size > bodies.limit:
            raise PayloadTooLarge(limit_mb=bodies.limit / 1_000_000)
        if size > SMALL:
            added = size - self._counted
            if added > bodies.room:
                raise ServerBusy(retry_after=RETRY_SECONDS)
            bodies.room -= added
            self._counted = size

    def release(self) -> None:
        """Count it no longer."""
        self._bodies.room += self._counted
        self._counted = 0

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
