"""Ask a busy service again: the one retry of all vendors with an SDK, whose own is switched off.

Ollama and the built-in model are asked once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count
from typing import Final

import anyio

from ...errors import ProviderBusy
from ...protocol.completions import Chunk

ATTEMPTS: Final = 3
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 10.0
"""Longest pause; if a service asks for more, its error goes to the client, who may retry."""


async def retry_when_busy(
    open_stream: Callable[[], AsyncGenerator[Chunk, None]], *, attempts: int = ATTEMPTS
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of ``open_stream()``, opened again while the service is busy.

    Waits as long as the service says (``Retry-After``), else half a second, then twice as long.

    Raises:
        ProviderBusy: the service still is, or wants more than ten seconds, or was in mid-stream.
    """
    for attempt in count(1):
        has_begun = False
        try:
            async with aclosing(open_stream()) as chunks:
                async for chunk in chunks:
                    has_begun = True
                    yield chunk
        except ProviderBusy as error:
            pause: float | None = error.retry_after
            if pause is None:
                pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            if has_begun or attempt == attempts or pause > MAX_PAUSE_SECONDS:
                raise
        else:
            return
        await anyio.sleep(pause)
