"""Who may use a model for summaries, and when: chats come first, in all processes.

What summaries and chats share is a *memory*: the server of a model, where a request for one of its
models may unload another one, else the model itself (``ProviderRegistry.memory_of``).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ...core.leases import Lease, leases_in
from ...errors import SessionBusy, StorageError

LOOK_SECONDS = 0.005
"""How soon a summary notices that another process needs its memory."""


@dataclass(slots=True)
class _Memory:
    """What goes on in one memory, as far as this process does it."""

    lane: asyncio.Lock = field(default_factory=asyncio.Lock)
    turns: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no turn runs."""
    turn_ended: float = -math.inf
    """When the last turn did, by the monotonic clock."""
    running: anyio.CancelScope | None = None

    def __post_init__(self) -> None:
        self.idle.set()

    async def wait_for_quiet(self, seconds: float) -> None:
        """Wait until no turn has run for so long."""
        while self.turns or (rest := self.turn_ended + seconds - time.monotonic()) > 0:
            if self.turns:
                await self.idle.wait()
            else:
                await anyio.sleep(rest)


class Lanes:
    """One summary in a memory at a time, as far as possible while no turn of this process uses it.

    A summary takes the marks of its session and of its memory, so that no other process works on
    the same; whoever asks for one of them makes it stop.

    Args:
        sessions: Where processes meet that have the same sessions; None for one process alone,
            which keeps nothing.
        memories: Where those meet that have the same models, likewise.
    """

    def __init__(self, *, sessions: Path | None, memories: Path | None) -> None:
        self._sessions = leases_in(sessions)
        self._by_memory = leases_in(memories)
        self._memories: defaultdict[str, _Memory] = defaultdict(_Memory)

    # What is to be done

    def mark(self, session_id: str) -> None:
        """The session is to be summarised, by whichever process comes to it.

        Raises:
            StorageError: the folder cannot be written.
        """
        self._sessions.add(session_id)

    def unmark(self, session_id: str) -> None:
        """It need not be, unless somebody is just doing it."""
        with suppress(StorageError):  # where nothing can be written, nothing is marked
            if (held := self._sessions.acquire(session_id)) is not None:
                held.release(done=True)

    def marked(self) -> list[str]:
        """What is to be summarised, the latest first."""
        return self._sessions.pending()

    # Chats

    @contextmanager
    def turn(self, session_id: str, memory: str) -> Iterator[None]:
        """No summary in the background uses the memory, or works on the session."""
        self._sessions.request(session_id)
        state = self._memories[memory]
        state.turns += 1
        state.idle.clear()
        try:
            self.make_way(memory)
            yield
        finally:
            state.turns -= 1
            state.turn_ended = time.monotonic()
            if not state.turns:
                state.idle.set()

    def make_way(self, memory: str) -> None:
        """Stop the background summary that occupies the memory, in whichever process."""
        state = self._memories.get(memory)
        if state is not None and state.running is not None:
            state.running.cancel()
        self._by_memory.request(digest_of(memory))

    # Summaries

    @asynccontextmanager
    async def lane(self, memory: str, patience: float, quiet: float) -> AsyncIterator[bool]:
        """Wait until no other summary of this process has the memory, then until no turn has it.

        Args:
            memory: Its key, as ``ProviderRegistry.memory_of`` gives it.
            patience: Longest wait for the turns, in seconds.
            quiet: Seconds for which no turn is to have it.

        Yields:
            Whether no turn has it.
        """
        state = self._memories[memory]
        async with state.lane:
            with anyio.move_on_after(patience):
                await state.wait_for_quiet(quiet)
            yield not state.turns

    async def undisturbed(
        self, session_id: str, memory: str, work: Callable[[], Awaitable[object]]
    ) -> bool:
        """Do the work; whether it was done, which nobody hinders and nobody else does just now.

        Raises:
            StorageError: the folder cannot be written.
            MochiError: what the work raises; the session stays marked.
        """
        done = False
        with ExitStack() as stack:
            if not (taken := self._take_all(session_id, memory, stack)):
                return False
            scope = stack.enter_context(self._cancellable(memory, taken))
            with scope:
                await work()
                done = True
            if done:
                taken[0].release(done=True)
        return done

    def _take_all(self, session_id: str, memory: str, stack: ExitStack) -> list[Lease]:
        """The marks of session and memory, given back by the stack; none without both."""
        session = self._sessions.acquire(session_id)
        if session is None:
            return []
        stack.callback(session.release, done=False)
        of_memory = self._by_memory.acquire(digest_of(memory))
        if of_memory is None:
            return []
        stack.callback(of_memory.release, done=True)
        return [session, of_memory]

    @contextmanager
    def _cancellable(self, memory: str, taken: Sequence[Lease]) -> Iterator[anyio.CancelScope]:
        """A scope that is cancelled when somebody needs the memory, or the session."""
        state = self._memories[memory]
        state.running = scope = anyio.CancelScope()
        watch = asyncio.get_running_loop().create_task(_watch(taken, scope))
        try:
            yield scope
        finally:
            state.running = None
            watch.cancel()

    @asynccontextmanager
    async def session(self, session_id: str, seconds: float) -> AsyncIterator[None]:
        """Have the session for a summary that a person wants; others stop, or are waited for.

        Raises:
            SessionBusy: it took longer than so many seconds.
            StorageError: the folder cannot be written.
        """
        until = anyio.current_time() + seconds
        self._sessions.request(session_id)
        while (held := self._sessions.acquire(session_id)) is None:
            if anyio.current_time() > until:
                raise SessionBusy(f"Session {session_id!r} is just being summarised.")
            await anyio.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            held.release(done=True)


async def _watch(taken: Sequence[Lease], scope: anyio.CancelScope) -> None:
    while not any(held.is_requested for held in taken):  # noqa: ASYNC110 - of other processes
        await anyio.sleep(LOOK_SECONDS)
    scope.cancel()


def digest_of(name: str) -> str:
    """Return a file name for a name of any characters."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
