"""Small asyncio pieces that the standard library lacks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import anyio

from ..errors import MochiError
from .logs import outside_request

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SIGNAL_SECONDS = 0.5
"""Longest time until a signal is noticed."""

_files = ThreadPoolExecutor(max_workers=8, thread_name_prefix="mochi-files")


def switch_threads_soon() -> None:
    """Let the event loop have the interpreter from a thread that computes after 1 ms, not 5.

    A loop that wakes up waits so long: for rules that are compared with calls, imports, searches.
    It is for processes that are a server; others have an interval of their own.
    """
    sys.setswitchinterval(0.001)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking file work on the server's own threads.

    asyncio's default pool has six threads on a small machine, which every library shares; a slow
    disk would hold up name look-ups.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_files, partial(function, *args, **kwargs))


async def in_thread_if(
    condition: bool,  # noqa: FBT001 - as in_thread, which takes what the function takes
    function: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    return await in_thread(function, *args, **kwargs) if condition else function(*args, **kwargs)


async def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what may hang, such as a read from a network drive, in a thread that nobody waits for.

    Neither a cancellation nor an exit does.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="mochi-look").start()
    answer = asyncio.wrap_future(future)
    try:
        # Ctrl-C that comes when the loop is about to wait does not wake it.
        while not (await asyncio.wait({answer}, timeout=SIGNAL_SECONDS))[0]:
            pass
    finally:
        answer.cancel()  # if there is none yet
    return answer.result()


async def run_to_completion(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; a cancellation of the caller is raised only afterwards.

    For short steps that must not stop half-way, such as a write.
    """
    return await _to_the_end(asyncio.get_running_loop().create_task(coroutine))


async def wait_unless(
    future: asyncio.Future[Any] | None, coroutine: Coroutine[Any, Any, T]
) -> T | None:
    """Await a coroutine; cancel it and return None as soon as ``future`` is done."""
    with anyio.CancelScope() as scope:

        def cancel(_: asyncio.Future[Any]) -> None:
            scope.cancel()

        if future is not None:
            future.add_done_callback(cancel)
        try:
            return await coroutine
        finally:
            if future is not None:
                future.remove_done_callback(cancel)
    return None


async def in_thread_to_completion(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function ``in_thread`` to its end; a cancellation is raised only afterwards."""
    loop = asyncio.get_running_loop()
    return await _to_the_end(loop.run_in_executor(_files, partial(function, *args, **kwargs)))


async def _to_the_end(future: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with anyio.CancelScope(shield=True), contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        if not future.cancelled() and (error := future.exception()) is not None:
            if isinstance(error, MochiError):
                logger.warning("A step of a cancelled task failed: %s", error)
            else:
                logger.exception("A step of a cancelled task failed", exc_info=error)
        raise


def pipe_end(descriptor: int, mode: str) -> IO[bytes]:
    """Return the file of a pipe's end, for ``connect_read_pipe`` or ``connect_write_pipe``.

    uvloop closes the descriptor, and then the file as well: another thread could have got the same
    number meanwhile (https://github.com/MagicStack/uvloop/issues/763).
    """
    is_closed_by_loop = type(asyncio.get_running_loop()).__module__ == "uvloop"
    return open(descriptor, mode, 0, closefd=not is_closed_by_loop)


def yield_to_loop() -> None:
    """Let the event loop have the interpreter lock; else a thread keeps it for 5 ms at a time.

    A real sleep, however short: merely offering the lock (``sched_yield``) starves the loop,
    because each offer restarts the 5 ms after which it may insist.
    """
    time.sleep(0)


async def merge(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield what several generators yield, as it comes.

    A generator goes on when what it has yielded was handled, as where it is iterated alone. Closing
    this one closes all of them; an error of one closes the others and is raised.
    """
    if len(sources) == 1:
        async with contextlib.aclosing(sources[0]) as source:
            async for item in source:
                yield item
        return
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[T, asyncio.Event] | asyncio.Task[None]] = asyncio.Queue()
    tasks = {loop.create_task(_pump(source, queue)) for source in sources}
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    running = len(tasks)
    try:
        while running:
            step = await queue.get()
            if isinstance(step, asyncio.Task):
                running -= 1
                step.result()
            else:
                item, handled = step
                yield item
                handled.set()
    finally:
        await run_to_completion(_end(tasks))


async def run_concurrently(
    functions: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, most: int
) -> list[T]:
    """Await all results, in the order of the functions; at most so many run at the same time.

    The first error is raised when the others have been cancelled.
    """
    slots = asyncio.Semaphore(most)

    async def run(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with slots:
            return await function()

    tasks = [asyncio.get_running_loop().create_task(run(each)) for each in functions]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await run_to_completion(_end({*tasks}))


async def _pump(
    source: AsyncGenerator[T, None],
    queue: asyncio.Queue[tuple[T, asyncio.Event] | asyncio.Task[None]],
) -> None:
    async with contextlib.aclosing(source):
        async for item in source:
            handled = asyncio.Event()
            queue.put_nowait((item, handled))
            await handled.wait()


def start_task(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine beside its caller, which must call ``end_task``."""
    return asyncio.get_running_loop().create_task(coroutine)


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end; its error is not raised."""
    if not task.done():
        await run_to_completion(_end({task}))
    elif not task.cancelled():
        task.exception()


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("One of several merged steps failed", exc_info=error)


class BackgroundTasks:
    """Tasks that outlive their callers: referenced, logged when they fail, awaited at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = outside_request(asyncio.get_running_loop().create_task, coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Background task %s failed", task.get_name(), exc_info=error)

    def __len__(self) -> int:
        return len(self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait so many seconds for all tasks, then cancel the rest and wait for their end."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=seconds)


class RoundLimiter:
    """Lets few tasks begin in each round of the event loop, in the order in which they come.

    A round has one step of each task that can go on. Where hundreds begin at once, streams would
    wait for the first steps of all of them before they send their next token.
    """

    def __init__(self, most: int) -> None:
        """Let so many tasks begin in a round."""
        self._most = most
        self._loop: asyncio.AbstractEventLoop | None = None
        """Whose rounds are counted; None while no task comes."""
        self._begun = 0
        """Tasks that have begun in this round."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for a round with room, which is this one where few tasks come."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._begun, self._waiting = loop, 0, deque()
            loop.call_soon(self._begin_round, loop)
        if self._begun < self._most:
            self._begun += 1
        else:
            waiter = loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            return
        self._begun = 0
        while self._waiting and self._begun < self._most:
            if not (waiter := self._waiting.popleft()).done():  # it may be cancelled
                waiter.set_result(None)
                self._begun += 1
        if self._begun:
            loop.call_soon(self._begin_round, loop)
        else:
            self._loop = None


@dataclass(slots=True)
class _CountedLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """Tasks that hold it or wait for it."""


class KeyedLocks:
    """One fair lock for each key in use, and for each event loop."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _CountedLock]]
        self._loops = WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def holding(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of a key; waiting tasks get it in order of arrival."""
        locks = self._loops.setdefault(asyncio.get_running_loop(), {})
        counted = locks.setdefault(key, _CountedLock())
        counted.users += 1
        try:
            async with counted.lock:
                yield
        finally:
            counted.users -= 1
            if not counted.users:
                del locks[key]
