"""Which providers answer, and whether Redis does; asked seldom and never for long."""

from __future__ import annotations

import asyncio
import time

import anyio

from mochi_server.errors import MochiError
from mochi_server.runtime import Runtime

LIMIT_SECONDS = 1.0
"""A provider that has not answered by then counts as not reachable."""

FRESH_SECONDS = 3.0
"""Age up to which an answer is given again."""


class ProviderHealth:
    """The reachability of a runtime's providers; one check at a time, however many ask."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.redis: bool | None = None
        """Whether Redis answered last; null where none is configured."""
        self._known: dict[str, bool] = {}
        self._at = float("-inf")
        self._checking: asyncio.Task[None] | None = None

    async def reachable(self) -> dict[str, bool]:
        """``{alias: whether it answers}``, in the order of the aliases."""
        if time.monotonic() - self._at > FRESH_SECONDS:
            if self._checking is None or self._checking.done():
                self._checking = self.runtime.background.spawn(
                    self._check(), name="check of the providers"
                )
            await asyncio.shield(self._checking)
        return self._known

    async def _check(self) -> None:
        found = dict.fromkeys(self.runtime.providers.aliases, False)

        async def ask(alias: str) -> None:
            with anyio.move_on_after(LIMIT_SECONDS):
                try:
                    found[alias] = await self.runtime.providers.get(alias).check()
                except MochiError:  # not configured
                    found[alias] = False

        async with anyio.create_task_group() as group:
            group.start_soon(self._check_redis)
            for alias in found:
                group.start_soon(ask, alias)
        self._known = found
        self._at = time.monotonic()

    async def _check_redis(self) -> None:
        if self.runtime.settings.redis_url is None:
            return
        answers = False
        with anyio.move_on_after(LIMIT_SECONDS):
            answers = await self.runtime.approvals.check()
        self.redis = answers


_current: ProviderHealth | None = None


def health_of(runtime: Runtime) -> ProviderHealth:
    """The one of this runtime."""
    global _current  # noqa: PLW0603 - as long as the runtime itself
    if _current is None or _current.runtime is not runtime:
        _current = ProviderHealth(runtime)
    return _current
