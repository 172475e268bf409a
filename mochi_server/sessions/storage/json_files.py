"""Sessions as ``{session_id}.json`` in a folder that the user owns."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio

from ...aio import finish_in_thread, in_thread
from ...errors import MochiError, SessionBusy, SessionExists, SessionNotFound, StorageError
from ...files import NOT_PLAIN, PLAIN, flush_folder, make_folder, read_plain, replace_file
from .base import Entry, Hold, SessionChanged, SessionStorage, check_session_id
from .folder import scan, signature_of
from .locks import KeyedLocks, remove, remove_idle, take

_HEADS_AT_ONCE = 500

_SECOND_LOOKS = (0.002, 0.003)
"""Seconds after which a claim that is held is tried again: who removes idle locks, as each command
does at its end, holds them for microseconds."""


class JSONFileStorage(SessionStorage):
    """Sessions in a folder, which other processes may use at the same time. POSIX only.

    The folder is made at the first write. Symbolic links are not followed. Locks lie in
    ``.locks`` below the folder; ``aclose`` removes those that nobody holds.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._waiting = KeyedLocks()

    def __repr__(self) -> str:
        return f"JSONFileStorage({os.fspath(self.folder)!r})"

    def _path(self, session_id: str) -> Path:
        return self.folder / f"{check_session_id(session_id)}.json"

    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        """See the base class."""
        return await in_thread(_read, session_id, self._path(session_id))

    async def signature(self, session_id: str) -> tuple[int, ...]:
        """``(mtime_ns, size, inode)``."""
        return await in_thread(_signature_at, session_id, self._path(session_id))

    async def read_head(self, session_id: str, size: int) -> bytes:
        """See the base class."""
        return await in_thread(_read_head, session_id, os.fspath(self._path(session_id)), size)

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        """See the base class."""
        heads: list[bytes | MochiError] = []
        for start in range(0, len(session_ids), _HEADS_AT_ONCE):
            some = session_ids[start : start + _HEADS_AT_ONCE]
            heads += await in_thread(_read_heads, self.folder, some, size)
        return heads

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """By a temporary file, flushed to disk and renamed; mode and group of the file stay."""
        return await finish_in_thread(_write, session_id, self._path(session_id), parts)

    async def replace(
        self, session_id: str, signature: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        """In one step of a thread; each step costs a switch."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await finish_in_thread(_replace, session_id, path, lock, signature, parts)

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """See the base class; its lock file is there from now on."""
        path, lock = self._path(session_id), self._lock_path(session_id, "lock")
        return await finish_in_thread(_create, session_id, path, lock, parts)

    async def delete(self, session_id: str) -> None:
        """See the base class."""
        locks = [self._lock_path(session_id, kind) for kind in ("lock", "claim")]
        await finish_in_thread(_delete, session_id, self._path(session_id), locks)

    async def entries(self) -> list[Entry]:
        """See the base class; temporary files of crashed processes are removed on the way."""
        return await in_thread(scan, self.folder)

    async def generation(self) -> object | None:
        """The folder's time of change: every rename moves it."""
        return await in_thread(_generation, self.folder)

    async def aclose(self) -> None:
        """Remove the lock files that nobody holds."""
        await finish_in_thread(remove_idle, self.folder / ".locks")

    @asynccontextmanager
    async def _lock(self, session_id: str) -> AsyncIterator[Hold]:
        path = self._lock_path(session_id, "lock")
        async with self._waiting.holding(session_id):
            pause = 0.001
            while (taken := await self._take(session_id, path)) is None:
                await anyio.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            hold = _FileHold(self, session_id, taken, path)
            try:
                yield hold
            finally:
                await hold.give_back()

    def lock(self, session_id: str) -> AbstractAsyncContextManager[Hold]:
        """See the base class."""
        return self._lock(session_id)

    @asynccontextmanager
    async def _claim(self, session_id: str) -> AsyncIterator[tuple[int, ...] | None]:
        path = self._lock_path(session_id, "claim")
        taken = await self._take(session_id, path)
        for pause in _SECOND_LOOKS:
            if taken is not None:
                break
            await anyio.sleep(pause)
            taken = await self._take(session_id, path)
        if taken is None:
            raise SessionBusy(session_id=session_id)
        try:
            yield taken.signature
        finally:
            await _let_go(taken, path)

    def claim(self, session_id: str) -> AbstractAsyncContextManager[tuple[int, ...] | None]:
        """See the base class."""
        return self._claim(session_id)

    def _lock_path(self, session_id: str, kind: str) -> Path:
        return self.folder / ".locks" / f"{check_session_id(session_id)}.{kind}"

    async def _take(self, session_id: str, path: Path) -> _Taken | None:
        """A descriptor that is taken is never lost to a cancellation."""
        taken: list[_Taken] = []
        try:
            await finish_in_thread(_take, session_id, self._path(session_id), path, taken)
        except BaseException:
            for each in taken:
                remove(each.handle, path)
            raise
        return taken[0] if taken else None


class _Taken(NamedTuple):
    """A lock file in hand."""

    handle: int
    signature: tuple[int, ...] | None
    """Of the session, as it is now."""

    def let_go(self, path: Path) -> None:
        """Give the file of this path back.

        That of a session stays for the next time: making again what was just removed takes long.
        """
        if self.signature is None:
            remove(self.handle, path)
        else:
            os.close(self.handle)


async def _let_go(taken: _Taken, path: Path) -> None:
    """Give a lock file back, in a thread only where that touches the disk."""
    if taken.signature is None:
        await finish_in_thread(taken.let_go, path)
    else:
        taken.let_go(path)


class _FileHold(Hold):
    """Writes and gives the lock back in one step of a thread: each step costs a switch."""

    def __init__(
        self, storage: JSONFileStorage, session_id: str, taken: _Taken, lock: Path
    ) -> None:
        super().__init__(storage, session_id, taken.signature)
        self._path = storage.folder / f"{session_id}.json"
        self._lock = lock
        self._taken: _Taken | None = taken

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        taken, self._taken = self._taken, None
        if taken is None:
            raise RuntimeError("The hold has ended.")
        return await finish_in_thread(
            _write_and_let_go, self.session_id, self._path, parts, taken, self._lock
        )

    async def give_back(self) -> None:
        """End the hold, unless a write has."""
        if self._taken is not None:
            taken, self._taken = self._taken, None
            await _let_go(taken, self._lock)


@contextlib.contextmanager
def _named(session_id: str) -> Iterator[None]:
    """What the system says, as errors of ours."""
    try:
        yield
    except OSError as error:
        raise _in_our_words(session_id, error) from error


def _in_our_words(session_id: str, error: OSError) -> MochiError:
    """A link, a folder or a socket of a session's name is no session."""
    if error.errno in NOT_PLAIN:
        return SessionNotFound(session_id=session_id)
    reason = error.strerror or str(error)
    message = f"The file of session {session_id!r} cannot be used: {reason}"
    return StorageError(message, details={"session_id": session_id})


def _signature_at(session_id: str, path: Path) -> tuple[int, ...]:
    with _named(session_id):
        status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise SessionNotFound(session_id=session_id)
    return signature_of(status)


def _read(session_id: str, path: Path) -> tuple[bytes, tuple[int, ...]]:
    with _named(session_id):
        content, status = read_plain(path)
    return content, signature_of(status)


def _read_head(session_id: str, path: str, size: int) -> bytes:
    with _named(session_id):
        return _head(path, size)


def _head(path: str, size: int) -> bytes:
    handle = os.open(path, PLAIN)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


def _read_heads(folder: Path, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
    start = os.fspath(folder)
    return [_head_or_error(start, check_session_id(each), size) for each in session_ids]


def _head_or_error(folder: str, session_id: str, size: int) -> bytes | MochiError:
    path = f"{folder}/{session_id}.json"
    try:
        return _head(path, size)
    except OSError as error:
        return _in_our_words(session_id, error)


def _write(session_id: str, path: Path, parts: Iterable[bytes]) -> tuple[int, ...]:
    try:
        return signature_of(replace_file(path, parts))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(session_id=session_id, reason=reason) from error


def _create(session_id: str, path: Path, lock: Path, parts: Iterable[bytes]) -> tuple[int, ...]:
    taken: list[_Taken] = []
    if not os.path.lexists(path):
        _take(session_id, path, lock, taken)
    if not taken:  # or somebody is making it just now
        raise SessionExists(session_id=session_id)
    if os.path.lexists(path):
        taken[0].let_go(lock)
        raise SessionExists(session_id=session_id)
    try:
        signature = _write(session_id, path, parts)
    except BaseException:
        taken[0].let_go(lock)
        raise
    os.close(taken[0].handle)
    return signature


def _delete(session_id: str, path: Path, locks: Iterable[Path]) -> None:
    _signature_at(session_id, path)
    with _named(session_id):
        path.unlink()
        for lock in locks:  # held by who deletes, or by nobody
            lock.unlink(missing_ok=True)
        flush_folder(path.parent)


def _take(session_id: str, path: Path, lock: Path, taken: list[_Taken]) -> None:
    try:
        handle = _take_at(lock)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(session_id=session_id, reason=reason) from error
    if handle is not None:
        taken.append(_Taken(handle, _known(path)))


def _take_at(lock: Path) -> int | None:
    try:
        return take(lock)
    except FileNotFoundError:
        make_folder(lock.parent)
        return take(lock)


def _known(path: Path) -> tuple[int, ...] | None:
    """The signature of what is stored, None when that is no session."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return signature_of(status) if stat.S_ISREG(status.st_mode) else None


def _replace(
    session_id: str, path: Path, lock: Path, signature: tuple[int, ...], parts: Iterable[bytes]
) -> tuple[int, ...]:
    taken: list[_Taken] = []
    _take(session_id, path, lock, taken)
    if not taken:
        raise SessionChanged
    if taken[0].signature != signature:
        taken[0].let_go(lock)
        raise SessionChanged
    return _write_and_let_go(session_id, path, parts, taken[0], lock)


def _write_and_let_go(
    session_id: str, path: Path, parts: Iterable[bytes], taken: _Taken, lock: Path
) -> tuple[int, ...]:
    try:
        return _write(session_id, path, parts)
    finally:
        taken.let_go(lock)


def _generation(folder: Path) -> object | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino)
