"""Redis, where the settings name one."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from ..config import server_processes
from ..core.aio import in_daemon_thread
from ..core.progress import counted
from ..processes import redis_package_problem, sessions_problem
from ..runtime import Runtime
from ..server.startup import place_of_redis, redis_client
from .findings import Finding, error, ok, warning

if TYPE_CHECKING:
    from redis import Redis

ANSWER_SECONDS = 2.0
SLOW_SECONDS = 0.1


async def look_at_redis(runtime: Runtime) -> list[Finding]:
    """Whether processes could work together, and what lies between them."""
    settings = runtime.settings
    processes = server_processes(settings)
    if (problem := sessions_problem(settings, processes)) is not None:
        return [error(problem, "See docs/how-to/several-workers.md.")]
    count = counted(processes, "worker")
    if settings.redis_url is None:
        return [ok(f"{count}; confirmations go through the data folder, no Redis is set.")]
    if (problem := redis_package_problem(settings)) is not None:
        return [error(problem, "Install it, or remove MOCHI_REDIS_URL.")]
    return [ok(f"{count}."), await in_daemon_thread(_look, settings.redis_url)]


def _look(url: str) -> Finding:
    from redis import RedisError  # noqa: PLC0415 - an extra, and seldom wanted

    try:
        with closing(redis_client(url, ANSWER_SECONDS)) as client:
            client.ping()
            began = time.monotonic()
            client.ping()
            seconds = time.monotonic() - began
            version = _version_of(client)
    except (RedisError, OSError, ValueError) as found:
        return error(
            f"Redis at {place_of_redis(url)} cannot be used: {found}",
            "Start it or correct MOCHI_REDIS_URL: no tool call can be confirmed without it.",
        )
    text = f"Redis{version} at {place_of_redis(url)} answers in {seconds * 1000:.0f} ms."
    if seconds > SLOW_SECONDS:
        return warning(text, "Use one that is nearer, or has less to do.")
    return ok(text)


def _version_of(client: Redis) -> str:
    """Empty where the user may not ask for it."""
    from redis import ResponseError  # noqa: PLC0415

    try:
        return f" {client.info('server')['redis_version']}"
    except ResponseError:
        return ""
