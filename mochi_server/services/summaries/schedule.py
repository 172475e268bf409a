"""Schedules summaries so that chats come first, in all processes.

What summaries and chats compete for is a *memory*: the server of a model, where a request for one
of its models may unload another one, else the model itself (``ProviderRegistry.memory_key``).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ...core.files import PRIVATE_FILE, give_to_folder_owner, make_folder
from ...core.leases import Lease, leases_in
from ...errors import SessionBusy, StorageError

POLL_SECONDS = 0.005
"""Seconds between two looks at whether another process requests a lease."""

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class _Memory:
    """The chats and the summary of this process in one memory."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the summary that waits for the memory, or has it."""
    turns: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    last_turn_ended: float = -math.inf
    """Seconds of the monotonic clock."""
    summary: anyio.CancelScope | None = None

    def __post_init__(self) -> None:
        self.idle.set()

    async def wait_for_quiet(self, seconds: float) -> None:
        while self.turns or (rest := self.last_turn_ended + seconds - time.monotonic()) > 0:
            if self.turns:
                await self.idle.wait()
            else:
                await anyio.sleep(rest)


class SummaryScheduler:
    """Queues sessions for summaries, and runs one summary in a memory at a time.

    A summary holds a lease of its session and one of its memory, so no other process works on the
    same. Whoever requests one of the leases makes the summary stop.

    Args:
        sessions: Folder of leases, shared by processes with the same sessions; None for one
            process, whose queue ends with it.
        memories: Folder of leases, shared by processes with the same models; None likewise.
    """

    def __init__(self, *, sessions: Path | None, memories: Path | None) -> None:
        self._session_leases = leases_in(sessions)
        self._memory_leases = leases_in(memories)
        self._memories: defaultdict[str, _Memory] = defaultdict(_Memory)

    # The queue

    def enqueue(self, session_id: str) -> None:
        """Note that a process has to summarise the session."""
        self._session_leases.add(session_id)

    def dequeue(self, session_id: str) -> None:
        with suppress(StorageError):  # nothing is queued in a folder that cannot be written
            if (lease := self._session_leases.acquire(session_id)) is not None:
                lease.release(done=True)

    def queued(self) -> list[str]:
        return self._session_leases.pending()

    # Chats

    @contextmanager
    def turn(self, session_id: str, memory: str) -> Iterator[None]:
        """Keep background summaries from the memory and the session while a turn runs."""
        self._session_leases.request(session_id)
        state = self._memories[memory]
        state.turns += 1
        state.idle.clear()
        try:
            yield
        finally:
            state.turns -= 1
            state.last_turn_ended = time.monotonic()
            if not state.turns:
                state.idle.set()

    def preempt(self, memory: str) -> None:
        """Stop the background summary that uses the memory, in whichever process."""
        state = self._memories.get(memory)
        if state is not None and state.summary is not None:
            state.summary.cancel()
        self._memory_leases.request(digest_of(memory))

    # Summaries

    @asynccontextmanager
    async def slot(self, memory: str, patience: float, quiet: float) -> AsyncIterator[bool]:
        """Wait for other summaries in the memory, then for ``quiet`` seconds without a turn in it.

        The wait for turns ends after ``patience`` seconds. Yields whether no turn runs then, in
        this process.
        """
        state = self._memories[memory]
        async with state.lock:
            with anyio.move_on_after(patience):
                await state.wait_for_quiet(quiet)
            yield not state.turns

    async def run_exclusively(
        self, session_id: str | None, memory: str, work: Callable[[], Awaitable[object]]
    ) -> bool:
        """Do the work under leases of session and memory, and return whether it was done.

        It is not done if another holds a lease, or requests one meanwhile. When it fails, the
        session stays queued. Without a session, it is work that no queue has.
        """
        with ExitStack() as stack:
            leases: list[Lease] = []
            if session_id is not None:
                session_lease = self._session_leases.acquire(session_id)
                if session_lease is None:
                    return False
                stack.callback(session_lease.release, done=False)
                leases.append(session_lease)
            memory_lease = self._memory_leases.acquire(digest_of(memory))
            if memory_lease is None:
                return False
            stack.callback(memory_lease.release, done=True)
            scope = stack.enter_context(self._preemptible(memory, *leases, memory_lease))
            done = False
            with scope:
                await work()
                done = True
            if done:
                for lease in leases:
                    lease.release(done=True)
            return done

    @contextmanager
    def _preemptible(self, memory: str, *leases: Lease) -> Iterator[anyio.CancelScope]:
        """Give a scope that is cancelled when somebody needs the memory or a lease."""
        state = self._memories[memory]
        state.summary = scope = anyio.CancelScope()
        watch = asyncio.get_running_loop().create_task(_cancel_on_request(leases, scope))
        try:
            yield scope
        finally:
            state.summary = None
            watch.cancel()

    @asynccontextmanager
    async def session(self, session_id: str, seconds: float) -> AsyncIterator[None]:
        """Hold the session's lease for a summary that a person asked for.

        Raises:
            SessionBusy: somebody else held it for more than so many seconds.
        """
        until = anyio.current_time() + seconds
        self._session_leases.request(session_id)
        while (lease := self._session_leases.acquire(session_id)) is None:
            if anyio.current_time() > until:
                raise SessionBusy(f"Session {session_id!r} is just being summarised.")
            await anyio.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            lease.release(done=True)


async def _cancel_on_request(leases: tuple[Lease, ...], scope: anyio.CancelScope) -> None:
    while not any(lease.is_requested for lease in leases):  # noqa: ASYNC110 - of other processes
        await anyio.sleep(POLL_SECONDS)
    scope.cancel()


def digest_of(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class LastReadConversations:
    """The session that each model has read last, by the key of its weights.

    Args:
        folder: Folder shared by processes that use the same models, made when needed; None for one
            process alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sessions: dict[str, str] = {}

    def note(self, weights: str, session_id: str) -> None:
        if self._folder is None:
            self._sessions[weights] = session_id
            return
        path = self._path(self._folder, weights)
        with suppress(OSError):
            try:
                handle = os.open(path, _WRITE, PRIVATE_FILE)
            except FileNotFoundError:
                make_folder(path.parent, private=True)
                handle = os.open(path, _WRITE, PRIVATE_FILE)
            with open(handle, "w") as file:  # noqa: PTH123 - a descriptor
                give_to_folder_owner(path, file.fileno())
                file.write(session_id)

    def forget(self, weights: str) -> None:
        if self._folder is None:
            self._sessions.pop(weights, None)
        else:
            with suppress(OSError):
                self._path(self._folder, weights).unlink()

    def session_of(self, weights: str) -> str | None:
        """Return the session's id; None if it is not known."""
        if self._folder is None:
            return self._sessions.get(weights)
        try:
            return self._path(self._folder, weights).read_text() or None
        except (OSError, UnicodeDecodeError):
            return None

    @staticmethod
    def _path(folder: Path, weights: str) -> Path:
        return folder / f"{digest_of(weights)}.last"
