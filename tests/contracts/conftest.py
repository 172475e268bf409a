"""One Redis and one PostgreSQL for all contracts, empty for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from pytest_django import DjangoDbBlocker

from mochi_server.state import SQLiteState, State, Statements
from sessions_app.backends.state import DatabaseState
from tests.support.databases import database_alias
from tests.support.postgresql import PROGRAMS, PostgreSQL, needs_postgresql, running_postgresql
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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_postgresql() -> AsyncIterator[PostgreSQL | None]:
    if PROGRAMS is None:
        yield None
        return
    async with running_postgresql() as server:
        yield server


NewState = Callable[[], State]
"""Returns the state as one process has it; the same one again, where it is that of one process."""


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=needs_postgresql)])
async def new_state(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    shared_postgresql: PostgreSQL | None,
    django_db_blocker: DjangoDbBlocker,
) -> AsyncIterator[NewState]:
    async with AsyncExitStack() as stack:
        in_memory = SQLiteState()
        make: NewState = partial(SQLiteState, tmp_path / "not" / "there" / "yet")
        if request.param == "postgresql":
            assert shared_postgresql is not None
            database = database_alias(shared_postgresql.url, django_db_blocker)
            make = partial(DatabaseState, alias=stack.enter_context(database))
            await empty(make())

        def new() -> State:
            state = in_memory if request.param == "memory" else make()
            stack.push_async_callback(state.aclose)
            return state

        yield new


async def empty(state: State) -> None:
    """Remove all rows and lines."""

    def remove(statements: Statements) -> None:
        for table in ("state_rows", "state_lines", "state_parts"):
            statements._execute(f"DELETE FROM {table}")

    await state.write(remove)
    await state.aclose()
