"""Server-sent events: how one is framed, and what is sent beside them.

A frame is ``id:`` (grows within the stream), ``event:`` and one ``data:`` line of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

RETRY = b"retry: 3000\n\n"
"""First thing on a stream: milliseconds after which a browser reconnects."""

PING = b": ping\n\n"
"""A comment, so that proxies and clients see that the stream lives."""


def frame(number: int, event: str, data: Mapping[str, Any]) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, event.encode(), orjson.dumps(data))


def encode_changes(batch: list[tuple[int, Any]]) -> bytes:
    """Encode what a feed tells: a frame for each, named by its ``kind``, with its ``payload()``."""
    return b"".join([frame(number, change.kind, change.payload()) for number, change in batch])
