"""Signals in Redis: marks that expire, and a Redis that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mochi_server.chat.journal import redis_signals as redis_signals_module
from mochi_server.chat.journal.redis_signals import RedisRunSignals
from mochi_server.errors import StorageError
from tests.support.cut_redis import Line
from tests.support.redis import Redis, needs_redis

pytestmark = needs_redis


@asynccontextmanager
async def signals(*urls: str, lease_seconds: float = 10.0) -> AsyncIterator[list[RedisRunSignals]]:
    made = [RedisRunSignals(url, lease_seconds=lease_seconds) for url in urls]
    try:
        yield made
    finally:
        for one in made:
            await one.aclose()


async def until_read(owner: RedisRunSignals, *, read: bool = True) -> None:
    with anyio.fail_after(30):
        while await owner.has_readers("run_1") is not read:  # noqa: ASYNC110 - of others
            await asyncio.sleep(0.02)


async def test_a_reader_counts_for_as_long_as_its_process_lives(redis: Redis, line: Line) -> None:
    async with signals(redis.url, line.url, lease_seconds=0.3) as [owner, reader]:
        await reader.add_reader("run_1")
        for _ in range(4):  # longer than one lease
            await redis.until_renewed("mochi:run:run_1:readers", 0.3)
        await until_read(owner)
        line.cut()
        await until_read(owner, read=False)
        line.mend()
        await until_read(owner)


async def test_a_reader_that_came_without_redis_counts_when_it_is_back(
    redis: Redis, line: Line
) -> None:
    async with signals(redis.url, line.url, lease_seconds=0.3) as [owner, reader]:
        line.cut()
        leave = await reader.add_reader("run_1")
        assert not await owner.has_readers("run_1")
        line.mend()
        await until_read(owner)
        await leave()


async def test_readers_count_without_redis_as_long_as_their_marks_could_last(
    redis: Redis, line: Line
) -> None:
    async with (
        signals(line.url, line.url, lease_seconds=0.3) as [owner, late],
        signals(line.url, lease_seconds=600) as [patient],
    ):
        await owner.stop_requests()
        await patient.stop_requests()
        line.cut()
        await until_read(owner, read=False)
        assert await patient.has_readers("run_1")
        assert not await late.has_readers("run_1")


async def test_without_redis_nothing_can_be_stopped_elsewhere(redis: Redis) -> None:
    async with signals(redis.url) as [one]:
        leave = await one.add_reader("run_1")
        await redis.stop()
        with pytest.raises(StorageError):
            await one.request_stop("run_1")
        await one.withdraw_stop("run_1")
        assert list(await one.stop_requests()) == []
        await one.prune()
        await leave()


async def test_what_a_crash_has_left_is_removed_when_it_is_old(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signals(redis.url, lease_seconds=0.1) as [one]:
        await one.request_stop("run_1")
        await one.add_reader("run_1")
    monkeypatch.setattr(redis_signals_module, "ABANDONED_SECONDS", 0)
    async with signals(redis.url) as [other]:
        await until_read(other, read=False)
        await other.prune()
        assert list(await other.stop_requests()) == []
        assert await redis.keys() == []
