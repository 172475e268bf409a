"""The journal in files, which the processes of one machine share.

A process appends all its runs to one file, so that a turn costs no file of its own; a line is
``<run id> <JSON>``. Every minute it begins the next file; files in which every run has ended long
ago are removed. While it lives it holds the lock of ``<process>.lock``: the kernel frees that when
the process ends, however it ends.

A run that another process takes up gets a file of its own, ``<run id>.run``, whose lock says who
runs it; its lines so far are copied there first.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import threading
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from ...core.aio import in_thread, in_thread_to_completion
from ...core.files import give_to_folder_owner, make_folder
from ...core.leases import FileLock, is_locked
from .base import JournalledRun, JournalPart, RunJournal, RunWriter, Sink, translate_errors
from .index import FileIndex, IndexedRun, Position
from .records import RunHead, decode

SEGMENT_SECONDS = 60.0
"""Age at which a process begins its next file."""

SEGMENT_BYTES = 16_000_000
"""Size at which it does."""

_ABANDONED_SECONDS = 60.0
"""Age from which a temporary file that is not locked was left by a crash."""


class _LockedFile(Sink):
    """A file that only this process writes.

    Writes go to the page cache within microseconds, so they are made in the event loop. They are
    not flushed to the disk: a power cut may take what is not in a session yet.
    """

    def __init__(self, lock: FileLock, size: int = 0) -> None:
        self._lock = lock
        self.size = size
        self.begun = time.monotonic()

    @property
    def is_removed(self) -> bool:
        """Whether the file has no name any more."""
        return os.fstat(self._lock.fileno()).st_nlink == 0

    def write(self, data: bytes) -> int:
        """Append whole lines; see ``append``. Part of a line at the end is written over."""
        descriptor, done = self._lock.fileno(), 0
        try:
            while done < len(data):
                done += os.pwrite(descriptor, data[done:], self.size + done)
        except OSError:
            done = data.rfind(b"\n", 0, done) + 1  # another process may have read whole lines
            if done == 0:
                raise
        self.size += done
        return done

    async def append(self, data: bytes) -> int:
        return self.write(data)

    def close(self) -> None:
        self._lock.release()


class _ProcessFiles(Sink):
    """The files of this process, of which it writes the last."""

    def __init__(self, folder: Path, *, seconds: float, size: int) -> None:
        self._folder = folder
        self._seconds = seconds
        self._size = size
        self.process = secrets.token_hex(8)
        self._alive: FileLock | None = None
        self._file: _LockedFile | None = None
        self._count = 0

    async def append(self, data: bytes) -> int:
        self.close_old()
        if self._file is None:
            self._file = self._next_file()
        return self._file.write(data)

    def close(self) -> None:
        """Stay open, for other runs."""

    def close_old(self) -> None:
        """Close the present file if it is old, large, or removed."""
        file = self._file
        if file is not None and (
            file.size >= self._size
            or time.monotonic() - file.begun >= self._seconds
            or file.is_removed
        ):
            self._file = None
            file.close()

    def _next_file(self) -> _LockedFile:
        make_folder(self._folder, private=True)
        if self._alive is None or os.fstat(self._alive.fileno()).st_nlink == 0:
            self.release()
            self._alive = _new_locked_file(self._folder / f"{self.process}.lock")
        self._count += 1
        path = self._folder / f"{self.process}.{self._count:06}.jsonl"
        return _LockedFile(_new_locked_file(path))

    def release(self) -> None:
        """Release all files; another process may take what has not ended."""
        if self._file is not None:
            self._file.close()
        if self._alive is not None:
            self._alive.release()
        self._file = self._alive = None


class FileRunJournal(RunJournal):
    """Runs in the files of a folder, which is made when it is needed."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_seconds: float = SEGMENT_SECONDS,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._files = _ProcessFiles(folder, seconds=segment_seconds, size=segment_bytes)
        self._index = FileIndex(folder)
        self._indexing = threading.Lock()
        """Held by a thread that reads the folder."""

    def _open(self, head: RunHead) -> Sink:  # noqa: ARG002 - all runs go to one file
        return self._files

    async def take(self, run_id: str) -> RunWriter | None:
        if run_id in self._writers:
            return None
        taken: list[_LockedFile] = []
        try:
            with translate_errors(OSError):
                await in_thread_to_completion(self._take, run_id, taken)
        except asyncio.CancelledError:
            for file in taken:
                file.close()
            raise
        if not taken:
            return None
        writer = self._writers[run_id] = RunWriter(run_id, taken[0])
        return writer

    def _take(self, run_id: str, taken: list[_LockedFile]) -> None:
        with self._indexing:
            run = self._refreshed(run_id)
            if run is None or run.end is not None or self._is_held(run_id, run):
                return
            path = self._own_file(run_id)
            is_new = not path.exists()
            # Of processes that make an own file at once, one has the lock of the temporary file; it
            # goes with the file to its new name.
            lock = FileLock(path.with_suffix(".tmp") if is_new else path)
            if not _acquire(lock):
                return
            file = None
            try:
                run = self._refreshed(run_id)  # with all that its process has written
                if run is None or run.end is not None:
                    pass
                elif is_new:
                    file = None if path.exists() else self._copy(run_id, lock, path)
                elif run.file.number == 0:
                    file = _LockedFile(lock, run.file.size)
            finally:
                if file is None:
                    lock.release(remove=is_new)
                else:
                    taken.append(file)

    def _copy(self, run_id: str, lock: FileLock, path: Path) -> _LockedFile:
        """Write the lines of a run to its own file."""
        os.ftruncate(lock.fileno(), 0)  # if it was left by a crash
        file = _LockedFile(lock)
        lines, _ = self._index.lines(run_id, None)
        prefix = run_id.encode() + b" "
        data = b"".join([prefix + line + b"\n" for line in lines])
        if file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(lock.fileno())  # a power cut must not leave an empty file with this name
        lock.path = lock.path.rename(path)
        return file

    async def read(self, run_id: str, position: object = None) -> JournalPart | None:
        if isinstance(position, Position):
            run = self._index.runs.get(run_id)
            if run is not None and self._index.is_current(position):
                is_held = self._is_held(run_id, run)
                if is_held or run.is_parked:
                    return JournalPart([], position, is_held)
        else:
            position = None
        with translate_errors(OSError):
            return await in_thread(self._read, run_id, position)

    def _read(self, run_id: str, after: Position | None) -> JournalPart | None:
        with self._indexing:
            run = self._refreshed(run_id)
            if run is None:
                return None
            is_held = self._is_held(run_id, run)
            # Who has let go has written; perhaps a further file.
            if not is_held and self._refreshed(run_id) is None:
                return None
            lines, position = self._index.lines(run_id, after)
        decoded = [line for line in map(decode, lines) if line is not None]
        return JournalPart(decoded, position, is_held)

    async def runs(self, session_ids: Container[str] | None = None) -> list[JournalledRun]:
        with translate_errors(OSError):
            return await in_thread(self._runs_of, session_ids)

    def _runs_of(self, session_ids: Container[str] | None) -> list[JournalledRun]:
        with self._indexing:
            self._index.refresh()
            return [
                JournalledRun(
                    run_id,
                    run.session_id,
                    run.started_at,
                    run.end,
                    is_held=self._is_held(run_id, run),
                    is_parked=run.is_parked,
                    is_queued=run.is_queued,
                    owner=run.owner,
                )
                for run_id, run in self._index.runs.items()
                if session_ids is None or run.session_id in session_ids
            ]

    async def prune(self, seconds: float) -> None:
        with translate_errors(OSError):
            self._files.close_old()
            await in_thread(self._prune, time.time() - seconds)

    def _prune(self, before: float) -> None:
        with self._indexing:
            self._index.refresh()
            for path in self._index.removable(before):
                _remove_free(path)
            self._index.refresh()
            owners = self._index.owners()
        abandoned = time.time() - _ABANDONED_SECONDS
        for path in self._folder.glob("*.lock"):
            if path.stem not in owners:
                _remove_free(path)
        for path in self._folder.glob("*.tmp"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < abandoned:
                    _remove_free(path)

    def _refreshed(self, run_id: str) -> IndexedRun | None:
        self._index.refresh()
        return self._index.runs.get(run_id)

    def _is_held(self, run_id: str, run: IndexedRun) -> bool:
        if run.end is not None:
            return False
        if run.file.number == 0:
            return is_locked(self._own_file(run_id))
        return not run.is_parked and is_locked(self._folder / f"{run.file.owner}.lock")

    def _own_file(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.run"

    async def aclose(self) -> None:
        await super().aclose()
        self._files.release()


def _new_locked_file(path: Path) -> FileLock:
    """Make a file that is locked from the first instant in which it has this name."""
    lock = FileLock.create(path.with_suffix(".tmp"))
    try:
        give_to_folder_owner(lock.path, lock.fileno())
        lock.path = lock.path.rename(path)
    except OSError:
        lock.release(remove=True)
        raise
    return lock


def _acquire(lock: FileLock) -> bool:
    """Take a lock; who looks whether it is held is not in the way."""
    while not lock.acquire():
        if is_locked(lock.path):
            return False
    return True


def _remove_free(path: Path) -> None:
    """Remove a file that no process holds."""
    with suppress(OSError):
        lock = FileLock(path)
        if lock.acquire():
            lock.release(remove=True)
