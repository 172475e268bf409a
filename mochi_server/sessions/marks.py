"""What processes that share a data folder tell each other about work on sessions.

One empty file below a folder for each thing that is worked on:

- It is *there* as long as work is to be done: so the next start finds what a crash interrupted.
- Who works *holds* it, by ``flock``: one process at a time, and one that ends holds it no more.
- Who needs what is held *asks for it*, by setting the file's time: the holder sees that and stops.

All of it takes microseconds and waits for nobody, so it is done in the event loop.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..core.files import PRIVATE_FILE, hand_over, make_folder
from ..errors import StorageError
from .storage.base import SESSION_ID, check_session_id
from .storage.locks import remove, take

T = TypeVar("T")


class Held(ABC):
    """A mark that this object holds."""

    @property
    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether somebody has asked for it since it was taken."""

    @abstractmethod
    def let_go(self, *, done: bool) -> None:
        """Give it back; ``done`` work is no longer marked. May be called again."""


class Marks(ABC):
    """Named marks; names are ids as sessions have them."""

    @abstractmethod
    def set(self, name: str) -> None:
        """There is work to do.

        Raises:
            StorageError: the folder cannot be written.
        """

    @abstractmethod
    def take(self, name: str) -> Held | None:
        """Hold it, set before or not; None when somebody has it.

        Raises:
            StorageError: the folder cannot be written.
        """

    @abstractmethod
    def ask_for(self, name: str) -> None:
        """Tell the holder, if there is one, that somebody needs what it holds; never fails."""

    @abstractmethod
    def names(self) -> list[str]:
        """What is marked, the latest first."""


def marks_of(folder: Path | None) -> Marks:
    """The marks of a folder, or those of this process alone."""
    return MemoryMarks() if folder is None else FileMarks(folder)


class _HeldFile(Held):
    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle: int | None = handle
        self._seen = os.fstat(handle).st_mtime_ns

    @property
    def is_wanted(self) -> bool:
        return self._handle is not None and os.fstat(self._handle).st_mtime_ns != self._seen

    def let_go(self, *, done: bool) -> None:
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        if done:
            remove(handle, self._path)
        else:
            os.close(handle)


class FileMarks(Marks):
    """The marks of one folder, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / check_session_id(name)

    def set(self, name: str) -> None:
        """See the base class."""
        path = self._path(name)
        self._in_folder(partial(path.touch, PRIVATE_FILE))
        hand_over(path)

    def take(self, name: str) -> Held | None:
        """See the base class."""
        path = self._path(name)
        handle = self._in_folder(partial(take, path))
        return None if handle is None else _HeldFile(path, handle)

    def _in_folder(self, step: Callable[[], T]) -> T:
        try:
            try:
                return step()
            except FileNotFoundError:
                make_folder(self._folder, private=True)
                return step()
        except OSError as error:
            text = f"The folder {self._folder} cannot be used: {error.strerror}"
            raise StorageError(text, details={"folder": str(self._folder)}) from error

    def ask_for(self, name: str) -> None:
        """See the base class."""
        now = time.time_ns()  # the system's own stamp is so coarse that it may not change
        with suppress(OSError):
            os.utime(self._path(name), ns=(now, now), follow_symlinks=False)

    def names(self) -> list[str]:
        """See the base class."""
        try:
            with os.scandir(self._folder) as entries:
                found = [
                    (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                    for entry in entries
                    if SESSION_ID.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for _, name in sorted(found, reverse=True)]


class _HeldInMemory(Held):
    def __init__(self, holders: dict[str, _HeldInMemory], name: str) -> None:
        self._holders = holders
        self._name = name
        self.wanted = False

    @property
    def is_wanted(self) -> bool:
        return self.wanted

    def let_go(self, *, done: bool) -> None:  # noqa: ARG002 - nothing is marked in memory
        if self._holders.get(self._name) is self:
            del self._holders[self._name]


class MemoryMarks(Marks):
    """Of one process alone; what is to be done ends with it, and is not marked."""

    def __init__(self) -> None:
        self._holders: dict[str, _HeldInMemory] = {}

    def set(self, name: str) -> None:
        """Nothing."""

    def take(self, name: str) -> Held | None:
        """See the base class."""
        if name in self._holders:
            return None
        held = self._holders[name] = _HeldInMemory(self._holders, name)
        return held

    def ask_for(self, name: str) -> None:
        """See the base class."""
        if (held := self._holders.get(name)) is not None:
            held.wanted = True

    def names(self) -> list[str]:
        """None."""
        return []
