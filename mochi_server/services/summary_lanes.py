"""Who may use a model for summaries, and when: chats come first, in all processes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ..errors import SessionBusy, StorageError
from ..sessions.marks import Held, marks_of

LOOK_SECONDS = 0.005
"""How soon a summary notices that another process needs its model."""


@dataclass(slots=True)
class _Model:
    """What goes on with one model in this process."""

    lane: asyncio.Lock = field(default_factory=asyncio.Lock)
    turns: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no turn runs."""
    running: anyio.CancelScope | None = None

    def __post_init__(self) -> None:
        self.idle.set()


class Lanes:
    """One summary of a model at a time, as far as possible while no turn of this process has it.

    A summary takes the marks of its session and of its model, so that no other process works on
    the same; whoever asks for one of them makes it stop.

    Args:
        sessions: Where processes meet that have the same sessions; None for one process alone,
            which keeps nothing.
        models: Where those meet that have the same models, likewise.
    """

    def __init__(self, *, sessions: Path | None, models: Path | None) -> None:
        self._sessions = marks_of(sessions)
        self._by_model = marks_of(models)
        self._models: defaultdict[str, _Model] = defaultdict(_Model)

    # What is to be done

    def mark(self, session_id: str) -> None:
        """The session is to be summarised, by whichever process comes to it.

        Raises:
            StorageError: the folder cannot be written.
        """
        self._sessions.set(session_id)

    def unmark(self, session_id: str) -> None:
        """It need not be, unless somebody is just doing it."""
        with suppress(StorageError):  # where nothing can be written, nothing is marked
            if (held := self._sessions.take(session_id)) is not None:
                held.let_go(done=True)

    def marked(self) -> list[str]:
        """What is to be summarised, the latest first."""
        return self._sessions.names()

    # Chats

    @contextmanager
    def turn(self, session_id: str, model: str) -> Iterator[None]:
        """No summary in the background uses the model, or works on the session."""
        self._sessions.ask_for(session_id)
        state = self._models[model]
        state.turns += 1
        state.idle.clear()
        try:
            self.make_way(model)
            yield
        finally:
            state.turns -= 1
            if not state.turns:
                state.idle.set()

    def make_way(self, model: str) -> None:
        """Stop the background summary that occupies the model, in whichever process."""
        state = self._models.get(model)
        if state is not None and state.running is not None:
            state.running.cancel()
        self._by_model.ask_for(_name_of(model))

    # Summaries

    @asynccontextmanager
    async def lane(self, model: str, patience: float) -> AsyncIterator[bool]:
        """Wait until no other summary of this process has the model, then until no turn has it.

        Args:
            model: Full name of it.
            patience: Longest wait for the turns, in seconds.

        Yields:
            Whether no turn has it.
        """
        state = self._models[model]
        async with state.lane:
            with anyio.move_on_after(patience):
                while state.turns:
                    await state.idle.wait()
            yield not state.turns

    async def undisturbed(
        self, session_id: str, model: str, work: Callable[[], Awaitable[object]]
    ) -> bool:
        """Do the work; whether it was done, which nobody hinders and nobody else does just now.

        Raises:
            StorageError: the folder cannot be written.
            MochiError: what the work raises; the session stays marked.
        """
        done = False
        with ExitStack() as stack:
            if not (taken := self._take_all(session_id, model, stack)):
                return False
            scope = stack.enter_context(self._cancellable(model, taken))
            with scope:
                await work()
                done = True
            if done:
                taken[0].let_go(done=True)
        return done

    def _take_all(self, session_id: str, model: str, stack: ExitStack) -> list[Held]:
        """The marks of the session and of the model, given back by the stack; none without both."""
        session = self._sessions.take(session_id)
        if session is None:
            return []
        stack.callback(session.let_go, done=False)
        of_model = self._by_model.take(_name_of(model))
        if of_model is None:
            return []
        stack.callback(of_model.let_go, done=True)
        return [session, of_model]

    @contextmanager
    def _cancellable(self, model: str, taken: Sequence[Held]) -> Iterator[anyio.CancelScope]:
        """A scope that is cancelled when somebody needs the model, or the session."""
        state = self._models[model]
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
        self._sessions.ask_for(session_id)
        while (held := self._sessions.take(session_id)) is None:
            if anyio.current_time() > until:
                raise SessionBusy(f"Session {session_id!r} is just being summarised.")
            await anyio.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            held.let_go(done=True)


async def _watch(taken: Sequence[Held], scope: anyio.CancelScope) -> None:
    while not any(held.is_wanted for held in taken):  # noqa: ASYNC110 - of other processes
        await anyio.sleep(LOOK_SECONDS)
    scope.cancel()


def _name_of(model: str) -> str:
    return hashlib.blake2b(model.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
