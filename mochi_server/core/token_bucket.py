"""A bound on how often something may happen, which lets a number of times through at once."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds up to ``capacity`` tokens, of which ``rate`` come back in a second."""

    def __init__(
        self, capacity: float, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._rate = rate
        self._clock = clock
        self._left = capacity
        self._filled = clock()

    def take(self) -> bool:
        """Take a token; return False if there is none."""
        now = self._clock()
        refill = (now - self._filled) * self._rate
        self._left, self._filled = min(self._capacity, self._left + refill), now
        if self._left < 1:
            return False
        self._left -= 1
        return True
