"""The files that were read or written last, taken apart."""

from __future__ import annotations

from collections import OrderedDict

from .codec import Document

Signature = tuple[int, ...]


class DocumentCache:
    """Spares the second edit of a turn the reading; bounded by bytes, the oldest use goes first.

    Who takes something out says which signature the storage has now, so that what another process
    or an editor changed is never covered up.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes, about."""
        self.size = 0
        self._kept: OrderedDict[str, tuple[Signature, Document, int]] = OrderedDict()

    def get(self, session_id: str, signature: Signature) -> Document | None:
        """The document, if it is the one with this signature."""
        kept = self._kept.get(session_id)
        if kept is None or kept[0] != signature:
            return None
        self._kept.move_to_end(session_id)
        return kept[1]

    def last(self, session_id: str) -> tuple[Signature, Document] | None:
        """The document as it was last seen here, with the signature that it had."""
        kept = self._kept.get(session_id)
        return None if kept is None else kept[:2]

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._kept

    def put(self, session_id: str, signature: Signature, document: Document) -> None:
        """Keep it, unless it is larger than everything allowed."""
        self.drop(session_id)
        size = document.size
        if size > self.limit:
            return
        self._kept[session_id] = (signature, document, size)
        self.size += size
        while self.size > self.limit:
            _, (_, _, freed) = self._kept.popitem(last=False)
            self.size -= freed

    def drop(self, session_id: str) -> None:
        """Forget it."""
        if kept := self._kept.pop(session_id, None):
            self.size -= kept[2]
