"""The client of Redis, by which processes on several machines share what they know."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import anyio
from redis import exceptions
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 3.0
"""Longest wait for an answer; a blocking read must be shorter."""

CHECK_KEY: Final = "mochi:check"

MAX_CONNECTIONS = 10_000
"""Each blocking read has a connection of its own."""


def connect(url: str) -> Any:  # noqa: ANN401 - its types name bytes, texts and all clients at once
    """Return a ``redis.asyncio.Redis``, which connects when it is used.

    A command without an answer is sent once more, on a new connection: it must be one that may be
    executed twice.

    Raises:
        ValueError: The address has options that do not exist.
    """
    pool: Any = ConnectionPool.from_url(
        url,
        retry=Retry(NoBackoff(), 1),
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        max_connections=MAX_CONNECTIONS,
        encoding_errors="replace",
    )
    pool.connection_class = _cancellable(pool.connection_class)
    return Redis.from_pool(pool)


async def is_writable(url: str) -> bool:
    """Return whether Redis answers, and takes a key."""
    redis = connect(url)
    try:
        return bool(await redis.set(CHECK_KEY, 1, px=1000))
    except exceptions.RedisError:
        return False
    finally:
        await redis.aclose()


def _cancellable(kind: Any) -> Any:  # noqa: ANN401 - one of three classes
    """Return a kind of connection that loses no cancellation while it sends, and closes silently.

    It would use ``asyncio.wait_for``, which loses some before Python 3.12.
    """

    class CancellableConnection(kind):  # type: ignore[misc]
        socket_timeout: float | None

        async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            if not self.is_connected:
                await self.connect_check_health(check_health=False)
            seconds, self.socket_timeout = self.socket_timeout, None
            try:
                with anyio.fail_after(seconds):
                    await super().send_packed_command(*args, **kwargs)
            except TimeoutError as error:
                raise exceptions.TimeoutError("Timeout writing to socket") from error
            finally:
                self.socket_timeout = seconds

        async def disconnect(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            with suppress(exceptions.TimeoutError):  # closed all the same, whoever sees its end
                await super().disconnect(*args, **kwargs)

    return CancellableConnection
