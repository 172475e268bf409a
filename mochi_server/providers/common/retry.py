"""How a vendor's stream is read: patience with a busy one, whole characters."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

import anyio

from ...errors import ProviderBusy
from ..base import Chunk, ContentDelta, ThinkingDelta

ATTEMPTS: Final = 3
LONGEST_PAUSE_SECONDS: Final = 10.0
"""A service that wants more time than that is the client's to wait for."""

FIRST_PAUSE_SECONDS: Final = 0.5

_HALF: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


async def patiently(
    once: Callable[[], AsyncGenerator[Chunk, None]], *, attempts: int = ATTEMPTS
) -> AsyncGenerator[Chunk, None]:
    """The stream of ``once()``, again when the service was busy and nothing had come.

    Waits as long as the service says (``Retry-After``), else half a second, then a whole one.

    Raises:
        ProviderBusy: it still is, or wants more than ten seconds, or was in mid-stream.
    """
    for attempt in range(1, attempts + 1):
        begun = False
        try:
            async with aclosing(once()) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
        except ProviderBusy as error:
            pause = _pause(error, attempt)
            if begun or attempt == attempts or pause > LONGEST_PAUSE_SECONDS:
                raise
        else:
            return
        await anyio.sleep(pause)


def _pause(error: ProviderBusy, attempt: int) -> float:
    """Seconds to wait after an attempt."""
    if error.retry_after is not None:
        return error.retry_after
    return FIRST_PAUSE_SECONDS * float(2 ** (attempt - 1))


class WholeCharacters:
    """Lets whole characters through only, which alone can be stored and sent.

    Some servers cut a reply between the two halves of an emoji, or leave one of them out.
    """

    def __init__(self) -> None:
        self._half = ""
        self._kind: type[ContentDelta | ThinkingDelta] = ContentDelta

    def add(self, chunk: Chunk) -> Sequence[Chunk]:
        """What can be handed on after one more chunk."""
        is_text = isinstance(chunk, (ContentDelta, ThinkingDelta))
        found: list[Chunk] = []
        if self._half and not (is_text and type(chunk) is self._kind):
            found.append(self._kind(_REPLACEMENT))
            self._half = ""
        if not isinstance(chunk, (ContentDelta, ThinkingDelta)):
            return [*found, chunk]
        if not self._half and not _HALF.search(chunk.content):
            return [*found, chunk]
        self._kind = type(chunk)
        if text := self._whole(self._half + chunk.content):
            found.append(self._kind(text))
        return found

    def _whole(self, text: str) -> str:
        """The text with its pairs joined, but for a first half at its end, which is kept."""
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return _HALF.sub(_REPLACEMENT, text.removesuffix(self._half))
