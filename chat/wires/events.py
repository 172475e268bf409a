"""The events of a turn as they are, one frame each (docs/reference/events.md)."""

from __future__ import annotations

import orjson

from mochi_server.protocol.events import ContentDelta, Event, ThinkingDelta

from .sse import frame


def encode(number: int, event: Event) -> bytes:
    """Encode one event; deltas, one for each token, without building their data first."""
    kind = type(event)
    if kind is ContentDelta:
        return b'id: %d\nevent: content_delta\ndata: {"content":%b,"role":"assistant"}\n\n' % (
            number,
            orjson.dumps(event.content),  # type: ignore[union-attr] # kind says so
        )
    if kind is ThinkingDelta:
        return b'id: %d\nevent: thinking_delta\ndata: {"content":%b}\n\n' % (
            number,
            orjson.dumps(event.content),  # type: ignore[union-attr] # kind says so
        )
    return frame(number, event.type, event.payload())


def encode_all(batch: list[tuple[int, Event]]) -> bytes:
    """Encode a batch in one piece."""
    if len(batch) == 1:
        return encode(*batch[0])
    return b"".join([encode(number, event) for number, event in batch])
