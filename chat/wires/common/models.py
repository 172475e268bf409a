"""What the lists of models of several wires have in common."""

from __future__ import annotations

from datetime import datetime, timezone

from mochi_server.providers.base import ModelInfo

UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""The time of a model whose provider says none: the vendors' lists have one of each."""


def time_of(model: ModelInfo) -> str:
    """Return when a model was made or fetched, in ISO 8601."""
    return (model.modified_at or UNKNOWN_TIME).isoformat().replace("+00:00", "Z")
