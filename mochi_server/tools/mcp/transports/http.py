"""Connections to MCP servers over HTTP, within limits: Streamable HTTP, and SSE of older servers.

The SDK follows redirects only within the origin of the address, and limits single events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from ....core.utf8 import valid_utf8
from .limits import FEW_BYTES, MAX_MESSAGE, LimitedReadStream, Streams, shortened
from .log import ServerLog

CONNECT_SECONDS = 30.0
"""For connecting and writing; calls have their own limit for what they read."""
MAX_HEADER = 200
MAX_EVENT = 2**20
"""Bytes of one event of a server of 2024: the SDK's limit, which ends the connection."""
SESSION_HEADER = "mcp-session-id"
DATA = b"data:"
BAD_REQUEST, NOT_FOUND = 400, 404


@asynccontextmanager
async def http_transport(
    url: str,
    *,
    headers: Mapping[str, str],
    log: ServerLog,
    on_end: Callable[[str], None],
    auth: httpx2.Auth | None = None,
    is_sse: bool = False,
) -> AsyncGenerator[Streams, None]:
    """Exchange messages with a server over HTTP.

    Args:
        url: Its address.
        headers: Sent with each request.
        log: Gets a note of each response that is an error.
        on_end: Is called with the reason when the server ends the connection.
        auth: Signs requests.
        is_sse: Whether it is the transport of 2024: a stream of events, and a POST per message.
    """

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,  # noqa: ARG001 - the SDK's
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return LimitedClient(headers or {}, auth=auth, log=log, on_end=on_end)

    if is_sse:
        transport = sse_client(url, dict(headers), httpx_client_factory=client, auth=auth)
        async with transport as (read, write):
            yield LimitedReadStream(read, on_flood=log.note_flood, on_end=on_end), write
        return
    async with LimitedClient(headers, auth=auth, log=log) as http_client:
        modern = streamable_http_client(
            url, http_client=http_client, max_sse_event_size=MAX_MESSAGE
        )
        async with modern as (read, write):
            yield LimitedReadStream(read, on_flood=log.note_flood, on_end=on_end), write


class LimitedClient(httpx2.AsyncClient):
    """An HTTP client whose responses are limited, and that follows no redirect by itself."""

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        auth: httpx2.Auth | None = None,
        log: ServerLog | None = None,
        on_end: Callable[[str], None] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Limit what it receives.

        Args:
            headers: Sent with each request, but those of ``auth`` to other addresses.
            auth: Signs requests.
            log: Gets a note of each response that is an error.
            on_end: For the transport of 2024, whose failures the SDK only logs; is called with one.
            transport: Sends the requests; None: as the environment says.
        """
        super().__init__(
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            auth=auth,
            event_hooks={"response": [self._limit]},
            transport=transport,
        )
        self._log = log
        self._on_end = on_end

    async def _limit(self, response: httpx2.Response) -> None:
        if response.is_error and self._log is not None:
            self._log.note(f"{response.request.method}: HTTP {response.status_code}")
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in {"", "identity"}:  # a few bytes may become gigabytes
            raise httpx2.RemoteProtocolError(f"the answer is encoded as {encoding[:MAX_HEADER]!r}")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _LimitedStream(response.stream)
        elif self._on_end is not None:
            response.stream = _LimitedEvents(response.stream, self._on_end)
        else:
            response.stream = _ShortenedEvents(response.stream)
        if SESSION_HEADER in response.request.headers and await _says_session_is_lost(response):
            # Whatever the body says of it, which the SDK would prefer.
            response.status_code = NOT_FOUND
            response.headers["content-type"] = "text/plain"

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401
        try:
            response = await super().send(request, **options)
        except Exception as error:
            self._tell(request, f"it cannot be reached: {error}")
            raise
        if response.is_error:
            self._tell(request, f"it refused a message (HTTP {response.status_code})")
        return response

    def _tell(self, request: httpx2.Request, reason: str) -> None:
        if self._on_end is not None and request.method == "POST":
            self._on_end(reason)


async def _says_session_is_lost(response: httpx2.Response) -> bool:
    """Tell whether a server does not know the session of a request.

    The protocol says 404. Many answer 400, as examples of the SDK for TypeScript do:
    https://github.com/modelcontextprotocol/typescript-sdk/issues/389
    """
    if response.status_code != BAD_REQUEST:
        return response.status_code == NOT_FOUND
    return b"session" in (await response.aread()).lower()


class _BodyStream(httpx2.AsyncByteStream):
    """A body, or a stream of events, that is changed on its way."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - sync or async, as the base has it
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()


class _LimitedStream(_BodyStream):
    """A whole body, which is shortened."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []
        size = 0
        async for piece in self._stream:
            pieces.append(piece)
            size += len(piece)
            if size > MAX_MESSAGE:
                raise httpx2.StreamError(f"it is larger than {MAX_MESSAGE // 2**20} MiB")
        yield await shortened(valid_utf8(b"".join(pieces)))


class _ShortenedEvents(_BodyStream):
    """A stream of events, each with a message in one line, of which long ones are shortened."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begun: list[bytes] = []
        """What has come of a line that has not ended."""
        size = 0
        async for piece in self._stream:
            begun.append(piece)
            size += len(piece)
            if b"\n" not in piece and size <= MAX_MESSAGE:
                continue
            *lines, rest = b"".join(begun).split(b"\n")
            for line in lines:
                yield await _shortened_line(line) + b"\n"
            if len(rest) > MAX_MESSAGE:  # the SDK refuses it
                yield rest
                rest = b""
            begun, size = [rest], len(rest)
        yield b"".join(begun)


async def _shortened_line(line: bytes) -> bytes:
    if len(line) <= FEW_BYTES or not line.startswith(DATA):
        return line
    return DATA + await shortened(line.removeprefix(DATA))


class _LimitedEvents(_BodyStream):
    """A stream of events, of which one that is too large is told before the SDK gives it up."""

    def __init__(self, stream: Any, on_end: Callable[[str], None]) -> None:  # noqa: ANN401 - as above
        super().__init__(stream)
        self._on_end = on_end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last = 0, b""
        async for piece in self._stream:
            recent = last + piece.replace(b"\r\n", b"\n")
            end = recent.rfind(b"\n\n")
            size = size + len(piece) if end < 0 else len(recent) - end
            last = recent[-1:]
            if size > MAX_EVENT:
                self._on_end(f"it sent an event of more than {MAX_EVENT // 2**20} MiB")
            yield piece
