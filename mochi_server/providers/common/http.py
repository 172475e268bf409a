"""What services say where no stream of their protocol comes: JSON, pages, plain text."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from ...core.json_limits import CALL_LEVELS, is_too_deep

EVENTS: Final = "text/event-stream"
_KEPT_BYTES: Final = 65_536
_PAGE: Final = re.compile(r"<[a-z!?]", re.IGNORECASE)
_KEYS: Final = ("message", "error", "detail", "errors")
_LEVELS: Final = 4
"""How deep in a body the words may stand."""


def words_of(body: object, levels: int = _LEVELS) -> str:
    """What a body says, parsed or as text; nothing for a page for browsers."""
    if isinstance(body, str):
        text = body.strip()
        return "" if _PAGE.match(text) else text
    if not isinstance(body, (dict, list)) or not body or not levels:
        return ""
    if isinstance(body, dict):
        found = (words_of(body.get(key), levels - 1) for key in _KEYS)
        if words := next(filter(None, found), ""):
            told = _told(body.get("metadata"), levels - 1)
            return f"{words}: {told}" if told else words
    return "" if is_too_deep(body, CALL_LEVELS) else json.dumps(body, ensure_ascii=False)


def _told(metadata: object, levels: int) -> str:
    """What OpenRouter was told by the service behind it."""
    return words_of(metadata.get("raw"), levels) if isinstance(metadata, dict) else ""


class Overheard:
    """Keeps what an answer says that does not call itself a stream of events.

    The SDKs pass over all that is no event: of an error with status 200, or of a page, nothing
    would be left but a stream without an end.
    """

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - the HTTP library's
        """Listen to a response of which nothing has been read."""
        self.kind = str(response.headers.get("content-type") or "")
        self._kept = bytearray()
        if not self.kind.lower().startswith(EVENTS):
            self._read = response.aiter_bytes
            response.aiter_bytes = self._listen

    async def _listen(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._read()) as pieces:
            async for data in pieces:
                self._kept += data[: _KEPT_BYTES - len(self._kept)]
                yield data

    @property
    def body(self) -> object:
        """What was said, parsed where it is JSON; None for nothing."""
        text = self._kept.decode("utf-8", "replace").strip()
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            return text
