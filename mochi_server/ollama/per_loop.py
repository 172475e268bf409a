"""Things that belong to one event loop each, such as HTTP clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One ``T`` for each running event loop, made at first use.

    A client that two loops share fails with "Event loop is closed" in the second.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._made.get(loop)
        if found is None:
            found = self._made[loop] = self._make()
        return found

    def take_all(self) -> list[T]:
        """All of them, to be closed; later uses make new ones."""
        found = list(self._made.values())
        self._made.clear()
        return found
