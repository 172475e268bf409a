"""Limits on the head of a request and on the connections of one address; answers in HTTP/1.0.

uvicorn has none of them: a client may send headers without end, or no headers, for as long as it
likes.
These limits hold where our own command serves; another ASGI server has its own. This and
``socket_protocol`` know the inside of uvicorn (``test_private_names`` has its version).
"""

from __future__ import annotations

import json
import logging
from asyncio import TimerHandle, Transport
from collections import Counter
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ..config import MochiServerSettings
from ..core.logs import new_request_id
from ..errors import HeadersTooLarge, InvalidHTTP, MochiError, RequestTimeout, ServerBusy
from .socket_protocol import LimitedSocketProtocol

if TYPE_CHECKING:
    from uvicorn._types import (
        ASGI3Application,
        ASGIReceiveCallable,
        ASGISendCallable,
        ASGISendEvent,
        Scope,
    )

logger = logging.getLogger(__name__)

HEAD_KIB = 16
"""Largest first line, headers and trailers of a request, in KiB."""
HEAD_BYTES = HEAD_KIB * 1024

HEAD_SECONDS = 30.0
"""Longest wait for the head of a request, also for its first byte on a new connection, and for the
rest of a request that is answered already."""

KEEP_ALIVE_SECONDS = 125
"""How long an idle connection is kept: longer than proxies keep theirs, Caddy for two minutes. What
a proxy sends on one that is just being closed fails, and most do not send a POST again."""


def http_protocol(settings: MochiServerSettings) -> type[HttpToolsProtocol]:
    """Return what uvicorn builds for each connection, as ``http`` of its configuration."""
    protocol = partial(LimitedProtocol, per_address=settings.max_connections_per_address)
    return cast("type[HttpToolsProtocol]", protocol)


class LimitedProtocol(HttpToolsProtocol):
    """A connection whose client must send whole heads, soon.

    Args:
        arguments: uvicorn's own, as are the ``options``.
        per_address: Most connections of one address; loopback has no limit.
        head_seconds: Longest wait for the head of a request.
    """

    connected: ClassVar[Counter[str]] = Counter()
    """Connections of each address, those that are refused included."""

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - of uvicorn
        per_address: int,
        head_seconds: float = HEAD_SECONDS,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*arguments, **options)
        self._per_address = per_address
        self._head_seconds = head_seconds
        self._address: str | None = None
        self._timer: TimerHandle | None = None
        self._is_body_next = False
        """Whether what comes next belongs to a body."""
        self._has_begun = False
        """Whether a head has begun and not ended."""
        self._received = 0
        """Bytes since the last part of a body or the last complete head."""
        self._head_size = 0
        """Bytes of the first line, the headers and the trailers that are complete."""
        self._is_upgraded = False
        """Whether the connection is a WebSocket's now."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = limited_address(self.client[0]) if self.client else None
        if self._address is not None:
            self.connected[self._address] += 1
            if (count := self.connected[self._address]) > self._per_address:
                if count == self._per_address + 1:
                    logger.warning(
                        "%s has %d connections; more are refused", self._address, count - 1
                    )
                self._refuse(ServerBusy("This address has too many connections.", retry_after=1))
                return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection on; it counts for its address as long as it is there."""
        self._stop_waiting()
        super().handle_websocket_upgrade()
        self._is_upgraded = True
        protocol: Any = self.transport.get_protocol()
        if not protocol.handshake_initiated:  # a body was announced, and is not here
            self.loop.call_later(self._head_seconds, self.transport.close)
        if isinstance(protocol, LimitedSocketProtocol):
            protocol.on_lost = self._forget
        else:
            self._forget()

    def _forget(self) -> None:
        self._stop_waiting()
        if self._address is not None:
            self.connected[self._address] -= 1
            if not self.connected[self._address]:
                del self.connected[self._address]
            self._address = None

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._is_upgraded:
            return
        if self._received > HEAD_BYTES:
            self._refuse(HeadersTooLarge(limit_kib=HEAD_KIB))
        else:
            self._wait_for_rest()

    def on_response_complete(self) -> None:
        """Wait for what has begun to come meanwhile, such as a body that nobody has read."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait_for_rest()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_begun, self._head_size = True, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEAD_BYTES:
            raise HeadersTooLarge(limit_kib=HEAD_KIB)  # the parser stops; see send_400_response()

    def on_headers_complete(self) -> None:
        self._is_body_next, self._has_begun, self._received = True, False, 0
        super().on_headers_complete()
        if self._is_answering():
            self._stop_waiting()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = _without_chunks(cycle, app)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._received = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_body_next, self._received = False, 0

    def send_400_response(self, msg: str) -> None:
        if self._head_size > HEAD_BYTES:
            self._refuse(HeadersTooLarge(limit_kib=HEAD_KIB))
        else:
            self._refuse(InvalidHTTP(msg))

    def _wait_for_rest(self) -> None:
        """Wait for the rest of what has begun, unless an answer is being made meanwhile."""
        is_partial = bool(self._received) or self._has_begun or self._is_body_next
        if is_partial and self._timer is None and not self._is_answering():
            self._wait()

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self._head_seconds, self._rest_is_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest_is_late(self) -> None:
        self._timer = None
        if not self._is_body_next and (self._has_begun or self._received):
            self._refuse(RequestTimeout(seconds=self._head_seconds))
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, error: MochiError) -> None:
        """Answer and close; without an answer where that would be in the middle of another."""
        if not self._is_answering():
            body = json.dumps(error.as_json()).encode()
            headers = [
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"x-content-type-options", b"nosniff"),
                (b"x-request-id", new_request_id().encode()),
                (b"connection", b"close"),
            ]
            if error.retry_after is not None:
                headers.append((b"retry-after", str(error.retry_after).encode()))
            lines = [b"%b: %b\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        self.transport.close()


def _without_chunks(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """Return an application that answers a client of HTTP/1.0, which does not know chunks.

    The end of an answer without a length is the end of the connection (RFC 9112 6.3); uvicorn
    sends chunks to everybody.
    """

    async def run(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        has_length = True

        async def send_plainly(message: ASGISendEvent) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                has_length = b"content-length" in names
                cycle.chunked_encoding = None if has_length else False
            elif message["type"] == "http.response.body" and not has_length:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plainly)

    return run


def limited_address(host: str) -> str | None:
    """Return the address that a connection counts for; None for this machine, such as a proxy."""
    host = host.removeprefix("::ffff:")  # an IPv4 address of an IPv6 socket
    return None if ip_address(host).is_loopback else host
