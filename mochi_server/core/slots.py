"""Bounds on what a process does at the same time; one caller may use a share of each.

What is beyond a bound is refused at once: a queue in memory would grow, and answer too late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ServerBusy
from .caller import current_caller

RETRY_SECONDS = 1
"""After which a refused caller may try again."""


class Slots:
    """A limited number of slots; the server itself, whose holder is "", may use all of them."""

    def __init__(self, name: str, most: int, *, share: float = 1.0) -> None:
        """Make all slots free.

        Args:
            name: What holds them, in the plural, as an error names it.
            most: Their number.
            share: Largest part of them that one caller may hold, from 0 to 1.
        """
        self._name = name
        self._most = most
        self._most_of_one = max(1, int(most * share))
        self._held: Counter[str] = Counter()
        self._count = 0

    def check(self, holder: str | None = None) -> None:
        """Make sure that a holder, by default the one of the current caller, may have another slot.

        Raises:
            ServerBusy: it may not.
        """
        if self._count >= self._most:
            raise self._refusal(f"This server has {self._count} {self._name}", self._most)
        holder = current_caller().slot_holder if holder is None else holder
        if holder and self._held[holder] >= self._most_of_one:
            raise self._refusal(
                f"This token or address has {self._held[holder]} {self._name}", self._most_of_one
            )

    @contextmanager
    def slot(self, holder: str | None = None) -> Iterator[None]:
        """Hold a slot, by default for the holder of the current caller.

        Raises:
            ServerBusy: none is free for it.
        """
        holder = current_caller().slot_holder if holder is None else holder
        self.take(holder)
        try:
            yield
        finally:
            self.release(holder)

    def take(self, holder: str) -> None:
        """Take a slot, which must be released; see ``slot``."""
        self.check(holder)
        self._count += 1
        self._held[holder] += 1

    def release(self, holder: str) -> None:
        """Release a slot that was taken for a holder."""
        self._count -= 1
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]

    def _refusal(self, begin: str, limit: int) -> ServerBusy:
        return ServerBusy(
            f"{begin} at the same time already; it may have {limit}.",
            details={"limit": limit},
            retry_after=RETRY_SECONDS,
        )
