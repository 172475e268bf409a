"""Confirmations of one process, which end with it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from .confirmation import (
    SYSTEM_CLOCK,
    Clock,
    Confirmation,
    ConfirmationDecision,
    ConfirmationRecord,
)
from .store import ConfirmationStore, StoredConfirmation

MAX_RECORDS = 1000
"""Entries of the history that are kept."""


class MemoryConfirmationStore(ConfirmationStore):
    """Keeps confirmations in memory, for a server without a data folder, and for tests."""

    poll_seconds = 0.25

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock=clock)
        self._records: deque[ConfirmationRecord] = deque(maxlen=MAX_RECORDS)

    async def _add(self, confirmation: Confirmation) -> None:
        if confirmation.confirmation_id not in self._stored:
            self._learn(StoredConfirmation(confirmation))

    async def _find(self, confirmation_id: str) -> StoredConfirmation | None:
        return self._stored.get(confirmation_id)

    async def _settle(self, confirmation: Confirmation, decision: ConfirmationDecision) -> bool:
        stored = self._stored.get(confirmation.confirmation_id)
        if stored is None or stored.decision is not None:
            return False
        self._learn(replace(stored, decision=decision))
        return True

    async def _remove(self, confirmation_id: str) -> None:
        self._forget(confirmation_id, None)

    async def _refresh(self) -> None:
        """Do nothing: this process alone changes it."""

    async def _append(self, record: ConfirmationRecord) -> None:
        self._records.append(record)

    async def history(
        self, *, limit: int = 100, before: str | None = None
    ) -> list[ConfirmationRecord]:
        records = list(reversed(self._records))
        if before is not None:
            ids = [each.confirmation.confirmation_id for each in records]
            records = records[ids.index(before) + 1 :] if before in ids else []
        return records[:limit]

    async def _record_of(self, confirmation_id: str) -> ConfirmationRecord | None:
        for record in reversed(self._records):
            if record.confirmation.confirmation_id == confirmation_id:
                return record
        return None

    async def check(self) -> bool:
        return True
