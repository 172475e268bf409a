"""Which server processes use a data folder now, and of which version they are.

Each has a file that it holds the lock of for as long as it lives, however it ends.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .files import give_to_folder_owner, make_folder
from .leases import FileLock, is_locked, remove_free_locks


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process that serves."""

    pid: int
    version: str


class ProcessFile:
    """The file of this process."""

    def __init__(self, folder: Path, version: str) -> None:
        self._folder = folder
        self._version = version
        self._lock: FileLock | None = None

    def create(self) -> None:
        """Create it, and remove those of processes that have died.

        Raises:
            OSError: the folder cannot be written.
        """
        make_folder(self._folder, private=True)
        remove_free_locks(self._folder, "*.json")
        process = ServerProcess(os.getpid(), self._version)
        path = self._folder / f"{process.pid}-{secrets.token_hex(4)}.json"
        self._lock = lock = FileLock.create(path.with_suffix(".tmp"))
        give_to_folder_owner(lock.path, lock.fileno())
        os.pwrite(lock.fileno(), json.dumps(asdict(process)).encode(), 0)
        lock.path = lock.path.rename(path)  # with this name it is complete, and locked

    def remove(self) -> None:
        """Remove it, if it was created."""
        if self._lock is not None:
            with suppress(OSError):
                self._lock.release(remove=True)


def are_several(folder: Path) -> bool:
    """Return whether more than one process lives."""
    try:
        return sum(is_locked(path) for path in folder.glob("*.json")) > 1
    except OSError:
        return True  # it cannot be known


def processes_in(folder: Path) -> Iterator[ServerProcess]:
    """Yield the processes that live, by their process ids."""
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # it has just ended
            if is_locked(path):
                content = json.loads(path.read_bytes())
                yield ServerProcess(int(content["pid"]), str(content["version"]))
