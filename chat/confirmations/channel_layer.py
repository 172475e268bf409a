"""Confirmations between processes: they lie in a cache, a channel layer carries a signal.

What counts is in the cache, where exactly one of all who decide can delete one. The layer
only wakes the process that waits; should a signal be lost, that process finds the decision by
itself a little later (docs/decisions/0004-approvals-by-cache-and-layer.md).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import anyio
from channels.layers import channel_layers

from mochi_server.chat.confirmations import (
    ConfirmationBroker,
    ConfirmationDecision,
    ConfirmationRequest,
    PendingConfirmation,
)
from mochi_server.core.aio import run_to_completion
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    ToolConfirmationTimeout,
)

from .folder_layer import ChannelClosed
from .listener import DecisionListener, WaitingConfirmation
from .store import ConfirmationStore, StoredConfirmation

logger = logging.getLogger(__name__)

THREADS = 4
"""Threads for the cache: a pool of its own, so that a cache that hangs holds up no file."""

CACHE_SECONDS = 10.0
"""Longest wait for the cache."""

SIGNAL_SECONDS = 2.0
"""Longest wait for the layer to take a signal."""

CLAIMED_SECONDS = 5.0
"""Longest wait for a decision that was claimed just before the time was over."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

P = ParamSpec("P")
T = TypeVar("T")


class ChannelLayerConfirmations(ConfirmationBroker):
    """Decisions from any process that shares the cache and the channel layer.

    A process has one channel as long as it waits for a decision.
    """

    def __init__(
        self, *, timeout: float = 300.0, layer: str = "default", cache: str = "default"
    ) -> None:
        """Open nothing yet; the first confirmation does.

        Args:
            timeout: Seconds after which a confirmation expires.
            layer: Alias in ``CHANNEL_LAYERS``.
            cache: Alias in ``CACHES``.
        """
        self.timeout = timeout
        self._layer = layer
        self._store = ConfirmationStore(cache)
        self._threads: ThreadPoolExecutor | None = None
        self._listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, DecisionListener] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def ask(self, request: ConfirmationRequest) -> AsyncIterator[PendingConfirmation]:
        waiting = WaitingConfirmation(request, seconds=self.timeout)
        listener = self._join(waiting)
        pending = _PendingInCache(self, listener, waiting)
        try:
            await listener.open()
            await run_to_completion(self.in_thread(self._store.put, pending.stored))
            yield pending
        finally:
            await run_to_completion(self._leave(listener, pending))

    def _join(self, waiting: WaitingConfirmation) -> DecisionListener:
        """Let this process listen; without a pause, so that nothing else ends it meanwhile."""
        loop = asyncio.get_running_loop()
        listener = self._listeners.get(loop)
        if listener is None:
            for other in [other for other in self._listeners if other.is_closed()]:
                del self._listeners[other]
            listener = self._listeners[loop] = DecisionListener(
                self._get_layer, self._store, self.in_thread
            )
        listener.waiting[waiting.id] = waiting
        return listener

    def _get_layer(self) -> Any:  # noqa: ANN401 - of any class
        return channel_layers[self._layer]

    async def _leave(self, listener: DecisionListener, pending: _PendingInCache) -> None:
        del listener.waiting[pending.waiting.id]
        last = not listener.waiting
        if last:
            self._listeners.pop(asyncio.get_running_loop(), None)
        if listener.channel is not None:
            try:
                await self.in_thread(self._store.remove, pending.stored)
            except ConfirmationUnavailable as error:
                listener.remains.append(pending.stored)
                logger.warning("A confirmation stays in the cache until it expires: %s", error)
        if last:
            await self._end(listener)

    async def _end(self, listener: DecisionListener) -> None:
        await listener.close()  # first: it gives signs of life, and registers confirmations again
        if listener.channel is not None:
            with suppress(ConfirmationUnavailable):  # then everything ends by itself, later
                await self.in_thread(self._store.retire, listener.channel, listener.remains)

    async def decide(
        self, session_id: str, confirmation_id: str, decision: ConfirmationDecision
    ) -> None:
        if not (_ID.fullmatch(session_id) and _ID.fullmatch(confirmation_id)):
            raise ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)
        # A client that leaves now must not leave a confirmation claimed and not decided.
        await run_to_completion(self._decide(session_id, confirmation_id, decision))

    async def _decide(
        self, session_id: str, confirmation_id: str, decision: ConfirmationDecision
    ) -> None:
        listener = self._listeners.get(asyncio.get_running_loop())
        waiting = listener.waiting.get(confirmation_id) if listener is not None else None
        if listener is not None and waiting is not None:
            await self.in_thread(self._store.claim, session_id, confirmation_id)
            waiting.settle(decision)
            if confirmation_id not in listener.waiting:  # its turn has ended meanwhile
                raise ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)
            return
        confirmation = await self.in_thread(
            self._store.claim_and_decide, session_id, confirmation_id, decision
        )
        try:
            await self._signal(confirmation)
        except ChannelClosed as error:  # its process has died, or needed no signal
            if await self.in_thread(self._store.withdraw, confirmation):
                raise ConfirmationNotFound(
                    confirmation_id=confirmation_id, session_id=session_id
                ) from error

    async def _signal(self, confirmation: StoredConfirmation) -> None:
        """Wake the process that waits; it would look by itself, later."""
        message = {"type": "confirmation.decided", "confirmation_id": confirmation.id}
        try:
            with anyio.fail_after(SIGNAL_SECONDS):
                await self._get_layer().send(confirmation.channel, message)
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001 - any layer may be configured
            logger.warning("A decision is noticed late: %s: %s", type(error).__name__, error)

    async def pending(self, session_id: str) -> list[ConfirmationRequest]:
        if not _ID.fullmatch(session_id):
            return []
        return await self.in_thread(self._store.of_session, session_id)

    async def check(self) -> bool:
        try:
            await self.in_thread(self._store.check)
        except ConfirmationUnavailable:
            return False
        return True

    async def aclose(self) -> None:
        listener = self._listeners.pop(asyncio.get_running_loop(), None)
        if listener is not None:
            await listener.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the store in a thread, for a limited time."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mochi-confirmations")
        loop = asyncio.get_running_loop()
        step = loop.run_in_executor(self._threads, partial(function, *args, **kwargs))
        done, _ = await asyncio.wait({step}, timeout=CACHE_SECONDS)
        if not done:
            raise ConfirmationUnavailable(reason=f"no answer within {CACHE_SECONDS:g} s")
        return step.result()

    async def expired(self, listener: DecisionListener, pending: _PendingInCache) -> None:
        if not await run_to_completion(self.in_thread(self._store.expire, pending.stored)):
            listener.check_soon()
            with anyio.move_on_after(CLAIMED_SECONDS):
                await asyncio.wait({pending.waiting.future})
        if not pending.waiting.future.done():
            raise ToolConfirmationTimeout(confirmation_id=pending.waiting.id)


class _PendingInCache(PendingConfirmation):
    def __init__(
        self,
        broker: ChannelLayerConfirmations,
        listener: DecisionListener,
        waiting: WaitingConfirmation,
    ) -> None:
        self.waiting = waiting
        self._broker = broker
        self._listener = listener

    @property
    def stored(self) -> StoredConfirmation:
        return self._listener.stored(self.waiting)

    async def decision(self) -> ConfirmationDecision:
        future = self.waiting.future
        left = self.waiting.deadline - asyncio.get_running_loop().time()
        await asyncio.wait({future}, timeout=max(left, 0.0))
        if not future.done():
            await self._broker.expired(self._listener, self)
        return future.result()
