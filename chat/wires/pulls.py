"""How far a model is fetched, one frame for each event."""

from __future__ import annotations

from mochi_server.services.models.pulls import PullEvent

from .sse import frame


def encode_pull_events(batch: list[tuple[int, PullEvent]]) -> bytes:
    """Encode a batch in one piece."""
    return b"".join([frame(number, event.kind, event.data) for number, event in batch])
