"""Reads and writes the documents of sessions: those used last are in memory, all in a catalogue."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable

from ..core.aio import in_thread
from ..errors import SessionUnreadable
from .catalogue.catalogue import SessionCatalogue
from .catalogue.rows import Row, row_of_session
from .codec import Document, NotASession, assemble, disassemble
from .session import ChatSession
from .storage.base import SessionStorage

Version = tuple[int, ...]
Write = Callable[[Iterable[bytes]], Awaitable[Version]]


class DocumentCache:
    """The documents used last, so that the second edit of a turn need not read the file again.

    Callers compare the version with that in the storage, so that a change by another process or an
    editor is never hidden. Limited by bytes: the document used least recently goes first.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes, about."""
        self.size = 0
        self._cached: OrderedDict[str, tuple[Version, Document, int]] = OrderedDict()

    def get(self, session_id: str) -> tuple[Version, Document] | None:
        """Return the last known document and its version, which may be out of date."""
        if (cached := self._cached.get(session_id)) is None:
            return None
        self._cached.move_to_end(session_id)
        return cached[:2]

    def put(self, session_id: str, version: Version, document: Document) -> None:
        self.drop(session_id)
        size = document.size
        if size > self.limit:
            return
        self._cached[session_id] = (version, document, size)
        self.size += size
        while self.size > self.limit:
            _, (_, _, freed) = self._cached.popitem(last=False)
            self.size -= freed

    def drop(self, session_id: str) -> None:
        if cached := self._cached.pop(session_id, None):
            self.size -= cached[2]


class SessionDocuments:
    """The documents of a storage."""

    def __init__(
        self, storage: SessionStorage, catalogue: SessionCatalogue, cache_bytes: int
    ) -> None:
        self._storage = storage
        self._catalogue = catalogue
        self._cache = DocumentCache(cache_bytes)

    def known(self, session_id: str) -> tuple[Version, Document] | None:
        """Return the last known document and its version, which may be out of date."""
        return self._cache.get(session_id)

    async def read(self, session_id: str, version: Version | None) -> Document:
        """Return the document from the cache if it is current, else read and check the file.

        A version that was read just now saves a request to the storage.

        Raises:
            SessionNotFound, SessionUnreadable, StorageError.
        """
        if (cached := self._cache.get(session_id)) is not None:
            known, document = cached
            if known == (version or await self._storage.version(session_id)):
                return document
        data, version = await self._storage.read(session_id)
        try:
            document = await in_thread(disassemble, data)
        except NotASession as error:
            raise SessionUnreadable(session_id=session_id, reason=str(error)) from error
        self._cache.put(session_id, version, document)
        return document

    async def write(self, session: ChatSession, write: Write) -> None:
        """Write a session, by what writes its parts and returns the new version."""
        document = session.document()

        async def change() -> Row:
            version = await write(assemble(document))
            self._cache.put(session.session_id, version, document)
            return row_of_session(session, version)

        await self._catalogue.change(session.session_id, change)
        session.saved(document)

    async def delete(self, session_id: str) -> None:
        async def change() -> None:
            await self._storage.delete(session_id)
            self._cache.drop(session_id)

        await self._catalogue.change(session_id, change)
