"""What happens to confirmations, one frame each: ``asked``, ``decided`` or ``expired``."""

from __future__ import annotations

from mochi_server.chat.confirmations.store import ConfirmationChange
from mochi_server.errors import JSONObject

from .sse import frame


def data_of(change: ConfirmationChange) -> JSONObject:
    """Return ``{"confirmation", "decision"}``; the decision is null while there is none."""
    decision = change.decision
    return {
        "confirmation": change.confirmation.payload(),
        "decision": None if decision is None else decision.payload(),
    }


def encode_changes(batch: list[tuple[int, ConfirmationChange]]) -> bytes:
    """Encode a batch in one piece."""
    return b"".join([frame(number, change.kind, data_of(change)) for number, change in batch])
