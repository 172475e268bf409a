"""The side that waits: one channel for all the questions of a process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from mochi_server.chat.confirmations import Confirmation, ConfirmationDecision
from mochi_server.core.aio import BackgroundTasks, run_to_completion
from mochi_server.errors import ConfirmationUnavailable

from .store import QuestionStore, StoredQuestion

logger = logging.getLogger(__name__)

OPEN_SECONDS = 5.0
"""Longest wait for a channel."""

LOOK_SECONDS = 2.0
"""Pause between two looks for decisions whose signal was lost."""

AGAIN_SECONDS = 1.0
"""Pause after the layer failed."""

END_SECONDS = 2.0
"""Longest wait for the end of listening."""

InThread = Callable[..., Coroutine[Any, Any, Any]]
GetLayer = Callable[[], Any]


class WaitingQuestion:
    """A question that waits in this process."""

    def __init__(self, request: Confirmation, *, seconds: float) -> None:
        self.request = request
        self.seconds = seconds
        """How long it may be open."""
        loop = asyncio.get_running_loop()
        self.deadline = loop.time() + seconds
        """When its time is over, on the loop's clock, which nobody sets."""
        self.expires = time.monotonic() + seconds
        """The same on the machine's."""
        self.future: asyncio.Future[ConfirmationDecision] = loop.create_future()
        self.missing = 0
        """How many looks in a row have found nothing of it in the cache."""

    @property
    def id(self) -> str:
        """The confirmation's id."""
        return self.request.confirmation_id

    def settle(self, decision: ConfirmationDecision) -> None:
        """It is decided; the first decision counts."""
        if not self.future.done():
            self.future.set_result(decision)


class DecisionListener:
    """Listens for the decisions of a process's questions, from the first one to the last."""

    def __init__(self, layer: GetLayer, store: QuestionStore, in_thread: InThread) -> None:
        self.waiting: dict[str, WaitingQuestion] = {}
        self.left: list[StoredQuestion] = []
        """Questions that are over, and could not be taken out of the cache yet."""
        self.channel: str | None = None
        self._get_layer = layer
        self._layer: Any = None
        self._store = store
        self._in_thread = in_thread
        self._tasks = BackgroundTasks()
        self._opening: asyncio.Task[ConfirmationUnavailable | None] | None = None
        self._running: list[asyncio.Task[None]] = []
        self._hurry: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def question(self, waiting: WaitingQuestion) -> StoredQuestion:
        """A question as the cache has it."""
        return StoredQuestion(waiting.request, self.channel or "", waiting.seconds, waiting.expires)

    async def open(self) -> None:
        """Have a channel and listen to it; may be called again.

        Raises:
            ConfirmationUnavailable: there is no channel to be had.
        """
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
            self._tasks.spawn(self._watch(self.channel), name="watch over open questions"),
        ]
        return None

    async def close(self) -> None:
        """Stop listening, which ends the channel."""
        if self._opening is not None:
            await asyncio.wait({self._opening})
        await asyncio.sleep(0)  # a task that never began would not end its channel
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=END_SECONDS)

    def look_soon(self) -> None:
        """Do not wait for the next look."""
        if not self._hurry.done():
            self._hurry.set_result(None)

    async def _listen(self, channel: str) -> None:
        """Layers end a channel when whoever receives is cancelled: so do nothing else here."""
        while True:
            try:
                message = await self._layer.receive(channel)
            except Exception as error:  # noqa: BLE001, PERF203 - any layer may be configured
                logger.warning("Confirmations: %s: %s", type(error).__name__, error)
                await anyio.sleep(AGAIN_SECONDS)
            else:
                self._tasks.spawn(self._fetch(message["confirmation_id"]), name="a decision")

    async def _watch(self, channel: str) -> None:
        while True:
            # Not a scope: before Python 3.11 one that times out may swallow the end of this task.
            await asyncio.wait({self._hurry}, timeout=LOOK_SECONDS)
            self._hurry = asyncio.get_running_loop().create_future()
            try:
                await self._look(channel)
            except ConfirmationUnavailable as error:
                logger.warning("%s", error)

    async def _look(self, channel: str) -> None:
        """Find decisions without a signal; open again what has vanished from the cache."""
        ids = [each for each, waiting in self.waiting.items() if not waiting.future.done()]
        state = await run_to_completion(self._in_thread(self._store.look, channel, ids))
        for each in state.answered:
            await self._fetch(each)
        missing = set(state.missing)
        for each in ids:
            if (waiting := self.waiting.get(each)) is not None:
                waiting.missing = waiting.missing + 1 if each in missing else 0
                if waiting.missing > 1 and not waiting.future.done():
                    await self._open_again(waiting)
        while self.left:
            question = self.left[-1]
            await self._in_thread(self._store.forget, question)
            self.left.remove(question)  # another one may be the last by now

    async def _open_again(self, waiting: WaitingQuestion) -> None:
        """Whoever claimed it has died before it could decide, or the cache was emptied."""
        waiting.missing = 0
        try:
            await run_to_completion(self._in_thread(self._store.put, self.question(waiting)))
        finally:  # also where this task is to end: then whoever ends it takes the question out
            if waiting.id not in self.waiting or waiting.future.done():
                self.left.append(self.question(waiting))

    async def _fetch(self, confirmation_id: str) -> None:
        """Fetch a decision; a failure leaves it for the next look."""
        waiting = self.waiting.get(confirmation_id)
        if waiting is None or waiting.future.done():
            return
        loop = asyncio.get_running_loop()

        def take() -> None:
            decision = self._store.take_answer(confirmation_id)
            if decision is not None:  # settled from here: it counts also after the wait for it
                loop.call_soon_threadsafe(waiting.settle, decision)

        try:
            await self._in_thread(take)
        except ConfirmationUnavailable as error:
            logger.warning("%s", error)
