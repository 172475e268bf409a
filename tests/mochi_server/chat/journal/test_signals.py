"""What processes tell each other about runs, in the files of a folder or in Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mochi_server.chat.journal import redis_signals as redis_signals_module
from mochi_server.chat.journal import signals as signals_module
from mochi_server.chat.journal.redis_signals import RedisRunSignals
from mochi_server.chat.journal.signals import FileRunSignals, RunSignals
from mochi_server.errors import StorageError
from tests.support.redis import needs_redis


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_folder_that_has_not_changed_is_not_listed(tmp_path, monkeypatch):
    signals = FileRunSignals(tmp_path)
    now = 1000.0
    monkeypatch.setattr(signals_module.time, "monotonic", lambda: now)
    assert list(await signals.stop_requests()) == []
    now += 10
    assert list(await signals.stop_requests()) == []
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("it was listed"))
    assert list(await signals.stop_requests()) == []


async def test_a_request_of_the_same_instant_is_seen_by_who_stood_still_after_it(
    tmp_path, monkeypatch
):
    """It did not change the time of the folder, which is coarse."""
    signals, other = FileRunSignals(tmp_path), FileRunSignals(tmp_path)
    assert list(await signals.stop_requests()) == []
    instant = tmp_path.stat().st_mtime_ns
    await other.request_stop("run_1")
    os.utime(tmp_path, ns=(instant, instant))
    later = signals_module.time.monotonic() + 10
    monkeypatch.setattr(signals_module.time, "monotonic", lambda: later)
    assert list(await signals.stop_requests()) == ["run_1"]


async def test_what_a_crash_has_left_is_removed_when_it_is_old(tmp_path):
    signals = FileRunSignals(tmp_path)
    for run_id in ("run_1", "run_2"):
        await signals.request_stop(run_id)
        await (await signals.add_reader(run_id))()
    leave = await signals.add_reader("run_2")
    os.utime(tmp_path / "run_1.stop", (0, 0))
    await signals.prune()
    assert names(tmp_path) == ["run_2.readers", "run_2.stop"]
    await leave()


@pytest.mark.parametrize("run_id", ["../other", "a\0b", "a" * 300, "", "."])
async def test_what_can_be_no_run_is_not_asked_to_stop(tmp_path, run_id):
    (tmp_path / "other.stop").touch()
    folder = tmp_path / "runs"
    folder.mkdir()
    signals = FileRunSignals(folder)
    await signals.request_stop(run_id)
    await signals.withdraw_stop(run_id)
    assert names(folder) == []
    assert names(tmp_path) == ["other.stop", "runs"]


async def test_a_folder_that_cannot_be_used_tells_nothing(tmp_path):
    file = tmp_path / "file"
    file.touch()
    signals = FileRunSignals(file)
    assert list(await signals.stop_requests()) == []
    assert not await signals.has_readers("run_1")
    await (await signals.add_reader("run_1"))()
    with pytest.raises(StorageError, match="file"):
        await signals.request_stop("run_1")


async def test_a_process_alone_has_no_signals():
    signals = RunSignals()
    await signals.request_stop("run_1")
    assert list(await signals.stop_requests()) == []
    await (await signals.add_reader("run_1"))()
    assert not await signals.has_readers("run_1")


# In Redis


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


@needs_redis
async def test_a_reader_counts_for_as_long_as_its_process_lives(redis, line):
    async with signals(redis.url, line.url, lease_seconds=0.3) as [owner, reader]:
        await reader.add_reader("run_1")
        for _ in range(4):  # longer than one lease
            await redis.until_renewed("mochi:run:run_1:readers", 0.3)
        await until_read(owner)
        line.cut()
        await until_read(owner, read=False)
        line.mend()
        await until_read(owner)


@needs_redis
async def test_a_reader_that_came_without_redis_counts_when_it_is_back(redis, line):
    async with signals(redis.url, line.url, lease_seconds=0.3) as [owner, reader]:
        line.cut()
        leave = await reader.add_reader("run_1")
        assert not await owner.has_readers("run_1")
        line.mend()
        await until_read(owner)
        await leave()


@needs_redis
async def test_readers_count_without_redis_as_long_as_their_marks_could_last(redis, line):
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


@needs_redis
async def test_without_redis_nothing_can_be_stopped_elsewhere(redis):
    async with signals(redis.url) as [one]:
        leave = await one.add_reader("run_1")
        await redis.stop()
        with pytest.raises(StorageError):
            await one.request_stop("run_1")
        await one.withdraw_stop("run_1")
        assert list(await one.stop_requests()) == []
        await one.prune()
        await leave()


@needs_redis
async def test_what_a_crash_has_left_in_redis_is_removed_when_it_is_old(redis, monkeypatch):
    async with signals(redis.url, lease_seconds=0.1) as [one]:
        await one.request_stop("run_1")
        await one.add_reader("run_1")
    monkeypatch.setattr(redis_signals_module, "ABANDONED_SECONDS", 0)
    async with signals(redis.url) as [other]:
        await until_read(other, read=False)
        await other.prune()
        assert list(await other.stop_requests()) == []
        assert await redis.keys() == []
