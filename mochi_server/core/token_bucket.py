"""A bound on how often something may happen, which lets a number of times through at once."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds up to ``most`` tokens, refilled with ``per_second``; each time takes one."""

    def __init__(
        self, most: int, per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._per_second = per_second
        self._clock = clock
        self._left = float(most)
        self._filled = clock()

    def take(self) -> bool:
        """Take a token; return False if there is none."""
        now = self._clock()
        refill = (now - self._filled) * self._per_second
        self._left, self._filled = min(self._most, self._left + refill), now
        if self._left < 1:
            return False
        self._left -= 1
        return True
