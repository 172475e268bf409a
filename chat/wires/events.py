"""The events of a turn as they are, one frame each (docs/reference/events.md)."""

from __future__ import annotations

import orjson

from mochi_server.protocol.events import ContentDelta, Event, ThinkingDelta

from .sse import frame

CONTENT, THINKING = (
    orjson.dumps(delta.payload()).replace(b'"%b"', b"%b")
    for delta in (ContentDelta("%b"), ThinkingDelta("%b"))
)
"""The data of deltas, one for each token, with ``%b`` in the place of the text."""
_CONTENT_FRAME = b"id: %%d\nevent: content_delta\ndata: %b\n\n" % CONTENT
_THINKING_FRAME = b"id: %%d\nevent: thinking_delta\ndata: %b\n\n" % THINKING


def encode(number: int, event: Event) -> bytes:
    """Encode one event; deltas without building their data first."""
    kind = type(event)
    if kind is ContentDelta:
        return _CONTENT_FRAME % (number, orjson.dumps(event.content))  # type: ignore[union-attr]
    if kind is ThinkingDelta:
        return _THINKING_FRAME % (number, orjson.dumps(event.content))  # type: ignore[union-attr]
    return frame(number, event.type, event.payload())


def encode_all(batch: list[tuple[int, Event]]) -> bytes:
    """Encode a batch in one piece."""
    if len(batch) == 1:
        return encode(*batch[0])
    return b"".join([encode(number, event) for number, event in batch])
