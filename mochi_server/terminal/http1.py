"""One HTTP request and its response over h11, each on a connection of its own.

A complete client, such as aiohttp, takes longer to import than a short question to a server takes.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import anyio
import h11
from anyio.abc import ByteStream

CONNECT_SECONDS: Final = 10.0

FAILURES: Final = (
    *(OSError, anyio.BrokenResourceError, anyio.EndOfStream),
    *(h11.ProtocolError, ValueError),
)
"""What is raised where the address is none, no HTTP server answers, or its response breaks off."""

_SAFE: Final = "/%:@!$&'()*+,;=~"
"""Characters that a path of an address may have as they are; ``%`` is of what is quoted."""


class Response:
    """A response whose body is still to come.

    Args:
        stream: The connection.
        protocol: State of it, after the request.
        silence_seconds: How long to wait for the next bytes; None: as long as it takes.
    """

    def __init__(
        self, stream: ByteStream, protocol: h11.Connection, silence_seconds: float | None
    ) -> None:
        self._stream = stream
        self._protocol = protocol
        self._silence_seconds = silence_seconds
        self.status = 0
        self.headers: Mapping[str, str] = {}
        """By name in small letters."""

    async def read_head(self) -> None:
        """Wait for status and headers."""
        while not isinstance(event := await self._next_event(), h11.Response):
            pass  # an informational response
        self.status = event.status_code
        self.headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            with anyio.fail_after(self._silence_seconds):
                try:
                    data = await self._stream.receive()
                except anyio.EndOfStream:
                    if self._protocol.their_state is h11.SEND_RESPONSE:
                        raise ConnectionError("it has closed the connection") from None
                    data = b""
            self._protocol.receive_data(data)
        return event  # type: ignore[return-value]  # it is no NEED_DATA


@asynccontextmanager
async def send_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    silence_seconds: float | None = None,
) -> AsyncGenerator[Response, None]:
    """Send a request and yield its response; the connection is closed at the end.

    A name and a password in the address are sent, unless ``headers`` has an Authorization.

    Raises:
        OSError: Nothing answers at the address; or another one of ``FAILURES``.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it is no address such as http://localhost:8000")
    login, _, host = parts.netloc.rpartition("@")
    fields = {"Host": host.encode("idna").decode(), "Connection": "close"}
    fields["Content-Length"] = str(len(body))
    if login:
        credentials = b64encode(unquote(login).encode()).decode()
        fields["Authorization"] = f"Basic {credentials}"
    target = quote(parts.path, safe=_SAFE) + (f"?{parts.query}" if parts.query else "")
    protocol = h11.Connection(h11.CLIENT)
    events = (
        h11.Request(method=method, target=target, headers=[*{**fields, **headers}.items()]),
        h11.Data(data=body),
        h11.EndOfMessage(),
    )
    data = b"".join(protocol.send(event) or b"" for event in events)
    async with await _connect(parts.hostname, parts.port, is_secure=parts.scheme == "https") as to:
        await to.send(data)
        response = Response(to, protocol, silence_seconds)
        await response.read_head()
        yield response


async def _connect(host: str, port: int | None, *, is_secure: bool) -> ByteStream:
    with anyio.fail_after(CONNECT_SECONDS):
        if not is_secure:
            return await anyio.connect_tcp(host, port or 80)
        context = ssl.create_default_context()
        # Few servers say in TLS, too, that a response is over.
        return await anyio.connect_tcp(
            host, port or 443, ssl_context=context, tls_standard_compatible=False
        )
