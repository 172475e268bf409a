"""Which streams are opened again, and which are not."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from mochi_server.errors import ProviderBusy, ProviderError
from mochi_server.providers.base import Chunk, ContentDelta
from mochi_server.providers.common.retry import retry_when_busy


class Streams:
    """Streams one after the other: each has its texts, then its error."""

    def __init__(self, *streams: tuple[list[str], Exception | None]) -> None:
        self._streams = iter(streams)
        self.opened = 0

    async def open(self) -> AsyncGenerator[Chunk, None]:
        self.opened += 1
        texts, error = next(self._streams)
        for text in texts:
            yield ContentDelta(text)
        if error is not None:
            raise error


async def test_a_stream_that_failed_before_its_first_chunk_is_opened_again() -> None:
    streams = Streams(([], ProviderBusy("busy", retry_after=0)), (["a", "b"], None))
    chunks = [chunk async for chunk in retry_when_busy(streams.open)]
    assert chunks == [ContentDelta("a"), ContentDelta("b")]
    assert streams.opened == 2


async def test_a_stream_that_has_begun_is_not_opened_again() -> None:
    streams = Streams((["a"], ProviderBusy("busy", retry_after=0)), (["b"], None))
    chunks = retry_when_busy(streams.open)
    assert await anext(chunks) == ContentDelta("a")
    with pytest.raises(ProviderBusy):
        await anext(chunks)
    assert streams.opened == 1


@pytest.mark.parametrize("error", [ProviderBusy("busy", retry_after=11), ProviderError("no")])
async def test_a_long_wait_and_other_errors_are_the_clients(error: ProviderError) -> None:
    streams = Streams(([], error), (["a"], None))
    with pytest.raises(type(error)):
        _ = [chunk async for chunk in retry_when_busy(streams.open)]
    assert streams.opened == 1


async def test_a_busy_service_is_asked_three_times() -> None:
    busy = ProviderBusy("busy", retry_after=0)
    streams = Streams(([], busy), ([], busy), ([], busy), (["a"], None))
    with pytest.raises(ProviderBusy):
        _ = [chunk async for chunk in retry_when_busy(streams.open)]
    assert streams.opened == 3
