"""One Redis for all contracts, empty for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.redis import PROGRAM, Redis, running_redis


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Redis | None]:
    if PROGRAM is None:
        yield None
        return
    async with running_redis(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
async def redis_url(shared_redis: Redis | None) -> str:
    """Its address; of no use where there is none, as tests that need it are skipped."""
    if shared_redis is None:
        return "redis://nowhere"
    assert await shared_redis.command("FLUSHALL") == b"+OK\r\n"
    return shared_redis.url
