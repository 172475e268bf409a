"""The reply of a model as it is generated: the hot path of the server.

Between the socket and the consumer there is one loop: no task, no queue, no timer for a chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus

import aiohttp

from ..core.aio import in_thread
from ..errors import MochiError, OllamaUnreachable
from ..protocol.completions import Chunk
from .failures import incomplete
from .reader import ReplyReader
from .transport import Transport

LONG_READ = 32_768
"""Bytes; parsing more takes milliseconds."""


class _TooSilent(Exception):
    """Nothing came for too long."""


class _SilenceTimer:
    """One timer for a whole stream; it waits again when something came in the meantime."""

    __slots__ = ("_handle", "_limit", "_loop", "_response", "since")

    def __init__(self, response: aiohttp.ClientResponse, limit: float) -> None:
        self._response = response
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self.since: float | None = None
        """Start of the present wait; None while the consumer works."""
        self._handle = self._loop.call_later(limit, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        due = (self.since if self.since is not None else now) + self._limit
        if due > now:
            self._handle = self._loop.call_at(due, self._expire)
        else:
            self._response.content.set_exception(_TooSilent())

    def stop(self) -> None:
        self._handle.cancel()


async def stream_chat(
    transport: Transport, body: Callable[[], Awaitable[bytes]], *, model: str
) -> AsyncGenerator[list[Chunk], None]:
    """Send one ``/api/chat`` request and yield what comes together; closing it hangs up.

    What is long is read in a thread: one line may hold thousands of calls.

    Raises:
        ModelNotFound, ThinkingNotSupported, ContextOverflow, ProviderBusy, OllamaError,
        OllamaUnreachable: before the first chunk, or after some; ``details["incomplete"]`` is
            true for a reply that had begun.
    """
    response = await transport.post("/api/chat", await body())
    del body  # it may be long, and a stream lives long
    timer = _SilenceTimer(response, transport.limits.idle)
    try:
        if response.status != HTTPStatus.OK:
            raise await transport.read_refusal(response, model=model)
        reader = ReplyReader(model)
        read, clock = response.content.readany, asyncio.get_running_loop().time
        while True:
            timer.since = clock()
            data = await read()
            timer.since = None
            if not data:
                chunks = reader.close()
            elif reader.pending + len(data) > LONG_READ:
                chunks = await in_thread(reader.feed, data)
            else:
                chunks = reader.feed(data)
            if chunks:
                yield chunks
            if reader.finished:
                return
            if reader.error is not None:
                raise reader.error
    except (aiohttp.ClientError, OSError, _TooSilent) as error:
        raise _broken(transport, error) from error
    finally:
        timer.stop()
        response.close()


def _broken(transport: Transport, error: Exception) -> MochiError:
    if isinstance(error, _TooSilent):
        return OllamaUnreachable(
            f"Ollama at {transport.host} sent nothing for {transport.limits.idle:g} s"
            " (MOCHI_OLLAMA_IDLE_TIMEOUT_SECONDS).",
            details={"host": transport.host, "incomplete": True},
        )
    return incomplete("broke off: the connection was lost")
