"""What all signals between processes promise; each object is a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mochi_server.chat.journal.redis_signals import RedisRunSignals
from mochi_server.chat.journal.signals import FileRunSignals, RunSignals
from tests.support.redis import needs_redis, running_redis

New = Callable[[], RunSignals]


@pytest.fixture(params=["files", pytest.param("redis", marks=needs_redis)])
async def new(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[New]:
    """Another process."""
    async with AsyncExitStack() as stack:
        redis = None
        if request.param == "redis":
            redis = await stack.enter_async_context(running_redis(tmp_path))

        def one() -> RunSignals:
            made = FileRunSignals(tmp_path) if redis is None else RedisRunSignals(redis.url)
            stack.push_async_callback(made.aclose)
            return made

        yield one


async def test_a_request_to_stop_is_seen_by_others_until_it_is_withdrawn(new: New) -> None:
    one, other = new(), new()
    assert list(await one.stop_requests()) == []
    await other.request_stop("run_1")
    assert list(await one.stop_requests()) == ["run_1"]
    assert list(await new().stop_requests()) == ["run_1"]
    await other.withdraw_stop("run_1")
    await other.withdraw_stop("run_1")
    assert list(await one.stop_requests()) == []


async def test_each_reader_of_another_process_counts(new: New) -> None:
    owner, first, second = new(), new(), new()
    assert not await owner.has_readers("run_1")
    leave_first, leave_second = await first.add_reader("run_1"), await second.add_reader("run_1")
    assert await owner.has_readers("run_1")
    await leave_first()
    assert await owner.has_readers("run_1")
    await leave_second()
    await leave_second()
    assert not await owner.has_readers("run_1")
    assert not await owner.has_readers("run_2")


async def test_a_reader_that_comes_again_counts_once_more(new: New) -> None:
    owner, reader = new(), new()
    leave = await reader.add_reader("run_1")
    leave_again = await reader.add_reader("run_1")
    await leave()
    assert await owner.has_readers("run_1")
    await leave_again()
    assert not await owner.has_readers("run_1")


async def test_what_is_new_is_not_pruned(new: New) -> None:
    one, other = new(), new()
    await other.request_stop("run_1")
    leave = await other.add_reader("run_1")
    await one.prune()
    assert list(await one.stop_requests()) == ["run_1"]
    assert await one.has_readers("run_1")
    await leave()
