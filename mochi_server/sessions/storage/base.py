"""The interface of session storages."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from ...errors import MochiError, SessionNotFound

ID_PATTERN = "[A-Za-z0-9_-]{1,64}"
RESERVED_IDS = frozenset({"export", "import", "stream"})
"""Names of routes that stand where others have the id of a session."""
SESSION_ID = re.compile(rf"(?!(?:{'|'.join(sorted(RESERVED_IDS))})\Z){ID_PATTERN}")


def check_session_id(session_id: str) -> str:
    """Return the id, or raise ``SessionNotFound`` if it is malformed."""
    if SESSION_ID.fullmatch(session_id) is None:
        raise SessionNotFound(session_id=session_id)
    return session_id


class Entry(NamedTuple):
    """One stored session, as the catalogue needs it."""

    session_id: str
    version: tuple[int, ...]
    """Changes whenever the content does; compared for equality only."""
    modified: int = 0
    """When it was last written: microseconds since 1970."""
    problem: str | None = None
    """Why this is no session despite its name: such an entry is listed, never read."""
    size: int = 0
    """Bytes that it takes; those of a database are not counted with what it adds to them."""


class SessionChanged(Exception):
    """The session has changed, or is locked: read it again."""


class SessionLock:
    """A session that is locked for an edit."""

    def __init__(
        self, storage: SessionStorage, session_id: str, version: tuple[int, ...] | None
    ) -> None:
        self._storage = storage
        self.session_id = session_id
        self.version = version
        """The version when the session was locked; None when nothing is stored."""

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Write the session, as the last step: it may release the lock.

        Raises:
            SessionChanged: the lock was over, and another process has written it.
        """
        return await self._storage.write(self.session_id, parts)


class SessionStorage(ABC):
    """Stores session files as bytes under ids. It knows nothing of JSON.

    Every method that takes an id raises ``SessionNotFound`` for a malformed one.
    """

    # Subclasses must implement all of these.

    @abstractmethod
    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        """Return the content and its version.

        Raises:
            SessionNotFound: nothing is stored.
            StorageError: it is there, and cannot be read.
        """

    @abstractmethod
    async def version(self, session_id: str) -> tuple[int, ...]:
        """Return the version without reading the content.

        Raises:
            SessionNotFound: nothing is stored.
        """

    @abstractmethod
    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        """Return the first ``size`` bytes of each session, or all if there are fewer.

        The error of one that cannot be read is in its place. At most a few hundred are read at
        once.
        """

    @abstractmethod
    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Replace or create the content, atomically and durably, and return the new version.

        A crash at any instant leaves the old or the new content, never a torn one.

        Raises:
            StorageError: the disk refused; the old content is still there.
        """

    @abstractmethod
    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Write a new session, and return its version; never replace one.

        Raises:
            SessionExists: the id is taken.
        """

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Delete the session.

        Raises:
            SessionNotFound: nothing is stored.
        """

    @abstractmethod
    async def entries(self) -> list[Entry]:
        """Return every stored session, in any order."""

    @abstractmethod
    def lock(self, session_id: str) -> AbstractAsyncContextManager[SessionLock]:
        """Lock the session against edits in all processes, for milliseconds; waits."""

    @abstractmethod
    def claim(self, session_id: str) -> AbstractAsyncContextManager[tuple[int, ...] | None]:
        """Reserve the session for one turn, in all processes; never waits.

        The claims of a process that crashes end with it. Yields the session's version, None
        when nothing is stored.

        Raises:
            SessionBusy: another turn is running.
        """

    check_lapsed: Callable[[str], Awaitable[None]] | None = None
    """Called before a claim is taken whose process has not given it back, and may still be alive;
    raises SessionBusy if its turn goes on."""

    # Subclasses may override these.

    changes_in_place: bool = True
    """Whether a session may change and the ``generation`` stay, as with an editor of texts."""

    async def replace(
        self, session_id: str, version: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        """Write the session if it still has this version, and return the new one.

        Raises:
            SessionChanged: it has changed, or is locked; nothing was written.
        """
        async with self.lock(session_id) as hold:
            if hold.version != version:
                raise SessionChanged
            return await hold.write(parts)

    async def generation(self) -> object | None:
        """Return a value that changes with every session added, replaced or removed, or None.

        With it, a list need not check every session. A change in place may leave it as it is.
        """
        return None

    async def aclose(self) -> None:  # noqa: B027 - most have nothing to give back
        """Release threads and handles."""
