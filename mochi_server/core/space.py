"""Limits of what is kept: measured now and then, and counted in between."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..errors import SpaceUsedUp
from .aio import KeyedLocks

MEASURE_SECONDS = 60.0
"""Age of a measurement that is made again: others add something as well."""

PAUSES = 20
"""A measurement is followed by a pause of that many times its duration."""

SMALL, NEAR = 1 / 1000, 1 / 16
"""Part of the limit, and of what is left of it, that is added before it is measured again: so many
processes that do not know of each other do not exceed the limit together."""


@dataclass(slots=True)
class _Used:
    measured: int
    """Bytes at the last measurement; nothing before the first one."""
    until_measured: float
    """Bytes that may be added before the next one."""
    due_at: float
    """When it is due in any case, as ``time.monotonic``."""
    again_at: float
    """When it can be made again at the earliest."""
    added: int = 0
    """Bytes since then."""


class SpaceLimit:
    """The limit of what each owner may keep, whoever adds to it."""

    def __init__(
        self, what: str, limit_mb: float, setting: str, measure: Callable[[str], Awaitable[int]]
    ) -> None:
        """Measure nothing yet.

        Args:
            what: What is limited, in the plural, as an error names it.
            limit_mb: The limit, in 10**6 bytes.
            setting: The setting that has it.
            measure: Returns how many bytes there are of an owner; "": of nobody.
        """
        self._what, self._limit_mb, self._setting = what, limit_mb, setting
        self._limit = limit_mb * 1_000_000
        self._measure = measure
        self._used: dict[str, _Used] = {}
        self._locks = KeyedLocks()

    async def take(self, size: int, owner: str | None = None) -> None:
        """Make sure that an owner has room for so many bytes more, and count them.

        Raises:
            SpaceUsedUp: there is none.
            StorageError: it cannot be measured.
        """
        key = owner or ""
        async with self._locks.holding(key):
            now = time.monotonic()
            used = self._used.setdefault(
                key, _Used(0, self._limit * SMALL, now + MEASURE_SECONDS, now)
            )
            is_over = used.measured + used.added + size > self._limit
            if (
                used.added + size > used.until_measured
                or now > used.due_at
                or (is_over and now >= used.again_at)
            ):
                used = self._used[key] = await self._measured(key)
            if used.measured + used.added + size > self._limit:
                raise SpaceUsedUp(what=self._what, limit_mb=self._limit_mb, setting=self._setting)
            used.added += size

    async def _measured(self, key: str) -> _Used:
        began = time.monotonic()
        measured = await self._measure(key)
        now = time.monotonic()
        pause = PAUSES * (now - began)
        left = max(self._limit * SMALL, (self._limit - measured) * NEAR)
        return _Used(measured, left, now + max(MEASURE_SECONDS, pause), now + pause)

    def measure_again(self) -> None:
        """Let the next one that has no room be measured at once: something was deleted."""
        for used in self._used.values():
            used.again_at = 0.0


_BLOCK = 4096
"""Bytes of a disk that the smallest file, and a folder, takes."""


def room_of(size: int, *, beside: int = 0) -> int:
    """Return the bytes of a disk that a file takes, with so many small files or folders beside."""
    return (-(-size // _BLOCK) + beside) * _BLOCK
