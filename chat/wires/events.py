"""Server-sent events: one frame for each event of a turn (docs/reference/events.md).

A frame is ``id:`` (grows within the stream), ``event:`` and one ``data:`` line of JSON.
"""

from __future__ import annotations

import orjson

from mochi_server.protocol.events import ContentDelta, Event, ThinkingDelta

RETRY = b"retry: 3000\n\n"
"""First thing on a stream: milliseconds after which a browser reconnects."""

PING = b": ping\n\n"
"""A comment, so that proxies and clients see that the stream lives."""


def encode(number: int, event: Event) -> bytes:
    """One frame."""
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
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        number,
        event.type.encode(),
        orjson.dumps(event.payload()),
    )


def encode_all(batch: list[tuple[int, Event]]) -> bytes:
    """The frames of a batch, in one piece."""
    if len(batch) == 1:
        return encode(*batch[0])
    return b"".join([encode(number, event) for number, event in batch])
