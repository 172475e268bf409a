"""Bounds on what a process does at the same time, of which one caller has at most a share.

What is beyond a bound is refused at once: a queue in memory would grow, and answer too late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import ServerBusy

RETRY_SECONDS = 1
"""After which a refused caller may try again."""

_caller: ContextVar[str] = ContextVar("mochi_caller", default="")


def set_caller(caller: str) -> None:
    """Set for whom this task, and those that it starts, work: a token, or an address."""
    _caller.set(caller)


def current_caller() -> str:
    """Return for whom this task works; empty if it is for the process itself."""
    return _caller.get()


class Slots:
    """A number of slots; the process itself is bound by their number alone."""

    def __init__(self, name: str, most: int, *, share: float = 1.0) -> None:
        """Begin with all slots free.

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

    def check(self, caller: str | None = None) -> None:
        """Make sure that a caller, by default the current one, may have another slot.

        Raises:
            ServerBusy: it may not.
        """
        if self._count >= self._most:
            raise self._refusal(f"This server has {self._count} {self._name}", self._most)
        caller = current_caller() if caller is None else caller
        if caller and self._held[caller] >= self._most_of_one:
            raise self._refusal(
                f"This token or address has {self._held[caller]} {self._name}", self._most_of_one
            )

    @contextmanager
    def slot(self, caller: str | None = None) -> Iterator[None]:
        """Hold a slot for a caller, by default for the current one.

        Raises:
            ServerBusy: none is free for it.
        """
        caller = current_caller() if caller is None else caller
        self.take(caller)
        try:
            yield
        finally:
            self.release(caller)

    def take(self, caller: str) -> None:
        """Take a slot, which must be released; see ``slot``."""
        self.check(caller)
        self._count += 1
        self._held[caller] += 1

    def release(self, caller: str) -> None:
        """Release a slot that was taken for a caller."""
        self._count -= 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]

    def _refusal(self, begin: str, limit: int) -> ServerBusy:
        return ServerBusy(
            f"{begin} at the same time already; it may have {limit}.",
            details={"limit": limit},
            retry_after=RETRY_SECONDS,
        )
