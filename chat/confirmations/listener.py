"""The side that waits: one channel for all confirmations of a process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from mochi_server.chat.confirmations import ConfirmationDecision, ConfirmationRequest
from mochi_server.core.aio import BackgroundTasks, run_to_completion
from mochi_server.errors import ConfirmationUnavailable

from .store import ConfirmationStore, StoredConfirmation

logger = logging.getLogger(__name__)

OPEN_SECONDS = 5.0
"""Longest wait for a channel."""

CHECK_SECONDS = 2.0
"""Pause between two searches for decisions whose signal was lost."""

RETRY_SECONDS = 1.0
"""Pause after the layer failed."""

END_SECONDS = 2.0
"""Longest wait for the end of listening."""

InThread = Callable[..., Coroutine[Any, Any, Any]]
GetLayer = Callable[[], Any]


class WaitingConfirmation:
    """A confirmation that waits in this process."""

    def __init__(self, request: ConfirmationRequest, *, seconds: float) -> None:
        self.request = request
        self.seconds = seconds
        """How long it can be decided."""
        loop = asyncio.get_running_loop()
        self.deadline = loop.time() + seconds
        """When its time is over, on the loop's clock."""
        self.expires = time.monotonic() + seconds
        """The same on the machine's monotonic clock."""
        self.future: asyncio.Future[ConfirmationDecision] = loop.create_future()
        self.missing = 0
        """How many checks in a row have found nothing of it in the cache."""

    @property
    def id(self) -> str:
        return self.request.confirmation_id

    def settle(self, decision: ConfirmationDecision) -> None:
        if not self.future.done():
            self.future.set_result(decision)


class DecisionListener:
    """Listens for decisions on a process's confirmations, from the first one to the last."""

    def __init__(self, layer: GetLayer, store: ConfirmationStore, in_thread: InThread) -> None:
        self.waiting: dict[str, WaitingConfirmation] = {}
        self.remains: list[StoredConfirmation] = []
        """Confirmations that are over, and could not be removed from the cache yet."""
        self.channel: str | None = None
        self._get_layer = layer
        self._layer: Any = None
        self._store = store
        self._in_thread = in_thread
        self._tasks = BackgroundTasks()
        self._opening: asyncio.Task[ConfirmationUnavailable | None] | None = None
        self._running: list[asyncio.Task[None]] = []
        self._hurry: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stored(self, waiting: WaitingConfirmation) -> StoredConfirmation:
        return StoredConfirmation(
            waiting.request, self.channel or "", waiting.seconds, waiting.expires
        )

    async def open(self) -> None:
        """Open a channel and listen to it; may be called again."""
        if self._opening is None:
            self._opening = self._tasks.spawn(self._open(), name="a channel for confirmations")
        problem = await asyncio.shield(self._opening)
        if problem is not None:
            raise problem

    async def _open(self) -> ConfirmationUnavailable | None:
        try:
            self._layer = self._get_layer()
            with anyio.fail_after(OPEN_SECONDS):
                self.channel = await self._layer.new_channel()
        except Exception as error:  # noqa: BLE001 - any layer may be configured
            return ConfirmationUnavailable(reason=f"{type(error).__name__}: {error}")
        self._running = [
            self._tasks.spawn(self._listen(self.channel), name="decisions of other processes"),
            self._tasks.spawn(self._check_often(self.channel), name="check of confirmations"),
        ]
        return None

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait({self._opening})
        await asyncio.sleep(0)  # a task that never began would not end its channel
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=END_SECONDS)

    def check_soon(self) -> None:
        if not self._hurry.done():
            self._hurry.set_result(None)

    async def _listen(self, channel: str) -> None:
        """Receive signals, and nothing else: a layer ends a channel whose receiver is cancelled."""
        while True:
            try:
                message = await self._layer.receive(channel)
            except Exception as error:  # noqa: BLE001, PERF203 - any layer may be configured
                logger.warning("Confirmations: %s: %s", type(error).__name__, error)
                await anyio.sleep(RETRY_SECONDS)
            else:
                self._tasks.spawn(self._fetch(message["confirmation_id"]), name="a decision")

    async def _check_often(self, channel: str) -> None:
        while True:
            # Not a scope: before Python 3.11 one that times out may swallow the end of this task.
            await asyncio.wait({self._hurry}, timeout=CHECK_SECONDS)
            self._hurry = asyncio.get_running_loop().create_future()
            try:
                await self._check(channel)
            except ConfirmationUnavailable as error:
                logger.warning("%s", error)

    async def _check(self, channel: str) -> None:
        """Fetch decisions without a signal; register again what has vanished from the cache."""
        ids = [name for name, waiting in self.waiting.items() if not waiting.future.done()]
        changes = await run_to_completion(self._in_thread(self._store.changes, channel, ids))
        for confirmation_id in changes.decided:
            await self._fetch(confirmation_id)
        missing = set(changes.missing)
        for confirmation_id in ids:
            if (waiting := self.waiting.get(confirmation_id)) is not None:
                waiting.missing = waiting.missing + 1 if confirmation_id in missing else 0
                if waiting.missing > 1 and not waiting.future.done():
                    await self._put_again(waiting)
        while self.remains:
            confirmation = self.remains[-1]
            await self._in_thread(self._store.remove, confirmation)
            self.remains.remove(confirmation)  # another one may be the last by now

    async def _put_again(self, waiting: WaitingConfirmation) -> None:
        """Register it again: who claimed it died before deciding, or the cache was emptied."""
        waiting.missing = 0
        try:
            await run_to_completion(self._in_thread(self._store.put, self.stored(waiting)))
        finally:  # also where this task is to end: then whoever ends it removes the confirmation
            if waiting.id not in self.waiting or waiting.future.done():
                self.remains.append(self.stored(waiting))

    async def _fetch(self, confirmation_id: str) -> None:
        """Fetch a decision; after a failure the next check does it."""
        waiting = self.waiting.get(confirmation_id)
        if waiting is None or waiting.future.done():
            return
        loop = asyncio.get_running_loop()

        def take() -> None:
            decision = self._store.take_decision(confirmation_id)
            if decision is not None:  # settled from here: it counts also after the wait for it
                loop.call_soon_threadsafe(waiting.settle, decision)

        try:
            await self._in_thread(take)
        except ConfirmationUnavailable as error:
            logger.warning("%s", error)
