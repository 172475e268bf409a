"""The bodies of requests: each within a limit and a time, all together within a limit."""

from __future__ import annotations

from types import TracebackType

import anyio

from mochi_server.errors import PayloadTooLarge, RequestTimeout, ServerBusy

from .gate import Receive

SMALL = 65_536
"""Bytes up to which a body is not counted: large bodies must not keep ordinary requests out."""

AT_ONCE = 10
"""How many bodies of the largest size may be in memory at the same time."""

SECONDS = 120.0
"""Longest wait for the end of a body."""

PATIENCE_SECONDS = 5.0
"""Seconds after which a body that is still arriving is given up if others need its room."""

RETRY_SECONDS = 1


class RequestBodies:
    """The bodies of requests that are in memory now."""

    def __init__(
        self, limit: int, *, seconds: float = SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Begin with no body.

        Args:
            limit: Largest size of one body, in bytes.
            seconds: Longest wait for the end of one body.
            patience: Seconds after which a body that is still arriving may be given up.
        """
        self.limit = limit
        self.seconds = seconds
        self.patience = patience
        self.room = AT_ONCE * limit
        """Bytes that can still be taken."""
        self.arriving: dict[RequestBody, float] = {}
        """When each counted body began that has not ended yet, oldest first."""

    def make_room(self, size: int) -> bool:
        """Give up slow bodies until there is room for so many bytes; return whether there is."""
        slow = anyio.current_time() - self.patience
        for body in [body for body, began in self.arriving.items() if began < slow]:
            if size <= self.room:
                break
            body.give_up()
        return size <= self.room

    def one(self) -> RequestBody:
        """Return the body of one request, a context manager."""
        return RequestBody(self)


class RequestBody:
    """The body of one request, counted until it is released."""

    __slots__ = ("_began", "_bodies", "_counted", "_given_up", "_scope")

    def __init__(self, bodies: RequestBodies) -> None:
        self._bodies = bodies
        self._counted = 0
        self._given_up = False

    async def read(self, receive: Receive) -> bytes | None:
        """Read the whole body; None when the client left meanwhile.

        Raises:
            PayloadTooLarge: It is longer than one may be; the rest is not read.
            ServerBusy: All bodies together are longer than they may be.
            RequestTimeout: Its end did not arrive in time.
        """
        self._began = anyio.current_time()
        try:
            with anyio.move_on_after(self._bodies.seconds) as self._scope:
                return await self._read(receive)
        finally:
            self._bodies.arriving.pop(self, None)
        if self._given_up:
            raise ServerBusy(retry_after=RETRY_SECONDS)
        raise RequestTimeout(seconds=self._bodies.seconds)

    async def _read(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            self._count(len(body) + len(part))
            if message.get("more_body", False):
                body += part
            else:
                return bytes(body + part) if body else part

    def _count(self, size: int) -> None:
        bodies = self._bodies
        if size > bodies.limit:
            raise PayloadTooLarge(limit_mb=bodies.limit / 1_000_000)
        if size > SMALL:
            added = size - self._counted
            if added > bodies.room and not bodies.make_room(added):
                raise ServerBusy(retry_after=RETRY_SECONDS)
            bodies.room -= added
            self._counted = size
            bodies.arriving[self] = self._began

    def give_up(self) -> None:
        """Read no more of it: the request is answered with ``ServerBusy``."""
        self._given_up = True
        self._scope.cancel()
        self._bodies.arriving.pop(self)
        self.release()

    def release(self) -> None:
        self._bodies.room += self._counted
        self._counted = 0

    def __enter__(self) -> RequestBody:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
