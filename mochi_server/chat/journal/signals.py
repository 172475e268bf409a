"""What processes tell each other about runs: stop this one, and somebody reads that one.

A process with running runs looks every 75 ms. In files, which are in the folder of the journal, it
looks at the folder's time, and at the names only when that has changed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path

from ...core.files import PRIVATE_FILE, give_to_folder_owner, make_folder
from ...core.leases import FileLock, is_used
from .base import translate_errors
from .index import SETTLE_SECONDS

_STOP, _READERS = ".stop", ".readers"

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_ABANDONED_SECONDS = 60.0
"""Age from which a request to stop was left by a crash."""

_TRIES = 1000
"""How often a reader tries to take its lock; the owner holds it for microseconds at most."""


Leave = Callable[[], Awaitable[None]]


class RunSignals:
    """Signals of one process that shares its runs with no other."""

    async def request_stop(self, run_id: str) -> None:
        """Ask whoever executes the run to stop it."""

    async def withdraw_stop(self, run_id: str) -> None:
        """Take the request back: the run has ended."""

    async def stop_requests(self) -> Collection[str]:
        """Return the runs that somebody wants to stop; those returned before may be missing."""
        return ()

    async def add_reader(self, run_id: str) -> Leave:  # noqa: ARG002 - for subclasses
        """Say that this process reads a run of another one, until what is returned is called."""
        return _do_nothing

    async def has_readers(self, run_id: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether another process reads a run of this one."""
        return False

    async def prune(self) -> None:
        """Remove what crashes have left."""

    async def aclose(self) -> None:
        """Close connections."""


class FileRunSignals(RunSignals):
    """Signals in a folder, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: tuple[int, int] | None = None
        self._changed = 0.0
        self._is_settled = False
        """Whether it was listed when no more change could have this stamp."""

    async def request_stop(self, run_id: str) -> None:
        """See the base class; what cannot be the id of a run is passed over."""
        if _RUN_ID.fullmatch(run_id) is None:
            return
        path = self._path(run_id, _STOP)
        with translate_errors(OSError):
            make_folder(self._folder, private=True)
            path.touch(PRIVATE_FILE)
            give_to_folder_owner(path)

    async def withdraw_stop(self, run_id: str) -> None:
        if _RUN_ID.fullmatch(run_id) is not None:
            _remove(self._path(run_id, _STOP))

    async def stop_requests(self) -> Collection[str]:
        try:
            status = self._folder.stat()
        except OSError:
            return ()
        stamp, now = (status.st_ino, status.st_mtime_ns), time.monotonic()
        if stamp != self._stamp:
            self._stamp, self._changed, self._is_settled = stamp, now, False
        elif self._is_settled:
            return ()
        else:
            self._is_settled = now - self._changed > SETTLE_SECONDS
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - names are all that is needed
        except OSError:
            return ()
        return [name.removesuffix(_STOP) for name in names if name.endswith(_STOP)]

    async def add_reader(self, run_id: str) -> Leave:
        lock = FileLock(self._path(run_id, _READERS))
        with suppress(OSError):
            for _ in range(_TRIES):
                if lock.acquire(shared=True):
                    break

        async def leave() -> None:
            lock.release()

        return leave

    async def has_readers(self, run_id: str) -> bool:
        try:
            return is_used(self._path(run_id, _READERS))
        except OSError:
            return False

    async def prune(self) -> None:
        abandoned = time.time() - _ABANDONED_SECONDS
        for path in self._folder.glob(f"*{_STOP}"):
            with suppress(OSError):
                if path.stat().st_mtime < abandoned:
                    path.unlink()
        for path in self._folder.glob(f"*{_READERS}"):
            with suppress(OSError):
                lock = FileLock(path)
                if lock.acquire():
                    lock.release(remove=True)

    def _path(self, run_id: str, suffix: str) -> Path:
        return self._folder / f"{run_id}{suffix}"


async def _do_nothing() -> None:
    pass


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
