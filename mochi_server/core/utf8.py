"""Text of other servers, which should be UTF-8 and nearly always is.

A byte order mark at its beginning says nothing (RFC 8259 8.1; the standard of HTML says the same
of streams of events), and one invalid byte is no reason to lose a whole reply.
"""

from __future__ import annotations

import codecs


def valid_utf8(data: bytes) -> bytes:
    """Return a whole text without a byte order mark, and with U+FFFD for what is invalid."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").encode()


class Utf8Stream:
    """The same for a text that comes in chunks, which may end within a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def feed(self, data: bytes) -> bytes:
        return self._decoder.decode(data).encode()

    def end(self) -> bytes:
        """Return what is left of a text that ends within a character."""
        return self._decoder.decode(b"", final=True).encode()
