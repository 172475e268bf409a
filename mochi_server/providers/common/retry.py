"""Ask a service again, as long as nothing of its reply has come.

This is the one retry of all vendors; their SDKs' own are switched off.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count
from typing import Final

import anyio

from ...errors import ProviderBusy, ProviderError
from ...protocol.completions import Chunk

ATTEMPTS: Final = 3
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10.0
"""Longest pause; if a service asks for more, its error goes to the client, who may retry."""

Stream = AsyncGenerator[Chunk, None]


async def retry(
    open_stream: Callable[[], Stream], *, pause_after: Callable[[ProviderError, int], float | None]
) -> Stream:
    """Yield the chunks of ``open_stream()``, opened again where it failed before its first chunk.

    Args:
        open_stream: Opens the stream anew each time.
        pause_after: The seconds to wait after an error and that many attempts; None to give up.

    Raises:
        ProviderError: the last one.
    """
    for attempt in count(1):
        has_begun = False
        try:
            async with aclosing(open_stream()) as chunks:
                async for chunk in chunks:
                    has_begun = True
                    yield chunk
        except ProviderError as error:
            pause = None if has_begun else pause_after(error, attempt)
            if pause is None:
                raise
        else:
            return
        await anyio.sleep(pause)


def retry_when_busy(open_stream: Callable[[], Stream], *, attempts: int = ATTEMPTS) -> Stream:
    """Yield the chunks of ``open_stream()``, opened again while the service is busy.

    Waits as long as the service says (``Retry-After``), else half a second, then twice as long.

    Raises:
        ProviderBusy: the service still is, or wants more than ten seconds, or was in mid-stream.
    """

    def pause_after(error: ProviderError, attempt: int) -> float | None:
        if not isinstance(error, ProviderBusy) or attempt == attempts:
            return None
        pause = FIRST_PAUSE_SECONDS * float(2 ** (attempt - 1))
        if error.retry_after is not None:
            pause = error.retry_after
        return pause if pause <= LONGEST_PAUSE_SECONDS else None

    return retry(open_stream, pause_after=pause_after)
