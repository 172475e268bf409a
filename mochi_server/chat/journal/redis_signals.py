"""Signals between the processes of several machines, in Redis.

Requests to stop are one sorted set. The processes that read a run are a sorted set of that run,
ordered by the time at which their marks expire unless they are renewed: a process that has died
reads nothing. All times are those of Redis.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import anyio
from redis.exceptions import RedisError

from ...core.aio import BackgroundTasks
from ...core.redis import connect
from .base import translate_errors
from .redis import LEASE_SECONDS
from .signals import Leave, RunSignals

STOPS: Final = "mochi:runs:stops"
"""Sorted set of the runs that somebody wants to stop, by the time of the request."""

ABANDONED_SECONDS: Final = 60
"""Age from which a request to stop was left by a crash."""

_REQUEST = """
redis.call('ZADD', KEYS[1], redis.call('TIME')[1], ARGV[1])
"""

_PRUNE = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', redis.call('TIME')[1] - ARGV[1])
"""

_MARK = """
local now = redis.call('TIME')
local expires = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[1]
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], expires, ARGV[i + 1])
  redis.call('PEXPIRE', KEYS[i], ARGV[1])
end
"""

_COUNT = """
local now = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], now[1] * 1000 + math.floor(now[2] / 1000), '+inf')
"""


class RedisRunSignals(RunSignals):
    """Signals in Redis.

    While Redis cannot be reached nothing is stopped by others, and the readers of other processes
    count as long as their marks could last.
    """

    def __init__(self, url: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._redis = connect(url)
        self._lease_seconds = lease_seconds
        self._requesting = self._redis.register_script(_REQUEST)
        self._pruning = self._redis.register_script(_PRUNE)
        self._marking = self._redis.register_script(_MARK)
        self._counting = self._redis.register_script(_COUNT)
        self._names = map(f"{secrets.token_hex(8)}:{{}}".format, itertools.count(1))
        self._marks: dict[str, str] = {}
        """Runs that are read here, by the names of the marks."""
        self._tasks = BackgroundTasks()
        self._renewer: asyncio.Task[None] | None = None
        self._reached: float | None = None
        """When Redis has answered last."""

    async def request_stop(self, run_id: str) -> None:
        """See the base class.

        Raises:
            StorageError: Redis cannot be reached.
        """
        with translate_errors(RedisError):
            await self._requesting((STOPS,), (run_id,))

    async def withdraw_stop(self, run_id: str) -> None:
        with suppress(RedisError):  # it is too old soon
            await self._redis.zrem(STOPS, run_id)

    async def stop_requests(self) -> Collection[str]:
        try:
            requests = await self._redis.zrange(STOPS, 0, -1)
        except RedisError:
            return ()
        self._reached = time.monotonic()
        return [run_id.decode() for run_id in requests]

    async def add_reader(self, run_id: str) -> Leave:
        name = next(self._names)
        self._marks[name] = run_id
        if self._renewer is None or self._renewer.done():
            self._renewer = self._tasks.spawn(self._renew(), name="readers of runs")
        await self._mark({name: run_id})

        async def leave() -> None:
            self._marks.pop(name, None)
            with suppress(RedisError):  # the mark expires
                await self._redis.zrem(_key(run_id), name)

        return leave

    async def _renew(self) -> None:
        while self._marks:
            await anyio.sleep(self._lease_seconds / 3)
            await self._mark(self._marks)

    async def _mark(self, marks: dict[str, str]) -> None:
        if marks:
            with suppress(RedisError):  # tried again when marks are renewed
                keys = [_key(run_id) for run_id in marks.values()]
                await self._marking(keys, (int(self._lease_seconds * 1000), *marks))

    async def has_readers(self, run_id: str) -> bool:
        try:
            count = await self._counting((_key(run_id),))
        except RedisError:
            reached = self._reached
            return reached is not None and time.monotonic() - reached < self._lease_seconds
        self._reached = time.monotonic()
        return bool(count)

    async def prune(self) -> None:
        with suppress(RedisError):
            await self._pruning((STOPS,), (ABANDONED_SECONDS,))

    async def aclose(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.wait({self._renewer})
        await self._redis.aclose()


def _key(run_id: str) -> str:
    return f"mochi:run:{run_id}:readers"
