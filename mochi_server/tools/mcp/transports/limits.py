"""What an MCP server may send: how large, how often, and what of it reaches the SDK."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import anyio
import orjson
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse
from pydantic_core import from_json
from typing_extensions import Self

from ....core.limits import has_more_values
from ....core.token_bucket import TokenBucket
from .admission import admit, admit_content

Streams = TransportStreams

MAX_MESSAGE: Final = 10 * 2**20
"""Bytes of one message; parsing it holds the event loop."""
MAX_VALUES: Final = 100_000
"""Members of objects and elements of lists in one message."""
TOO_LARGE: Final = f"the answer is larger than {MAX_MESSAGE // 2**20} MiB, or has too many values"
"""Message of the error that stands for such an answer."""
FEW_BYTES: Final = 65_536
"""Values are not counted in what is shorter."""
EDGE: Final = 256
"""Bytes at either end of a message, which say what it answers."""

UNASKED_AT_ONCE: Final = 500
UNASKED_PER_SECOND: Final = 100.0
"""Notifications and requests of a server; responses are not counted. The others are dropped."""
PAUSE_AFTER, PAUSE_SECONDS = 100, 0.005
"""Messages that are dropped, and the pause after them: a flood must not hold up the loop."""

_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*$')


def is_too_large(message: bytes) -> bool:
    """Return whether a whole message is larger than a server may send."""
    if len(message) <= FEW_BYTES:
        return False
    return len(message) > MAX_MESSAGE or has_more_values(message, MAX_VALUES)


def failed_response(head: bytes, tail: bytes, reason: str) -> SessionMessage | None:
    """Return an error for the request that a message answers, as far as its ends tell which."""
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if match is None:
        return None
    error = ErrorData(code=INTERNAL_ERROR, message=reason)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(match[1]), error=error))


async def shortened(message: bytes) -> bytes:
    """Return a message that the SDK reads soon: the blocks of a long one are joined.

    The SDK takes five times as long to read JSON as it takes here, and holds the event loop.
    """
    if len(message) <= FEW_BYTES:
        return message
    if is_too_large(message):
        failed = failed_response(message[:EDGE], message[-EDGE:], TOO_LARGE)
        return b"null" if failed is None else failed.message.model_dump_json().encode()
    try:
        value = from_json(message)
        await asyncio.sleep(0)  # either part takes milliseconds
        if isinstance(value, dict):
            admit_content(value.get("result"))
        return orjson.dumps(value)
    except (ValueError, TypeError):  # the SDK says what is wrong with it
        return message


class LimitedReadStream:
    """Messages of a server, for the SDK, without what is too much."""

    def __init__(
        self,
        stream: ReadStream[SessionMessage | Exception],
        *,
        on_flood: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._allowance = TokenBucket(UNASKED_AT_ONCE, UNASKED_PER_SECOND)
        self._dropped = 0
        self._on_flood = on_flood
        self._on_end = on_end

    @property
    def last_context(self) -> Any:  # noqa: ANN401 - the SDK looks for it by name
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return await self._next(self._stream.receive)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close(self) -> None:
        """Do nothing: the transport closes its own end."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self._next(self._stream.__anext__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _next(self, receive: Callable[[], Any]) -> SessionMessage | Exception:
        while True:
            try:
                item: SessionMessage | Exception = await receive()
            except (StopAsyncIteration, anyio.EndOfStream):
                self._on_end("it closed the connection")
                raise
            if isinstance(item, SessionMessage):
                message = item.message
                if isinstance(message, JSONRPCResponse):
                    admit(message.result)
                    return item
                if isinstance(message, JSONRPCError) or self._allowance.take():
                    return item
                self._on_flood()
            self._dropped += 1
            if self._dropped % PAUSE_AFTER == 0:
                await asyncio.sleep(PAUSE_SECONDS)
