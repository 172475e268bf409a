"""Wakes those who wait for a change that another task or process makes.

A signal says that something may have changed; what has changed is in the state. One that gets lost
costs ``LOST_SECONDS`` at most, as nobody waits longer before looking again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from ..core.aio import BackgroundTasks
from ..errors import StorageError
from .base import State
from .statements import Version

LOST_SECONDS: Final = 1.0
"""Longest wait for a signal."""


class Subscription:
    """What wakes one who waits for the signals of a topic."""

    def __init__(self) -> None:
        self._signal = asyncio.Event()

    def wake(self) -> None:
        self._signal.set()

    async def wait(self, seconds: float = LOST_SECONDS) -> bool:
        """Wait for a signal after the one before, and return whether there was one in time."""
        with anyio.move_on_after(seconds):
            await self._signal.wait()
        is_woken = self._signal.is_set()
        self._signal.clear()
        return is_woken


class Signals:
    """Signals within one process, and one event loop."""

    def __init__(self) -> None:
        self._subscriptions: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._tasks = BackgroundTasks()

    def send(self, topic: str) -> None:
        """Wake all who have subscribed to a topic; this never fails, and need not arrive."""
        self._wake((topic,))

    @contextmanager
    def subscribe(self, topic: str) -> Iterator[Subscription]:
        """Receive the signals of a topic from now on."""
        subscription = Subscription()
        self._subscriptions[topic].add(subscription)
        self._begin()
        try:
            yield subscription
        finally:
            self._subscriptions[topic].discard(subscription)

    async def aclose(self) -> None:
        """Receive nothing from other processes any more."""
        self._tasks.cancel()
        await self._tasks.drain(LOST_SECONDS)

    def _begin(self) -> None:
        """Begin to receive what other processes send."""

    def _wake(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for subscription in self._subscriptions.get(topic, ()):
                subscription.wake()


class StateSignals(Signals):
    """Signals within a process; it looks for changes that others have made to the state.

    It does so while somebody waits and there are others.
    """

    def __init__(self, state: State, *, are_others: Callable[[], bool] = lambda: True) -> None:
        """Look only while ``are_others`` says that other processes use the state."""
        super().__init__()
        self._state = state
        self._are_others = are_others
        self._is_looking = False

    def _begin(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._tasks.spawn(self._look(), name="changes of other processes")

    async def _look(self) -> None:
        version: Version | None = None
        try:
            while any(self._subscriptions.values()):
                if not self._are_others():
                    await anyio.sleep(LOST_SECONDS)
                    continue
                again = anyio.current_time() + LOST_SECONDS
                while anyio.current_time() < again:
                    version = await self._wake_if_changed(version)
                    await anyio.sleep(self._state.look_seconds)
        finally:
            self._is_looking = False

    async def _wake_if_changed(self, known: Version | None) -> Version | None:
        try:
            version = await self._state.version()
        except StorageError:  # whoever waits is told when it looks
            return known
        if version != known:
            self._wake([*self._subscriptions])
        return version
