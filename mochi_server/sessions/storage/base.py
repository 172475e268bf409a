"""The seam to wherever sessions are kept."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from ...errors import MochiError, SessionNotFound

SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_session_id(session_id: str) -> str:
    """The id itself, when it is one; checked before anything touches the file system.

    Raises:
        SessionNotFound: it is malformed.
    """
    if SESSION_ID.fullmatch(session_id) is None:
        raise SessionNotFound(session_id=session_id)
    return session_id


class Entry(NamedTuple):
    """One stored session, as a listing sees it."""

    session_id: str
    signature: tuple[int, ...]
    """Changes whenever the content does; compared for equality only."""
    modified: int = 0
    """When it was last written: microseconds since 1970."""
    problem: str | None = None
    """Why this is no session, although it looks like one: such an entry is shown, never read."""


class SessionChanged(Exception):
    """A session is not as it was, or somebody holds it: look again."""


class Hold:
    """A session that ``lock`` holds."""

    def __init__(
        self, storage: SessionStorage, session_id: str, signature: tuple[int, ...] | None
    ) -> None:
        self._storage = storage
        self.session_id = session_id
        self.signature = signature
        """The signature when the session was taken; None when nothing is stored."""

    async def write(self, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Like the storage's ``write``; the last thing to do, for it may end the hold.

        Raises:
            StorageError: the disk refused; the old content is still there.
        """
        return await self._storage.write(self.session_id, parts)


class SessionStorage(ABC):
    """Keeps session files as bytes under ids. JSON and its meaning live in the layer above.

    Every method that takes an id raises ``SessionNotFound`` for a malformed one.
    """

    # Subclasses must implement all of these.

    @abstractmethod
    async def read(self, session_id: str) -> tuple[bytes, tuple[int, ...]]:
        """The content and its signature.

        Raises:
            SessionNotFound: nothing is stored.
            StorageError: it is there, and cannot be read.
        """

    @abstractmethod
    async def signature(self, session_id: str) -> tuple[int, ...]:
        """The signature alone, cheaply.

        Raises:
            SessionNotFound: nothing is stored.
        """

    @abstractmethod
    async def read_head(self, session_id: str, size: int) -> bytes:
        """The first ``size`` bytes (fewer when there are fewer)."""

    @abstractmethod
    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Replace or create, atomically and durably; the new signature.

        A crash at any instant leaves the old or the new content, never a torn one.

        Raises:
            StorageError: the disk refused; the old content is still there.
        """

    @abstractmethod
    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        """Like ``write``, but never replaces.

        Raises:
            SessionExists: the id is taken.
        """

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Remove it.

        Raises:
            SessionNotFound: nothing is stored.
        """

    @abstractmethod
    async def entries(self) -> list[Entry]:
        """Every stored session, in no particular order."""

    @abstractmethod
    def lock(self, session_id: str) -> AbstractAsyncContextManager[Hold]:
        """Exclude other edits of this session, in all processes; waits. Held for milliseconds."""

    @abstractmethod
    def claim(self, session_id: str) -> AbstractAsyncContextManager[tuple[int, ...] | None]:
        """Exclude other turns of this session, in all processes; refuses at once.

        A crashed process gives its claims back by itself. Yields the session's signature, None
        when nothing is stored.

        Raises:
            SessionBusy: somebody has it.
        """

    # Subclasses may override these.

    async def replace(
        self, session_id: str, signature: tuple[int, ...], parts: Iterable[bytes]
    ) -> tuple[int, ...]:
        """``lock``, see that the session is still the one of this signature, ``write``.

        Raises:
            SessionChanged: it is not, or it is held; nothing was written.
            StorageError: the disk refused; the old content is still there.
        """
        async with self.lock(session_id) as hold:
            if hold.signature != signature:
                raise SessionChanged
            return await hold.write(parts)

    async def read_heads(self, session_ids: Sequence[str], size: int) -> list[bytes | MochiError]:
        """``read_head`` of many; what one of them raised stands in its place."""
        return [await self._head_or_error(session_id, size) for session_id in session_ids]

    async def _head_or_error(self, session_id: str, size: int) -> bytes | MochiError:
        try:
            return await self.read_head(session_id, size)
        except MochiError as error:
            return error

    async def generation(self) -> object | None:
        """Equal as long as no session was added, replaced or removed; None when that is unknown.

        Spares a listing the look at every session. Content changed in place may go unnoticed.
        """
        return None

    async def aclose(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back threads and handles."""
